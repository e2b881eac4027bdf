"""Executed GTID sets chunk by chunk against GtidSet, one transaction at a time."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from ray_canal.binlog.chunk import GTID, GTID_MARIADB, GTID_MYSQL
from ray_canal.binlog.executed import gtid_set_after
from ray_canal.model.gtid import GtidSet

SIDS = [bytes([k]) * 15 + b"\0" for k in (1, 2, 0)]


def records(chosen: random.Random, count: int, sources: int, tags: list[bytes]) -> np.ndarray:
    found = np.zeros(count, GTID)
    next_of: dict[tuple[int, bytes], int] = {}
    for record in found:
        if chosen.random() < 0.02:
            continue  # anonymous
        source, tag = chosen.randrange(sources), chosen.choice(tags)
        gno = next_of.get((source, tag), 1) + (chosen.random() < 0.01)
        next_of[source, tag] = gno + 1
        record["flavor"], record["gno"], record["tag"] = GTID_MYSQL, gno, tag
        record["sid"] = np.frombuffer(SIDS[source], np.uint8)
    for one, other in itertools.pairwise(found):
        alike = all(np.array_equal(one[name], other[name]) for name in ("flavor", "sid", "tag"))
        other["follows"] = bool(one["flavor"]) and alike and other["gno"] == one["gno"] + 1
    return found


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("sources", [1, 3])  # with three in turns there are more runs than RUNS_MAX
def test_a_chunk_adds_what_its_transactions_are(seed: int, sources: int) -> None:
    chosen = random.Random(seed)
    gtids = records(chosen, 400, sources, [b""] if seed % 2 else [b"", b"nightly"])
    before = GtidSet()
    before.add_range(SIDS[0], 1, 7)
    expected = before.copy()
    for record in gtids[gtids["flavor"] == GTID_MYSQL]:
        expected.add(record["sid"].tobytes(), int(record["gno"]), record["tag"].decode())
    assert gtid_set_after(str(before), gtids) == str(expected)


def test_anonymous_ones_change_nothing() -> None:
    assert gtid_set_after("0-1-5", np.zeros(3, GTID)) == "0-1-5"
    assert gtid_set_after("", np.zeros(0, GTID)) == ""


def test_mariadbs_position_is_the_last_of_each_domain() -> None:
    gtids = np.zeros(3, GTID)
    gtids["flavor"] = GTID_MARIADB
    gtids["domain"], gtids["server_id"], gtids["gno"] = (0, 1, 0), (9, 9, 8), (6, 3, 7)
    assert gtid_set_after("0-9-5,2-9-1", gtids) == "0-8-7,1-9-3,2-9-1"
