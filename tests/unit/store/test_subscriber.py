"""What a cursor has consumed of a chunk, entry by entry."""

from __future__ import annotations

import random

import pytest

from ray_canal.protocol.position import EntryPosition
from ray_canal.store.subscriber import consumed
from ray_canal.store.transaction_buffer import TransactionBuffer
from tests.unit.store.made_log import MadeLog, info_of

START = EntryPosition("binlog.000009")


@pytest.mark.parametrize("seed", range(5))
def test_consumed_is_what_lies_before(seed: int) -> None:
    """For the cursor behind every entry."""
    log = MadeLog()
    log.number = 9
    log.grow(random.Random(seed), 12)
    file = [entry for entry in log.entries if entry.journal_name == "binlog.000009"]
    chunk = TransactionBuffer(START).add(info_of(file, 0, 4))
    for count in range(1, len(file) + 1):
        found = consumed(chunk, log.cursor_after(count))
        assert found.tolist() == [index < count for index in range(len(file))], f"seed {seed}"


def test_other_files_are_all_before_or_all_behind() -> None:
    log = MadeLog()
    log.number = 9
    log.transaction(1)
    chunk = TransactionBuffer(START).add(info_of(log.entries, 0, 4))
    assert consumed(chunk, EntryPosition("binlog.000010", 4)).all()
    assert not consumed(chunk, EntryPosition("binlog.000008", 10**9)).any()
    # By number, never as text.
    assert consumed(chunk, EntryPosition("binlog.1000000", 4)).all()
