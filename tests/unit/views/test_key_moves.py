"""Rows that an UPDATE moves to another partition: each key has its changes in one, in order."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from ray_canal.binlog.chunk import EVENT
from ray_canal.views.key_moves import of_kinds, split_moves

UPDATE, INSERT, DELETE = 0, 1, 3


def test_a_chain_of_keys_that_follow_each_other() -> None:
    """UPDATE t SET id = id + 1 ORDER BY id DESC, where a key's partition is its last digit."""
    rows = [(7, 40 + n, (6 - n) % 3, (7 - n) % 3) for n in range(6)]
    stays = [(7, 46, 1, 1), (7, 47, 1, 1)]
    lines = np.array([[5, -1, 1, 0], [7, 0, 3, 0], [7, 3, 5, 1], [9, -1, 2, 2]], np.int64)
    order = np.arange(40, 48, dtype=np.int32)
    made, longer, kinds = split_moves(lines, order, np.array([*rows, *stays], np.int64))
    assert made[0].tolist() == [5, -1, 1, 0]
    assert made[-1].tolist() == [9, -1, 2, 2]
    assert kinds[[0, -1]].tolist() == [0, 0]
    by_partition = defaultdict(list)
    moved = []
    for (number, first, count, partition), kind in zip(
        made[1:-1].tolist(), kinds[1:-1].tolist(), strict=True
    ):
        assert number == 7
        picked = longer[first : first + count].tolist()
        by_partition[partition] += [(kind, row) for row in picked]
        moved += [(kind, row) for row in picked if kind != UPDATE]
    # Row by row, first away from one partition, then into the other.
    assert moved == [(kind, row) for row in range(40, 46) for kind in (DELETE, INSERT)]
    for partition, found in by_partition.items():
        wanted = []
        for _, row, before, after in [*rows, *stays]:
            if before == after == partition:
                wanted.append((UPDATE, row))
            wanted += [(DELETE, row)] if before == partition != after else []
            wanted += [(INSERT, row)] if after == partition != before else []
        assert found == wanted
    assert made[-2].tolist()[2:] == [2, 1]  # two rows that stay are one message


def test_events_of_other_kinds_stand_behind_the_others() -> None:
    events = np.zeros(3, EVENT)
    events["event_type"], events["rows"] = 2, [1, 2, 3]
    found, numbers = of_kinds(events, np.array([0, 2, 2, 1]), np.array([UPDATE, DELETE, INSERT, 0]))
    assert numbers.tolist() == [0, 3, 4, 1]
    assert found["event_type"].tolist() == [2, 2, 2, DELETE, INSERT]
    assert found["rows"].tolist() == [1, 2, 3, 3, 3]
    assert events["event_type"].tolist() == [2, 2, 2]
