"""Messages: the batch of log entries that one get hands out, read lazily, in Canal's view or in
Arrow's.

A message holds references to decoded chunks, not their bytes: nothing is fetched before `entries`,
`entry_pieces` or `batches` is asked for, and Arrow batches are views over shared memory. No Ray
here; how a reference becomes a chunk is the transport's business. The views are imported when one
is first asked for: messages that came over Canal's TCP protocol need neither Arrow nor a compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.errors import ConfigError, UnsupportedEvent
from ray_canal.filter import FieldFilter
from ray_canal.model.log_context import LogContext
from ray_canal.model.message import EMPTY_BATCH, MessageHead, MessagePart, Payload
from ray_canal.model.position import EntryPosition
from ray_canal.model.schema_record import SchemaChange
from ray_canal.model.snapshot_marks import SnapshotMark, mark_of
from ray_canal.model.table_event import (
    ERASE,
    RENAME,
    STATEMENT,
    TRUNCATE,
    TableEffect,
    TableEvent,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from ray_canal.views.transform import Transform

T = TypeVar("T")

ALTER = "ALTER"


@dataclass(frozen=True, slots=True)
class TableChange:
    """Change of a table by a DDL. `arrow_schema` is that of its batches from here on; None where
    the table is gone, or where its columns are not known (`problem` says why). `retyped`: columns
    that had another type; `renamed`: (old name, new name) of columns; `filled`: what rows that are
    there have in new columns, as text or bytes, and None where the server alone knows; `remade`:
    columns that were dropped and added again, so that their values are gone; `added`: those that
    ALTER TABLE added.

    `kind`: ALTER (it has other columns, or `is_new`: it was made), TRUNCATE, ERASE (it is gone, or
    has the name `renamed_to`), RENAME (it had the name `renamed_from`)."""

    journal_name: str
    position: int
    schema: str
    table: str
    arrow_schema: pa.Schema | None
    problem: str = ""
    kind: str = ALTER
    renamed_from: str = ""
    renamed_to: str = ""
    is_new: bool = False
    retyped: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    filled: tuple[tuple[str, str | bytes | None], ...] = ()
    remade: tuple[str, ...] = ()
    added: tuple[str, ...] = ()


@dataclass
class Message:
    """A batch of entries in log order (Canal: Message). `id` is what `ack` and `rollback` take."""

    head: MessageHead
    load: Callable[[list[Payload]], list[DecodedChunk]]
    _chunks: list[DecodedChunk] | None = None
    transform: Transform | None = None  # of `batches`

    @property
    def id(self) -> int:
        """Return the batch's id, which `ack` takes."""
        return self.head.id

    @property
    def entry_count(self) -> int:
        """Return the number of its entries."""
        return self.head.entry_count

    @property
    def row_count(self) -> int:
        """Rows (changes) in the batch, before any row predicate; known without fetching it."""
        return self.head.row_count

    @property
    def finished(self) -> bool:
        """Return whether the source has an end (binlog files that are not followed) and all before
        it was delivered."""
        return self.head.finished

    @property
    def timeline(self) -> int:
        """Return the timeline of the rows' ids: (timeline, number of the file, position, row)
        compares as delivery order, also where the server changes (docs/reference/guarantees.md)."""
        return self.head.timeline

    @property
    def start(self) -> EntryPosition | None:
        """Return where the batch's first entry starts."""
        return self.head.start

    @property
    def end(self) -> EntryPosition | None:
        """Return where the log goes on after the batch."""
        return self.head.end

    @property
    def ack_position(self) -> EntryPosition | None:
        """The cursor that its ack moves to: the last transaction's end, and how much of an open one
        is consumed."""
        return self.head.ack

    def __repr__(self) -> str:
        return (
            f"Message(id={self.id}, entry_count={self.entry_count}, row_count={self.row_count}, "
            f"start={self.start}, end={self.end})"
        )

    def __len__(self) -> int:
        return self.head.entry_count

    def __bool__(self) -> bool:
        return self.head.id != EMPTY_BATCH

    @property
    def _fields(self) -> FieldFilter:
        return FieldFilter(self.head.fields, self.head.black_fields)

    @property
    def chunks(self) -> list[DecodedChunk]:
        """The decoded chunks behind the parts, fetched once. All at once: of a message of any size
        (`transactions`), go through `entries` or `batches_by_part` instead."""
        if self._chunks is None:
            self._chunks = self.load([part.payload for part in self.head.parts])
        return self._chunks

    def fetch(self, *, always: bool = False) -> None:
        """Fetch what is untracked; `always`: whatever is not on disk. Raises InstanceRestarted: it
        is gone already, and comes again."""
        if self.has_to_fetch(always=always):
            self._chunks = self.chunks

    def has_to_fetch(self, *, always: bool = False) -> bool:
        """Return whether `fetch` has chunks to fetch."""
        if self._chunks is not None or not self.head.parts:
            return False
        return self.head.untracked or (always and not any(part.on_disk for part in self.head.parts))

    def _parts(self) -> Iterator[tuple[MessagePart, DecodedChunk]]:
        """Parts with their chunks. Where some are on disk, one at a time, each as long as it is
        used."""
        if any(part.on_disk for part in self.head.parts):
            for part in self.head.parts:
                yield part, self.load([part.payload])[0]
        else:
            yield from zip(self.head.parts, self.chunks, strict=True)

    @property
    def entries(self) -> Iterator[Any]:
        """Canal's view: `Entry` protobuf messages, rendered some at a time, each parsed when it is
        reached. Raises ConfigError: the subscription has row steps, which entries would not
        show."""
        from ray_canal.views.entries import iter_entries

        return self._rendered(iter_entries)

    @property
    def entry_pieces(self) -> Iterator[bytes]:
        """The same entries as bytes, varint length + `Entry`, one after the other, in pieces of
        whole entries, mostly of less than 1 MiB. They are several times as long as the binlog: so
        rendering takes half as long, and memory holds one piece."""
        from ray_canal.views.entries import delimited_pieces

        return self._rendered(delimited_pieces)

    @property
    def entry_bytes(self) -> bytes:
        """Return all `entry_pieces` in one."""
        return b"".join(self.entry_pieces)

    def _rendered(self, view: Callable[..., Iterator[T]]) -> Iterator[T]:
        self._refuse_steps()
        for part, chunk in self._parts():
            yield from view(
                chunk,
                part.first,
                part.last,
                part.mask,
                time_zone=self.head.time_zone,
                gtid=self.head.gtid,
                gtid_set=part.gtid_set,
                fields=self._fields,
            )

    @property
    def batches(self) -> list[pa.RecordBatch]:
        """Arrow's view: one batch for each table version of each chunk, rows in log order; and one
        for each change of a table as a whole, such as TRUNCATE (views/table_events.py).

        Columns: event_type, timeline, journal_name, position, row, execute_time, gtid, transaction,
        transaction_row, before, after; the table's name is in the schema's metadata. Buffers are
        views over Ray's shared memory.
        """
        return [batch for part in self.batches_by_part() for batch in part]

    @property
    def schema_changes(self) -> list[TableChange]:
        """The batch's DDL that gave tables other columns, new names, or took all their rows, in log
        order, by table."""
        from ray_canal.views.table_events import shown_events

        found: list[TableChange] = []
        for part, chunk in self._parts():
            chosen = np.arange(part.first, part.last)
            if part.mask is not None:
                chosen = chosen[part.mask[part.first : part.last]]
            positions = set(chunk.events["position"][chosen].tolist())
            changes = [c for c in chunk.layout.changes if c.position in positions]
            seen = shown_events(chunk, part.first, part.last, part.mask, part.tables)
            found.extend(_table_changes(chunk, changes, seen, self.transform))
        return found

    @property
    def snapshot_marks(self) -> list[SnapshotMark]:
        """Return where a snapshot for this subscriber begins or ends in the batch, in log order."""
        found = []
        for part, chunk in self._parts():
            if chunk.layout.props and part.first < part.last:
                place = chunk.layout.journal_name, int(chunk.events["position"][part.first])
                found.append(mark_of(dict(chunk.layout.props), *place))
        return [mark for mark in found if mark is not None]

    @property
    def transactions(self) -> pa.RecordBatch:
        """The transactions that end in the message, in log order: one row for each that has a row,
        or an entry of its own, for the subscriber (docs/reference/subscribers.md has the columns).
        Rows are counted from the transaction's first one, whatever message it came in, before any
        row predicate."""
        import pyarrow as pa

        from ray_canal.views.transactions import ended_transactions, no_transactions

        found = [
            ended_transactions(
                chunk, (part.first, part.last), part.mask, part.tables, self._context(part)
            )
            for part, chunk in self._parts()
        ]
        return pa.concat_batches(found) if found else no_transactions()

    def chunks_by_part(self) -> Iterator[tuple[MessagePart, DecodedChunk]]:
        """The message's parts, each with its decoded chunk; of a message that is on disk, fetched
        one after the other."""
        return self._parts()

    def batches_by_part(self) -> Iterator[list[pa.RecordBatch]]:
        """`batches`, one list a part: within a part, (position, row) orders rows across tables."""
        from ray_canal.views.table_events import change_batches, is_of_table

        for part, chunk in self._parts():
            found = change_batches(
                chunk,
                part.first,
                part.last,
                part.mask,
                part.tables,
                self._fields,
                self._context(part),
                irregular=self.head.irregular_dates,
            )
            if self.transform is None:
                yield list(found)
            else:
                steps = self.transform
                shown = (
                    steps.applied_to_table(batch) if is_of_table(batch) else steps.applied(batch)
                    for batch in found
                )
                yield [batch for batch in shown if batch.num_rows]

    def _context(self, part: MessagePart) -> LogContext:
        return LogContext(self.head.timeline, part.open)

    def _refuse_steps(self) -> None:
        if self.transform is not None:
            raise ConfigError(
                "this subscription has row steps (where, columns, mask, hash), and Canal's entries "
                "would show what they hide; read `batches`, or subscribe without them"
            )


def _table_changes(
    chunk: DecodedChunk,
    changes: list[SchemaChange],
    seen: list[TableEvent],
    transform: Transform | None,
) -> list[TableChange]:
    """Return what happens in a chunk to tables as a whole, as far as it may be seen, and other
    columns; those of one statement in its own order."""
    positions = chunk.events["position"]
    altered = {(change.position, change.schema, change.table): change for change in changes}
    events = [event for event in chunk.layout.table_events if event.effect.kind != STATEMENT]
    told = {_at(positions, event): event.effect.kind for event in events}
    visible = {(event.entry, event.number) for event in seen}
    hidden = {_at(positions, e) for e in events if (e.entry, e.number) not in visible}
    found = [
        _of_effect(chunk.layout.journal_name, int(positions[event.entry]), event.effect,
                   altered.get(_at(positions, event)), transform)
        for event in sorted(seen, key=lambda e: (int(positions[e.entry]), e.effect.ordinal))
        if event.effect.kind != STATEMENT
    ]  # fmt: skip
    for at, change in altered.items():  # a table that was replaced is gone, and made
        replaced = told.get(at) == ERASE and change.meta is not None
        if at not in hidden and (at not in told or replaced):
            found.append(_table_change(chunk.layout.journal_name, change, transform))
    return sorted(found, key=lambda change: change.position)


def _at(positions: Any, event: TableEvent) -> tuple[int, str, str]:
    return int(positions[event.entry]), event.effect.schema, event.effect.table


def _of_effect(
    journal_name: str,
    position: int,
    effect: TableEffect,
    change: SchemaChange | None,
    transform: Transform | None,
) -> TableChange:
    """`change`: what the table is after the statement, where it is followed."""
    if change is None or effect.kind == ERASE:
        meta = effect.meta if effect.kind == TRUNCATE else None
        change = SchemaChange(position, effect.schema, effect.table, meta)
    other = "" if effect.other is None else ".".join(effect.other)
    return replace(
        _table_change(journal_name, change, transform),
        kind=effect.kind,
        renamed_from=other if effect.kind == RENAME else "",
        renamed_to=other if effect.kind == ERASE else "",
    )


def _table_change(
    journal_name: str, change: SchemaChange, transform: Transform | None
) -> TableChange:
    from ray_canal.views.arrow import arrow_schema

    shape, problem = None, change.problem
    if change.meta is not None:
        try:
            shape = arrow_schema(change.meta)
            shape = shape if transform is None else transform.schema(shape)
        except UnsupportedEvent as error:
            problem = str(error)
    at = journal_name, change.position, change.schema, change.table
    return TableChange(
        *at, shape, problem, is_new=change.is_new, retyped=change.retyped,
        renamed=change.renamed, filled=change.filled, remade=change.remade,
        added=change.added,
    )  # fmt: skip
