"""A subscriber's changes of one table, as Spark's micro-batches ask for them.

Spark plans a micro-batch by two offsets, and may plan it again after a crash: so what is between
them is cut by the ids of rows, wherever messages end that time. A message is acked when all its
rows are in micro-batches that Spark has committed.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from ray_canal.client.log_end import LogEnd, Reach
from ray_canal.errors import CanalError, ConfigError, InstanceRestarted
from ray_canal.model.table_event import TRUNCATE
from ray_canal.spark.ahead import Ahead, MessageSource, Wanted
from ray_canal.spark.chunks import Carrier, write_chunks
from ray_canal.spark.frames import Statements, tables_batches
from ray_canal.spark.lacking import told
from ray_canal.spark.log_offset import (
    START,
    has_row,
    is_of_row,
    is_read,
    offset_place,
    offset_text,
    rows_between,
)
from ray_canal.spark.stream_schema import POLL_S, last_key, refuse_other_columns
from ray_canal.views.row_places import RowPlace, place_at, rows_above

_log = logging.getLogger(__name__)

_ARROW_PER_UNIT = 2 << 10
"""About so many bytes of Arrow are in a memory unit (1 KiB of binlog)."""
_SINCE_S = 0.05
"""So long a micro-batch of old messages waits for what the log has got since: it is there."""
_LARGE_BYTES = 1 << 20
_RESTARTS_S = 60.0
_AGAIN_S = 120.0
"""So long planned rows are waited for; they were there before."""


@dataclass(frozen=True, slots=True)
class Table:
    """The table that a query reads of a subscription: `name` is `schema.table`, `schema` what Spark
    reads, `key` the primary key that its frames carry (None: none is told)."""

    name: str
    schema: pa.Schema
    statements: Statements = "error"
    key: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Sizes:
    """`batch_size` of each get; `bytes_max`: Arrow bytes of a micro-batch, but always a message;
    `new_carrier`: of chunks that Spark can read; `cores` of the session."""

    new_carrier: Callable[[], Carrier]
    cores: int = 1
    batch_size: int = 16384
    bytes_max: int = 128 << 20

    @property
    def messages_ahead(self) -> int:
        """The next micro-batch, while Spark works on one: with fewer, it would be a small one."""
        return max(1, self.bytes_max // (self.batch_size * _ARROW_PER_UNIT))


@dataclass
class MessageRows:
    """The table's rows of one message."""

    message: Any
    batches: list[pa.RecordBatch]
    last: RowPlace = START
    transaction: str = ""
    is_read: bool = False
    size_bytes: int = 0
    places: list[str] = field(default_factory=list)
    release: Callable[[], None] = lambda: None
    more: list[Callable[[], None]] = field(default_factory=list)

    @property
    def mark(self) -> str:
        """Return the offset of its last row; empty: it has none."""
        is_empty = not self.batches
        return "" if is_empty else offset_text(self.last, self.transaction, is_read=self.is_read)

    def free(self) -> None:
        """Free what was written for Spark."""
        self.release()
        for each in self.more:
            each()


class MarkingSource(MessageSource, Protocol):
    """A connector whose acks keep a text with the cursor."""

    def ack(self, batch_id: int, mark: str = ...) -> None: ...


class LogStream:
    """One query's stream. Its calls are made one at a time, by Spark's query thread."""

    def __init__(
        self,
        connector: MarkingSource,
        table: Table,
        sizes: Sizes,
        reach: Callable[[], Reach | None] = lambda: None,
        mark: Callable[[], str] = lambda: "",
    ) -> None:
        """`reach`: how far the destination has read; `mark`: the offset up to which the subscriber
        has acked (`acked_offset`), empty if it is not known."""
        self._connector = connector
        self._mark = mark
        self._is_compared = False
        self._has_key = False
        """Rows came that have the key with which the query was begun."""
        self._table = table
        self._sizes = sizes
        self._reach = reach
        self._pieces: deque[MessageRows] = deque()
        self._end: LogEnd | None = None
        self._finished = False
        self._is_over = False
        """All of a query of what is available was fetched."""
        self._is_closed = False
        self._lock = threading.Lock()
        self._ahead = self._begun()

    def initial(self) -> str:
        """The offset before everything that this subscriber gets."""
        return offset_text(START)

    def only_available(self) -> None:
        """Read no more than what is in the log now, and the rest of the message that reaches its
        end."""
        self._end = LogEnd(self._reach)

    def latest(self, start: str) -> str:
        """Ack what is up to `start`, which Spark has committed; fetch what has come since, about
        `bytes_max` bytes at most. Return the offset behind it: `start` if nothing came. Raises
        CanalError: nothing could be fetched; after some rows the error comes with the next call."""
        with self._lock:
            begin = offset_place(start)
            self._refuse_older(begin)
            self._ack(begin)
            found, size_bytes = start, 0
            try:
                for piece in self._news(begin):
                    if found != start and size_bytes + piece.size_bytes > self._sizes.bytes_max:
                        break
                    size_bytes += piece.size_bytes
                    found = piece.mark
            except CanalError:
                if found == start:
                    raise
                # What is before the error is a micro-batch; the error comes again with the next.
            return found

    def plan(self, start: str, end: str) -> list[str]:
        """Places of the rows behind `start`, up to and with `end`."""
        with self._lock:
            begin, last = offset_place(start), offset_place(end)
            if last.key <= begin.key:  # the first micro-batch of a query that has no changes yet
                return []
            self._refuse_older(begin)
            if not _is_given(self._fetch_up_to(last), end):
                raise self._is_gone(last)
            places: list[str] = []
            for piece in self._pieces:
                places += self._places(piece, begin, last)
            return places

    def commit(self, end: str) -> None:
        """Rows up to `end` are in Spark's commit log."""
        with self._lock:
            self._ack(offset_place(end))

    def close(self) -> None:
        """Stop fetching; what was not acked comes again to the next stream. A call that waits for
        changes ends."""
        self._is_closed = True
        with self._lock:
            self._ahead.close()
            self._free_all()

    def _begun(self) -> Ahead[_Held]:
        sizes = self._sizes
        wanted = Wanted(sizes.batch_size, POLL_S, ahead=sizes.messages_ahead)
        return Ahead(self._connector, wanted, self._written, _Held.is_large)

    def _begin_again(self, error: CanalError) -> None:
        """Drop what was read and read again from the cursor, as the destination has restarted."""
        _log.warning("%s: rows come again: %s", self._table.name, error)
        self._ahead.close()
        self._free_all()
        self._finished = self._is_over = self._has_key = False
        with contextlib.suppress(CanalError):
            self._connector.rollback()
        self._ahead = self._begun()

    def _free_all(self) -> None:
        while self._pieces:
            self._pieces.popleft().free()

    def _ack(self, place: RowPlace) -> None:
        """Ack messages, in order, that have no rows behind `place`."""
        while self._pieces and self._pieces[0].last.key <= place.key:
            piece = self._pieces.popleft()
            piece.free()
            try:
                self._connector.ack(piece.message.id, piece.mark)
            except InstanceRestarted as error:
                self._begin_again(error)

    def _refuse_older(self, begin: RowPlace) -> None:
        """Raises CanalError: rows behind `begin`, where the checkpoint ends, were acked, so they
        would be in no micro-batch. Without a checkpoint, a query goes on where its subscriber is.
        """
        if self._is_compared:
            return
        if begin.key != START.key and (mark := self._acked_mark()):
            acked = offset_place(mark)
            if acked.key > begin.key and (is_of_row(acked) or acked.timeline == begin.timeline):
                raise self._is_behind(begin, acked)
        self._is_compared = True

    def _is_behind(self, begin: RowPlace, acked: RowPlace) -> CanalError:
        at = f"{acked.journal_name}:{acked.position}"
        why = (
            f"has acknowledged rows up to {acked}, which the query would miss: the checkpoint is "
            "an older copy, or another query has read with its client_id"
            if is_of_row(acked)
            else f"goes on at {at}, so the query would miss the rows between: the subscriber was "
            "removed and made again, or moved forward"
        )
        return CanalError(
            f"{self._table.name}: the checkpoint ends at {begin}, and this subscriber {why}. Move "
            "the subscriber back (ray-canal subscriber DESTINATION CLIENT_ID seek "
            f"{begin.journal_name}:{begin.position}), or give a new checkpoint location"
        )

    def _acked_mark(self) -> str:
        """The subscriber's offset; a destination that restarts is waited for. Raises CanalError."""
        deadline = time.monotonic() + _RESTARTS_S
        while True:
            try:
                return self._mark()
            except CanalError as error:
                if self._is_closed or time.monotonic() > deadline:
                    raise
                _log.info("%s: where its subscriber is: %s", self._table.name, error)
            time.sleep(POLL_S)

    def _news(self, begin: RowPlace) -> Iterator[MessageRows]:
        """Pieces with rows behind `begin`: those that are here, then those that come at once, and
        what has come since they were fetched."""
        here = [piece for piece in self._pieces if piece.last.key > begin.key]
        is_old = bool(here) or self._ahead.is_ready
        yield from here
        waits = not here
        while not self._finished and not self._is_over:
            piece = self._fetch(POLL_S if waits else 0.0)
            if piece is None and is_old and not waits and self._ahead.rests:
                is_old = False
                piece = self._fetch(_SINCE_S)
            if piece is None:
                if not waits or self._end is None:
                    return
            elif piece.last.key > begin.key:
                waits = False
                yield piece
            else:
                self._ack(begin)  # a message without rows behind it, if nothing is before it

    def _fetch(self, timeout: float) -> MessageRows | None:
        """The next message, as the last piece; None: there is none now."""
        if self._is_closed:
            raise CanalError(f"{self._table.name}: the query was stopped")
        try:
            found = self._ahead.next(timeout)
        except InstanceRestarted as error:
            self._begin_again(error)
            return None
        if found is None:
            return None
        message, held = found
        if held is None:
            self._finished = self._finished or bool(getattr(message, "finished", False))
            self._is_over = self._is_over or (self._end is not None and self._end.is_empty())
            return None
        piece = held.piece
        if self._end is not None and piece.batches and self._end.is_reached(piece.last):
            self._is_over = True
        self._pieces.append(piece)
        return piece

    def _fetch_up_to(self, last: RowPlace) -> MessageRows:
        """The first piece that ends at `last` or behind it. Planned rows come again after a
        restart; wait for them."""
        deadline = time.monotonic() + _AGAIN_S
        while True:
            for piece in self._pieces:
                if piece.last.key >= last.key:
                    return piece
            if self._finished or time.monotonic() > deadline:
                raise self._is_gone(last)
            self._fetch(POLL_S)

    def _is_gone(self, last: RowPlace) -> CanalError:
        return CanalError(
            f"{self._table.name}: the checkpoint has planned rows up to {last}, and the log does "
            "not give them to this subscriber any more: another reader has acked them, or the "
            "source is another server; begin with a new checkpoint location"
        )

    def _places(self, piece: MessageRows, begin: RowPlace, last: RowPlace) -> list[str]:
        if not piece.batches:
            return []
        first = place_at(piece.batches[0], 0)
        if first.key > begin.key and piece.last.key <= last.key:
            return piece.places
        cut = [rows_between(batch, begin, last) for batch in piece.batches]
        cut = [batch for batch in cut if batch.num_rows]
        if not cut:
            return []
        carrier = self._sizes.new_carrier()
        piece.more.append(carrier.release)
        return write_chunks(cut, self._table.schema, carrier, self._sizes.cores)

    def _written(self, message: Any) -> _Held:
        """Write a message's rows for Spark to read, in the thread that is ahead."""
        batches = self._batches(message)
        if not batches:
            return _Held(MessageRows(message, []))
        carrier = self._sizes.new_carrier()
        try:
            places = write_chunks(batches, self._table.schema, carrier, self._sizes.cores)
        except BaseException:
            carrier.release()
            raise
        return _Held(
            MessageRows(
                message,
                batches,
                place_at(batches[-1], -1),
                _transaction_of(batches[-1]),
                batches[-1].column("event_type")[-1].as_py() == "READ",
                sum(batch.nbytes for batch in batches),
                places,
                carrier.release,
            )
        )

    def _batches(self, message: Any) -> list[pa.RecordBatch]:
        table = self._table
        found = tables_batches(message.batches, frozenset({table.name}), table.statements)
        batches: list[pa.RecordBatch] = found.get(table.name, [])
        for batch in batches:
            refuse_other_columns(batch, table.name, table.schema)
        self._refuse_other_key(batches)
        return [told(batch, table.schema) for batch in batches]

    def _refuse_other_key(self, batches: list[pa.RecordBatch]) -> None:
        """Raises ConfigError: the table has got another key than its frames carry. The one that
        they carry may come later in the log: it is that of the last rows which load() saw."""
        key = last_key(batches)
        if key is None or self._table.key in (None, key):
            self._has_key = self._has_key or key is not None
        elif self._has_key:
            raise ConfigError(
                f"at {place_at(batches[0], 0)} or behind it {self._table.name} has the primary key "
                f"{key}, the query was begun with {self._table.key}; start it again, with the same "
                "checkpoint: load() then takes the new one"
            )


def _is_given(piece: MessageRows, end: str) -> bool:
    """Return whether a planned micro-batch's last row is in the piece that reaches its place; or
    comes under another id: of another timeline, of a snapshot, or of one that begins again."""
    last = offset_place(end)
    if is_read(end) or piece.last.timeline != last.timeline:
        return True
    if any(has_row(batch, last) for batch in piece.batches):
        return True
    behind = next(b.slice(b.num_rows - n) for b in piece.batches if (n := rows_above(b, last)))
    return behind.column("event_type")[0].as_py() in ("READ", TRUNCATE)


@dataclass
class _Held:
    piece: MessageRows

    def is_large(self) -> bool:
        """Return whether the next one is worth fetching while Spark works on this one."""
        return self.piece.size_bytes >= _LARGE_BYTES

    def release(self) -> None:
        self.piece.free()


def _transaction_of(batch: pa.RecordBatch) -> str:
    at = batch.schema.get_field_index("transaction")
    return "" if at < 0 else str(batch.column(at)[-1].as_py() or "")
