"""What a cursor has consumed of a chunk, entry by entry."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from ray_canal.binlog.chunk import EVENT_IN_TRANSACTION, EVENT_SILENT
from ray_canal.log.log_order import LogOrder
from ray_canal.log.subscriber import consumed
from ray_canal.log.transaction_buffer import TransactionBuffer
from ray_canal.model.position import EntryPosition
from tests.unit.log.made_log import MadeLog, info_of

START = EntryPosition("binlog.000009")
ORDER = LogOrder(START)


@pytest.mark.parametrize("seed", range(5))
def test_consumed_is_what_lies_before(seed: int) -> None:
    """For the cursor behind every entry."""
    log = MadeLog()
    log.number = 9
    log.grow(random.Random(seed), 12)
    file = [entry for entry in log.entries if entry.journal_name == "binlog.000009"]
    chunk = TransactionBuffer(START).add(info_of(file, 0, 4))
    for count in range(1, len(file) + 1):
        found = consumed(chunk, log.cursor_after(count), ORDER)
        assert found.tolist() == [index < count for index in range(len(file))], f"seed {seed}"


@pytest.mark.parametrize("seed", range(3))
def test_consumed_does_not_depend_on_what_the_instance_filters(seed: int) -> None:
    """A cursor of a time when all rows were decoded, met by a log in which some are not."""
    random_ = random.Random(seed)
    log = MadeLog()
    log.number = 9
    for _ in range(10):
        log.transaction(*(random_.randrange(1, 4) for _ in range(random_.randrange(1, 4))))
    file = log.entries
    info = info_of(file, 0, 4)
    hidden = info.entries.copy()
    chosen = (hidden["rows"] > 0) & (np.random.default_rng(seed).random(len(hidden)) < 0.5)
    assert chosen.any()
    hidden["rows"][chosen] = 0
    hidden["flags"][chosen] |= EVENT_SILENT | EVENT_IN_TRANSACTION
    chunk = TransactionBuffer(START).add(replace(info, entries=hidden))
    for count in range(1, len(file) + 1):
        found = consumed(chunk, log.cursor_after(count), ORDER)
        assert found.tolist() == [index < count for index in range(len(file))]


def test_other_files_are_all_before_or_all_behind() -> None:
    log = MadeLog()
    log.number = 9
    log.transaction(1)
    chunk = TransactionBuffer(START).add(info_of(log.entries, 0, 4))
    assert consumed(chunk, EntryPosition("binlog.000010", 4), ORDER).all()
    assert not consumed(chunk, EntryPosition("binlog.000008", 10**9), ORDER).any()
    # By number, never as text.
    assert consumed(chunk, EntryPosition("binlog.1000000", 4), ORDER).all()


def packed(queries: bool, rows_an_event: int, rows: int = 12) -> MadeLog:
    """A transaction of so many rows; `queries`: statements are logged, one for 4 rows."""
    log = MadeLog()
    log.number = 9
    log.begin()
    for done in range(0, rows, rows_an_event):
        if queries and done % 4 == 0:
            log.statement()
        log.row_event(min(rows_an_event, rows - done))
    log.end()
    return log


@pytest.mark.parametrize("here", [(False, 1), (True, 1), (False, 4), (True, 4), (False, 3)])
@pytest.mark.parametrize("there", [(False, 1), (True, 1), (False, 4), (True, 4), (False, 3)])
@pytest.mark.parametrize("cut", [1, 3, 100])
def test_a_transaction_that_another_server_packed_otherwise(
    there: tuple[bool, int], here: tuple[bool, int], cut: int
) -> None:
    """A9: wherever it was acked, all of its rows have come after the move; what is packed alike
    comes once."""
    was = TransactionBuffer(START).add(info_of(packed(*there).entries, 0, 4))
    entries = packed(*here).entries
    for acked in range(1, len(was.info.entries)):
        cursor = was.resume_after(acked - 1)
        assert cursor.is_inside
        had = int(was.info.entries["rows"][:acked].sum())
        moved = replace(cursor, moved=True)
        buffer, position, rows, left = TransactionBuffer(START), 4, 0, len(entries)
        for sequence, first in enumerate(range(0, left, cut)):
            part = entries[first : first + cut]
            chunk = buffer.add(info_of(part, sequence, position))
            position = part[-1].position + part[-1].length
            rows += int(chunk.info.entries["rows"][~consumed(chunk, moved, ORDER)].sum())
        assert had + rows >= 12, acked
        if here == there:
            assert had + rows == 12


def test_a_filter_that_changed_with_the_server_loses_no_row() -> None:
    """A9: rows that the destination's filter hides now were counted then."""
    log = MadeLog()
    log.number = 9
    log.begin()
    log.row_event(3, table=0)
    log.row_event(3, table=1)
    log.end()
    info = info_of(log.entries, 0, 4)
    cursor = replace(TransactionBuffer(START).add(info).resume_after(1), moved=True)
    assert (cursor.row, cursor.entry) == (3, 2)
    hidden = info.entries.copy()
    hidden["rows"][1] = 0
    chunk = TransactionBuffer(START).add(replace(info, entries=hidden))
    assert consumed(chunk, cursor, ORDER).tolist()[2:] == [False, False]
