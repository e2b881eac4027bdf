"""Flush: which entries of an open transaction are held back, against Canal's buffer entry by
entry."""

from __future__ import annotations

import random

import pytest

from ray_canal.log.flush import Flush
from ray_canal.model.canal_types import BEGIN, END, ROWDATA
from tests.unit.log.made_log import MadeLog, info_of

ROW_CHANGES = (1, 2, 3)


class CanalsBuffer:
    """The rules of EventTransactionBuffer, one entry at a time."""

    def __init__(self, size: int) -> None:
        self.size, self.held = size, 0

    def add(self, kind: int, event_type: int) -> None:
        if kind == BEGIN:
            self.held = 0
        if self.held == self.size:
            self.held = 0
        self.held += 1
        if kind == END or (kind == ROWDATA and event_type not in ROW_CHANGES):
            self.held = 0


@pytest.mark.parametrize("size", [1, 2, 4, 1024])
@pytest.mark.parametrize("seed", range(5))
def test_held_is_what_canals_buffer_holds(seed: int, size: int) -> None:
    random_ = random.Random(seed)
    log = MadeLog()
    log.grow(random_, 60)
    flush, canal = Flush(size), CanalsBuffer(size)
    first = 0
    while first < len(log.entries):
        last = min(first + random_.choice((1, 3, 10)), len(log.entries))
        for entry in log.entries[first:last]:
            canal.add(entry.kind, entry.event_type)
        found = flush.held(info_of(log.entries[first:last]).entries)
        assert found == canal.held, f"seed {seed}: behind entry {last}"
        first = last


def test_nothing_is_held_without_a_size_nor_by_an_empty_chunk() -> None:
    log = MadeLog()
    log.begin()
    entries = info_of(log.entries).entries
    assert Flush(0).held(entries) == 0
    flush = Flush(8)
    assert [flush.held(e) for e in (entries, entries[:0])] == [1, 0]
