"""Stores that hold a made-up log."""

from __future__ import annotations

import itertools
from typing import Any

from ray_canal.config import StoreConfig
from ray_canal.filter import TableFilter
from ray_canal.log.event_store import EventStore
from ray_canal.log.subscriber import Terms
from ray_canal.log.transaction_buffer import TransactionBuffer
from ray_canal.model.position import EntryPosition
from tests.unit.log.made_log import MadeLog, info_of

START = EntryPosition("binlog.000001")


EVERYTHING = Terms(TableFilter())


def filled(log: MadeLog, cuts: tuple[int, ...] = (), **options: Any) -> EventStore:
    """A store with a subscriber 1 of everything; `cuts`: where chunks begin besides the first."""
    store = EventStore(StoreConfig(**options), START)
    store.subscribe(1, EVERYTHING, None)
    put(store, log, cuts)
    return store


def put(store: EventStore, log: MadeLog, cuts: tuple[int, ...] = (), start: int = 0) -> None:
    buffer = TransactionBuffer(START, thin_empty_transactions=False)
    edges = [0, *cuts, len(log.entries)]
    for sequence, (first, last) in enumerate(itertools.pairwise(edges)):
        at = 4 if first == 0 else None
        store.put(buffer.add(info_of(log.entries[first:last], sequence, at)), sequence)


def transactions(count: int, rows: int = 1) -> MadeLog:
    log = MadeLog()
    for _ in range(count):
        log.transaction(rows)
    return log
