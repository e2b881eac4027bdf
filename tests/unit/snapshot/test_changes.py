"""What parts of a log touch, by what becomes of it: real logs with XA transactions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from ray_canal.binlog.open_transactions import closing_entries
from ray_canal.model.position import EntryPosition
from ray_canal.offline import decode_chunks
from ray_canal.snapshot.changes import LogPart, TouchedKeys, touched_by_outcome
from tests.chunk_cuts import cut_files
from tests.golden import GOLDEN

TABLE = "g_xa", "t_xa"
FIRST, SECOND = "X'7831',X'',1", "X'7832',X'6272616e6368',7"
LOGS = pytest.mark.parametrize("log", ["mysql97/mysql_xa", "mariadb1011/maria_xa"])


def parts_of(log: str) -> Iterator[LogPart]:
    """The log behind its CREATE TABLE."""
    is_created = False
    for info, chunk in decode_chunks([GOLDEN / f"{log}.binlog"]):
        first = 0
        if not is_created and len(closing := closing_entries(info)):
            first, is_created = int(closing[0]) + 1, True
        if is_created:
            yield LogPart(info, chunk, first, len(info.entries), True, EntryPosition("", 0))


def found_in(part: LogPart) -> list[tuple[list[int], str, str]]:
    runs = touched_by_outcome(part, lambda schema, table: ("id",))
    assert all([*run.keys] in ([], [TABLE]) for run in runs)
    return [(ids_of(run), run.outcome, run.xa_id) for run in runs]


def ids_of(run: TouchedKeys) -> list[int]:
    return [*map(int, run.keys.get(TABLE, np.zeros((1, 0), np.uint64))[0])]


@LOGS
def test_what_is_settled_in_the_same_part_is_in_no_doubt(log: str) -> None:
    _, part = parts_of(log)
    assert found_in(part) == [
        ([1], "committed", ""),
        ([2], "prepared", SECOND),
        ([], "rollback_prepared", SECOND),
        ([3, 5], "committed", ""),
    ]


@LOGS
def test_the_parts_of_a_log_that_is_cut_anywhere(
    log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for chunk_bytes in (150, 200, 300):
        cut_files(monkeypatch, chunk_bytes)
        found = [run for part in parts_of(log) for run in found_in(part)]
        told: list[tuple[list[int], str, str]] = []
        open_ids: list[int] = []
        for ids, outcome, xa_id in found:
            open_ids += ids
            if outcome:
                told.append((open_ids, outcome, xa_id))
                open_ids = []
        assert open_ids == []
        assert [one for one in told if one[1] != "committed"] == [
            ([1], "prepared", FIRST),
            ([], "commit_prepared", FIRST),
            ([2], "prepared", SECOND),
            ([], "rollback_prepared", SECOND),
        ]
        committed = [ids for ids, outcome, _ in told if outcome == "committed"]
        assert [*itertools.chain(*committed)] == [3, 5]
