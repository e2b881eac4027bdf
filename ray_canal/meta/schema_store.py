"""Port of the storage of schema histories and quarantined events, and a backend in memory.

What is written are facts about a log: writing one again changes nothing. So no owner needs to be
fenced, as cursors need it (backend.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from ray_canal.model.position import journal_key
from ray_canal.model.schema_record import (
    SNAPSHOT,
    Quarantined,
    QuarantinedChunk,
    SchemaMark,
    SchemaRecord,
)


class SchemaStore(Protocol):
    """Durable records by destination. A returned write is on the disk."""

    def records(self, destination: str) -> list[SchemaRecord]:
        """Return all records of a destination, in the order in which they were written."""
        ...

    def outline(self, destination: str) -> list[SchemaRecord]:
        """The records without their bodies."""
        ...

    def append(self, destination: str, records: Sequence[SchemaRecord]) -> None:
        """Store records; one that is stored already stays as it is."""
        ...

    def forget_before(self, destination: str, snapshot: SchemaRecord) -> None:
        """Forget the records of the snapshot's log that lie before it."""
        ...

    def forget_log(self, destination: str, server: str) -> None:
        """Forget all records of a log (SchemaRecord.server)."""
        ...

    def quarantine(self, destination: str, chunks: Sequence[Quarantined]) -> None:
        """Keep chunks whose events cannot be decoded yet; one that is there already is replaced."""
        ...

    def quarantined(self, destination: str) -> list[QuarantinedChunk]:
        """Return the quarantined chunks in the log's order."""
        ...

    def quarantined_data(self, destination: str, chunk: ChunkKey) -> bytes | None:
        """The bytes of one chunk; None: it was released."""
        ...

    def release(self, destination: str, chunk: ChunkKey) -> None:
        """Forget one chunk: its events were handed out."""
        ...

    def close(self) -> None: ...


ChunkKey = tuple[str, str, int]


def chunk_key(chunk: Quarantined | QuarantinedChunk) -> ChunkKey:
    """Return what makes a quarantined chunk one and the same: its server's log, and the place in
    it."""
    return chunk.server, chunk.journal_name, chunk.position


def record_order(record: SchemaRecord | QuarantinedChunk) -> tuple[tuple[str, int], int]:
    """Return a record's place in its log, to sort by."""
    return journal_key(record.journal_name), record.position


def newest_marks(records: Iterable[SchemaRecord]) -> dict[str, SchemaMark]:
    """Return the place of each log's newest record, by log."""
    newest: dict[str, SchemaRecord] = {}
    for record in records:
        known = newest.get(record.server)
        if known is None or record_order(record) > record_order(known):
            newest[record.server] = record
    return {log: (log, r.journal_name, r.position) for log, r in newest.items()}


def is_newer(mark: SchemaMark, other: SchemaMark) -> bool:
    """Return whether a place of a log is behind another one of it."""
    places = [(journal_key(journal_name), position) for _, journal_name, position in (mark, other)]
    return places[0] > places[1]


def held_order(chunk: QuarantinedChunk) -> tuple[tuple[str, int], int, str]:
    """Return the log's order, and at one place that of the names of what is held."""
    return *record_order(chunk), chunk.server


class MemorySchemaStore:
    """A SchemaStore that ends with its process: for tests, and with the memory meta backend."""

    def __init__(self) -> None:
        self._records: dict[str, dict[tuple[object, ...], SchemaRecord]] = {}
        self._quarantined: dict[str, dict[ChunkKey, Quarantined]] = {}

    def records(self, destination: str) -> list[SchemaRecord]:
        return list(self._records.get(destination, {}).values())

    def outline(self, destination: str) -> list[SchemaRecord]:
        return [replace(record, body=b"") for record in self.records(destination)]

    def append(self, destination: str, records: Sequence[SchemaRecord]) -> None:
        for record in records:
            self._records.setdefault(destination, {})[record_key(record)] = record

    def forget_before(self, destination: str, snapshot: SchemaRecord) -> None:
        self._records[destination] = {
            key: record
            for key, record in self._records.get(destination, {}).items()
            if not is_before(record, snapshot)
        }

    def forget_log(self, destination: str, server: str) -> None:
        self._records[destination] = {
            key: record
            for key, record in self._records.get(destination, {}).items()
            if record.server != server
        }

    def quarantine(self, destination: str, chunks: Sequence[Quarantined]) -> None:
        for chunk in chunks:
            self._quarantined.setdefault(destination, {})[chunk_key(chunk)] = chunk

    def quarantined(self, destination: str) -> list[QuarantinedChunk]:
        found = [
            QuarantinedChunk(*key, chunk.tables, len(chunk.data))
            for key, chunk in self._quarantined.get(destination, {}).items()
        ]
        return sorted(found, key=held_order)

    def quarantined_data(self, destination: str, chunk: ChunkKey) -> bytes | None:
        found = self._quarantined.get(destination, {}).get(chunk)
        return None if found is None else found.data

    def release(self, destination: str, chunk: ChunkKey) -> None:
        self._quarantined.get(destination, {}).pop(chunk, None)

    def close(self) -> None:
        pass


def record_key(record: SchemaRecord) -> tuple[object, ...]:
    """Return what makes a record one and the same. Two tables at one place are two records."""
    is_snapshot = record.kind == SNAPSHOT
    content = b"" if is_snapshot else record.body
    return record.server, record.journal_name, record.position, record.kind, content


def is_before(record: SchemaRecord, snapshot: SchemaRecord) -> bool:
    """Return whether the snapshot makes a record needless: one of the same log and file base before
    it."""
    here, there = record_order(record), record_order(snapshot)
    is_of_it = (record.server, here[0][0]) == (snapshot.server, there[0][0])
    return is_of_it and here < there
