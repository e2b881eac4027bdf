"""message.transactions: each transaction once, whole, whatever batches its rows came in."""

from __future__ import annotations

import pickle
import random
from collections.abc import Sequence
from typing import Any

import pytest

from ray_canal.binlog.chunk import ChunkInfo, DecodedChunk
from ray_canal.binlog.cutter import ChunkCutter
from ray_canal.client.message import Message
from ray_canal.config import InstanceConfig, StoreConfig
from ray_canal.demo import binlog_files
from ray_canal.filter import TableFilter
from ray_canal.log.batch import Batch
from ray_canal.log.event_store import EventStore
from ray_canal.log.subscriber import Terms
from ray_canal.log.transaction_buffer import LogChunk, TransactionBuffer
from ray_canal.model.message import MessageHead, MessagePart
from ray_canal.model.position import EntryPosition
from ray_canal.schema.event_parser import EventParser
from ray_canal.schema.keeper import SchemaKeeper
from ray_canal.schema.registry import SchemaRegistry
from ray_canal.source.files import BinlogFiles
from tests.golden import GOLDEN
from tests.transactions_oracle import known_transactions
from tests.unit.views.test_envelope import gtid_texts

CLIENT = 1
FILES = (*binlog_files(), GOLDEN / "mysql97" / "mysql_xa.binlog")
Decoded = Sequence[tuple[ChunkInfo, DecodedChunk]]


class Source:
    """Files as a server's dump: from any boundary on, cut into chunks from there."""

    def __init__(self, chunk_bytes: int) -> None:
        files = {"files": [str(path) for path in FILES]}
        self._files = BinlogFiles(
            InstanceConfig.model_validate({"destination": "d", "source": files})
        )
        self._files._new_cutter = lambda: ChunkCutter(  # type: ignore[method-assign]
            chunk_bytes, 1 << 30, contiguous=True
        )
        self._parser = EventParser(SchemaRegistry(), SchemaKeeper(None))
        self.all = self.chunks(None)

    def chunks(self, start: EntryPosition | None) -> Decoded:
        self._files.open(start)
        found = []
        while not self._files.finished:
            raw = self._files.read(0.0, 0.0)
            if raw is not None:
                found.append(self._parser.decode_chunk(raw))
        self._files.close()
        self._files._interrupted.clear()
        return found


class Log:
    """A generation's log, some of it on disk. A payload there is (chunk,)."""

    def __init__(
        self, source: Source, terms: Terms, cursor: EntryPosition | None, spills: bool
    ) -> None:
        chunks = source.all if cursor is None else source.chunks(cursor.boundary)
        start = EntryPosition(FILES[0].name) if cursor is None else cursor
        buffer = TransactionBuffer(start.boundary)
        self.store = EventStore(StoreConfig(), start.boundary, spill_bytes=1 << 40)
        self.store.subscribe(CLIENT, terms, cursor)
        self._disk: dict[int, bytes] = {}
        for info, chunk in chunks:
            self.store.put(buffer.add(info), chunk)
        while spills and (slot := self.store.spillable()) is not None:
            self._disk[slot.first] = pickle.dumps(slot.chunk, 5)
            assert self.store.spilled(slot.first, (slot.payload,), 1)

    def get(self, size: int) -> Batch | None:
        while (slot := self.store.missing(CLIENT, size)) is not None:
            found: LogChunk = pickle.loads(self._disk[slot.first])
            self.store.restore(slot.first, found)
        return self.store.get(CLIENT, size)


def message_of(batch: Batch) -> Message:
    parts = tuple(
        MessagePart(p.payload, p.first, p.last, p.mask, p.gtid_set, p.on_disk, p.open, p.tables)
        for p in batch.parts
    )
    head = MessageHead(batch.id, 1, parts, timeline=5)
    return Message(head, lambda payloads: [p[0] if isinstance(p, tuple) else p for p in payloads])


def shown(one: dict[str, Any]) -> tuple[str, int, int, dict[tuple[str, str], int]]:
    tables = {(each["schema"], each["table"]): each["rows"] for each in one["tables"]}
    assert one["rows"] == sum(tables.values())
    return one["transaction"], one["begin"], one["end"], tables


@pytest.mark.parametrize(
    ("seed", "tables", "whole", "spills"),
    [
        (1, "", True, False), (2, r"shop\.orders", False, False),
        (4, r"nothing\.at_all", False, False), (6, r"shop\.orders", True, True),
    ],
)  # fmt: skip
def test_each_transaction_is_told_once_and_whole(
    seed: int, tables: str, whole: bool, spills: bool
) -> None:
    """A6, b4: over batches of any size, filters, the disk, rollbacks and new generations that begin
    in the midst of a transaction: the record comes with its end, and counts from its begin."""
    random_ = random.Random(seed)
    source = Source(20_000 if spills else random_.choice([700, 5000]))
    terms = Terms(TableFilter(tables), "spill", transactions=whole)
    wanted = {}
    for one in known_transactions(source.all, gtid_texts):
        seen = {name: rows for name, rows in one.rows.items() if terms.filter.admits(*name)}
        wanted[one.name] = (one.name, one.begin, one.end, seen)
    log = Log(source, terms, None, spills)
    told: list[str] = []
    numbers: dict[str, list[int]] = {}
    cursor: EntryPosition | None = None
    while (batch := log.get(random_.choice([1, 1, 2, 8, 64]))) is not None:
        message = message_of(batch)
        found = message.transactions.to_pylist()
        if random_.random() < 0.2:
            log.store.rollback(CLIENT)
            if random_.random() < 0.3:
                log = Log(source, terms, cursor, spills)
            continue
        for part in message.batches:
            for row in part.to_pylist():
                numbers.setdefault(row["transaction"], []).append(row["transaction_row"])
        for one in found:
            name = one["transaction"]
            assert name not in told
            told.append(name)
            assert shown(one) == wanted[name]
            delivered = sorted(numbers.get(name, []))
            assert len(set(delivered)) == one["rows"], "all of its rows came before, once"
            assert tables or delivered == [*range(one["rows"])]
        cursor = log.store.cursor_after(CLIENT, batch.id)
        log.store.ack(CLIENT, batch.id)
    with_rows = [name for name, (*_, seen) in wanted.items() if seen]
    assert [name for name in told if name in with_rows] == with_rows
    order = [*wanted]
    assert [order.index(name) for name in told] == sorted(order.index(name) for name in told)
