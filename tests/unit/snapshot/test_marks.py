"""Marks against the log: what `gtid_executed` says of a stretch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ray_canal.binlog.chunk import GTID, GTID_ANONYMOUS, GTID_MYSQL
from ray_canal.model.gtid import GtidSet
from ray_canal.model.position import EntryPosition
from ray_canal.snapshot.log_chunks import LogPlace, rows_at
from ray_canal.snapshot.marks import ExecutedLow, stretch_of
from tests.unit.snapshot.test_log_chunks import framed

EXECUTED = ExecutedLow(GtidSet.parse("01010101-0101-0101-0101-010101010101:1-9"))


@pytest.mark.parametrize(
    ("flavors", "shows"),
    [
        ((GTID_MYSQL, GTID_MYSQL), True),
        ((GTID_ANONYMOUS, GTID_MYSQL), True),  # it is committed after the other
        ((GTID_MYSQL, GTID_ANONYMOUS), False),
        ((GTID_ANONYMOUS,), False),
        ((), False),
    ],
)
def test_transactions_without_gtids_show_when_a_later_one_does(
    flavors: tuple[int, ...], shows: bool
) -> None:
    """gtid_mode may be changed while rows are read."""
    gtids = np.zeros(len(flavors), GTID)
    gtids["flavor"], gtids["sid"] = flavors, 1
    gtids["gno"] = np.arange(1, len(flavors) + 1)
    info, _ = rows_at(framed(1), np.ones(1, np.bool_), LogPlace("b.1", 4, 0))
    stretch = stretch_of(replace(info, gtids=gtids), EntryPosition("b.1", 9))
    assert EXECUTED.has(stretch) is shows
