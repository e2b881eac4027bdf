"""A subscriber of a rare table gets few of the transactions that are empty for it alone."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest

from ray_canal.config import StoreConfig
from ray_canal.filter import TableFilter
from ray_canal.log.event_store import EventStore
from ray_canal.log.subscriber import Terms
from ray_canal.log.thinning import THIN_COUNT, THIN_SECONDS
from ray_canal.log.transaction_buffer import TransactionBuffer
from ray_canal.model.position import EntryPosition
from tests.unit.log.made_log import BEGIN, END, ROWDATA, MadeEntry, MadeLog, info_of

START = EntryPosition("binlog.000001")
ITEM, PERSON = 0, 2
RARE = TableFilter(r"crm\.person")


def received(
    log: MadeLog, tables: TableFilter, cut: int, *, transactions: bool = False, **options: Any
) -> tuple[list[MadeEntry], list[EntryPosition]]:
    """The entries that a subscriber gets, the log cut into chunks of so many; the cursors that its
    acks lead to."""
    store = EventStore(StoreConfig(buffer_size=1 << 22, batch_mode="ITEMSIZE"), START)
    store.subscribe(1, Terms(tables, transactions=transactions), None)
    buffer = TransactionBuffer(START, **options)
    for number, at in enumerate(range(0, len(log.entries), cut)):
        part = log.entries[at : at + cut]
        store.put(buffer.add(info_of(part, number, 4 if at == 0 else None)), at)
    found: list[MadeEntry] = []
    cursors = []
    while (batch := store.get(1, 1000)) is not None:
        for part in batch.parts:
            indexes = np.arange(part.first, part.last)
            if part.mask is not None:
                indexes = indexes[part.mask[part.first : part.last]]
            found += [log.entries[part.payload + int(k)] for k in indexes]
        cursors.append(batch.range.ack)
        store.ack(1, batch.id)
    return found, cursors


def empty(found: list[MadeEntry]) -> int:
    """How many transactions there are without anything in between."""
    return sum(
        one.kind == BEGIN and other.kind == END
        for one, other in itertools.pairwise(found)
    )


@pytest.mark.parametrize("transactions", [False, True])
def test_of_a_busy_servers_transactions_few_are_seen(transactions: bool) -> None:
    """a3: one in 8,192, not every one: 20,000 in a second, of which one is the subscriber's."""
    log = MadeLog()
    for number in range(20_000):
        log.transaction(1, table=PERSON if number == 12_345 else ITEM)
    found, cursors = received(log, RARE, 9_999, transactions=transactions)
    assert [entry.name for entry in found if entry.kind == ROWDATA] == ["crm.person"]
    assert 2 <= empty(found) <= 1 + 20_000 // THIN_COUNT
    assert len(found) == 3 + 2 * empty(found)
    assert cursors == sorted(cursors)
    everything, _ = received(log, TableFilter(), 9_999, transactions=transactions)
    assert everything == log.entries
    kept, _ = received(log, RARE, 9_999, thin_empty_transactions=False)
    assert empty(kept) == 19_999


def test_of_a_quiet_servers_transactions_one_in_five_seconds_is_seen() -> None:
    """a3: so that the cursor of a subscriber whose table never changes moves on."""
    log = MadeLog()
    for _ in range(100):
        log.transaction(1, table=ITEM)
        log.timestamp += 1
    found, cursors = received(log, RARE, 18)  # chunks end between transactions here
    assert 100 // THIN_SECONDS <= empty(found) <= 100 // THIN_SECONDS + 1
    assert cursors
    last = [entry.timestamp for entry in found][-1]
    assert log.timestamp - last <= THIN_SECONDS + 1


def test_transactions_that_are_empty_for_everybody_are_not_thinned_twice() -> None:
    """a3: what the destination shows of those, each subscriber gets."""
    log = MadeLog()
    for number in range(60):
        log.transaction(*(() if number % 2 else (1,)), table=ITEM)
        log.timestamp += 1
    everything, _ = received(log, TableFilter(), 30)
    rare, _ = received(log, RARE, 30)
    shown = {entry.position for entry in everything if entry.kind == BEGIN}
    of_none = {
        log.entries[k].position
        for k in range(len(log.entries) - 1)
        if (log.entries[k].kind, log.entries[k + 1].kind) == (BEGIN, END)
    }
    assert shown & of_none
    assert {entry.position for entry in rare if entry.kind == BEGIN} >= shown & of_none
    assert len(rare) <= 2 * (60 // THIN_SECONDS + 3)


def test_a_clock_that_was_set_back_stops_no_cursor() -> None:
    log = MadeLog()
    for step in (1, 1, -100_000, 1, 1, 1, 1, 1, 1, 1, 1):
        log.timestamp += step
        log.transaction(1, table=ITEM)
    found, _ = received(log, RARE, 3)
    assert found[-1].timestamp >= log.timestamp - 2 * THIN_SECONDS
    assert empty(found) <= 5


@pytest.mark.parametrize("seed", range(20))
def test_no_row_and_no_statement_is_lost_by_it(seed: int) -> None:
    """a3: whatever the log and its chunks."""
    random_ = random.Random(seed)
    log = MadeLog()
    log.grow(random_, 200)
    file = [entry for entry in log.entries if entry.journal_name == log.entries[0].journal_name]
    log.entries = file
    cut = random_.choice((1, 2, 3, 7, 50, len(file)))
    thinned, _ = received(log, RARE, cut)
    whole, _ = received(log, RARE, cut, thin_empty_transactions=False)
    assert [e for e in thinned if e.kind == ROWDATA] == [e for e in whole if e.kind == ROWDATA]
    # What stands around them stays, too.
    for place, entry in enumerate(whole):
        after = whole[place + 1 : place + 2]
        if entry.kind == BEGIN and after and after[0].kind == ROWDATA:
            assert entry in thinned
    assert empty(thinned) <= empty(whole)
