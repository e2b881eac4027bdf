"""Port of a sink's target: what it has to do, and what it is given.

A sink is a subscriber that the runner (runner.py) runs: it opens the target, takes the place up to
which the target has everything, and hands it changes in log order, piece after piece, each followed
by a commit. A target that keeps that place in the transaction of its rows gets each row once.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import groupby, pairwise
from typing import Literal, Protocol

import numpy as np
import pyarrow as pa

from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.client.message import Message, TableChange
from ray_canal.errors import CanalError, os_error_text
from ray_canal.model.message import MessagePart
from ray_canal.model.position import EntryPosition, journal_key
from ray_canal.model.table_event import STATEMENT, TRUNCATE
from ray_canal.model.table_meta import TableMeta
from ray_canal.sinks.in_doubt import InDoubt, XaEnd, in_order, moved
from ray_canal.sinks.rows import Rows, table_of, within
from ray_canal.views.row_places import RowPlace, place_at
from ray_canal.views.table_events import is_of_table

Guarantee = Literal["exactly_once", "at_least_once"]
Kind = Literal["retry", "wait", "expired", "fenced", "poison", "schema", "fatal"]
_WRONG_PATH = (PermissionError, FileExistsError, NotADirectoryError, IsADirectoryError)
READ_AGAIN = "start the sink again, and let `ray-canal snapshot start` bring the table's rows"
Transform = Callable[[pa.RecordBatch], pa.RecordBatch | None]


class SinkError(CanalError):
    """A target has refused something.

    `kind` says what the runner does. "retry": open the target again after a pause. "wait", of
    `commit` alone: call it again, the target takes what was written later. "poison": find the entry
    that the target cannot take. "fenced": another runner has the target. "expired": another runner
    has it, or the target has ended a transaction that was open too long; open it again if the
    subscription is still this runner's. "schema": the target's tables do not fit, and the policy
    does not change them. "fatal": a person is needed. "fenced", "schema" and "fatal" end the
    runner, unless a "schema" error names its `source_table`, (schema, table), and there is a file
    of dead letters: then that table alone is set aside.
    """

    def __init__(self, message: str = "", kind: Kind = "fatal") -> None:
        super().__init__(message)
        self.kind = kind
        self.retryable = kind in ("retry", "wait")
        self.source_table: tuple[str, str] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (*self.args, self.kind), self.__dict__)


def disk_error(path: object, error: OSError) -> SinkError:
    """Return what to raise for a file of a target that cannot be opened: "fatal" if its path is
    wrong or barred, else "retry": a disk may get room, or be written again, and files be closed."""
    return SinkError(
        f"cannot write {path}: {os_error_text(error)}",
        "fatal" if isinstance(error, _WRONG_PATH) else "retry",
    )


@contextlib.contextmanager
def naming(schema: str, table: str) -> Iterator[None]:
    """Name the source's table in a "schema" error of the block."""
    try:
        yield
    except SinkError as error:
        if error.kind == "schema" and table and error.source_table is None:
            error.source_table = schema, table
        raise


@contextlib.contextmanager
def advising(advice: str) -> Iterator[None]:
    """Say in a "schema" error of the block what to do."""
    try:
        yield
    except SinkError as error:
        if error.kind != "schema":
            raise
        raise SinkError(f"{error}; {advice}", error.kind) from None


@dataclass(frozen=True, kw_only=True, slots=True)
class Cursor:
    """The last entry that a target has taken.

    `inner` is the entry's offset in a compressed event, `ordinal` its number among the entries of
    one event. (timeline, number of the file, position, inner, ordinal) compares as delivery order.
    `created_s` is of the file, as EntryPosition has it; 0: not known.
    """

    timeline: int
    journal_name: str
    position: int
    inner: int = 0
    ordinal: int = 0
    created_s: int = field(default=0, compare=False)

    def is_before(self, other: Cursor) -> bool:
        """Return whether the log has this place first."""
        return self.order < other.order

    @property
    def order(self) -> tuple[int, ...]:
        """Numbers that compare as the log has places."""
        number = journal_key(self.journal_name)[1]
        return self.timeline, number, self.position, self.inner, self.ordinal

    @property
    def log_position(self) -> EntryPosition:
        """Return where a new subscriber begins, as the one that came so far is gone: the log may
        begin behind it by now."""
        return EntryPosition(self.journal_name, self.position, created_s=self.created_s)

    def to_json(self) -> str:
        """Return it as text."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Cursor:
        """Raises SinkError: the text is not a cursor."""
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError) as error:
            raise SinkError(f"the target's cursor cannot be read ({error}): {text!r}") from None

    def __str__(self) -> str:
        return f"{self.journal_name}:{self.position}"


def source_named(source: str, destination: str, own: str) -> str:
    """Return the name of a source's table whose rows a target's table has: with its destination,
    if that is another one than the sink's own. "": not known."""
    is_own = not own or destination in ("", own)
    return source if is_own or not source else f"{source} (destination {destination})"


def refuse_later_timeline(timeline: int, place: Cursor | RowPlace | None) -> None:
    """Raise SinkError if a target has a place of a later timeline than what comes: timelines of a
    destination rise, so another deployment has written it."""
    if place is not None and timeline and place.timeline > timeline:
        raise SinkError(
            f"the target is at {place} of timeline {place.timeline}, and this destination's log is"
            f" of timeline {timeline}, which began before: another deployment has a sink of this "
            "name and destination, and writes to the same target. Give one of them another name, "
            "or another target (of a mirror: another mirror.cursor_database, too)"
        )


class PreparedRows(Protocol):
    """Port of what a target keeps: rows of transactions that are prepared, by their XA ids. What is
    kept or ended (`end`) counts from the target's next commit on. `xa_ids`: what it has by now.

    `moves_all`: the target tells by the ids of rows what it has, so those of every XA transaction
    get ids of its end, also if it ends where it is prepared: such a message may come again in two.
    Else those are written where they are, and what is before an end is committed before it.
    """

    moves_all: bool

    @property
    def place(self) -> Cursor | None:
        """Return the place up to which all was kept, or has ended; None: not known."""
        ...

    @property
    def xa_ids(self) -> Sequence[str]: ...
    def has(self, xa_id: str) -> bool: ...
    def keep(self, xa_id: str, transaction: str, rows: Rows, place: RowPlace) -> None:
        """Keep rows of a transaction, the first of which is at a place; other ones of this XA id
        are of a transaction that has ended."""
        ...

    def rows(self, xa_id: str, before: RowPlace, transaction: str = "") -> Sequence[Rows]:
        """Return what is kept of rows before a place, in log order; "": of the transaction that has
        had the id longest. Raises SinkError."""
        ...

    def end(self, xa_id: str) -> None: ...


@dataclass(frozen=True)
class Changed:
    """A DDL gave a table other columns, another name, or took its rows. `meta`: as it is now.
    `end`: the position behind the statement; `time_s`: the Unix time of its execution."""

    change: TableChange
    meta: TableMeta | None
    end: int = 0
    time_s: int = 0


@dataclass(frozen=True)
class Changes:
    """A run of entries of one decoded chunk, in log order.

    `steps` shows them as Arrow batches and DDL; a target that renders bytes itself reads the
    entries [part.first, part.last) of `chunk`. `in_doubt`: the transactions of the message that
    have not just been committed; None: every row is shown where it is in the log. `kept`: what the
    target keeps of them.
    """

    message: Message
    part: MessagePart
    chunk: DecodedChunk
    transform: Transform | None = None
    aside: frozenset[tuple[str, str]] = frozenset()
    in_doubt: InDoubt | None = None
    kept: PreparedRows | None = None

    def __len__(self) -> int:
        return max(self.part.last - self.part.first, 0)

    @property
    def row_count(self) -> int:
        """Rows of the entries that the subscriber's filter admits."""
        chosen = np.arange(self.part.first, self.part.last)
        if self.part.mask is not None:
            chosen = chosen[self.part.mask[self.part.first : self.part.last]]
        return int(self.chunk.events["rows"][chosen].sum())

    def between(self, first: int, last: int) -> Changes:
        """Return the entries [first, last) of these."""
        return replace(self, part=replace(self.part, first=first, last=last))

    def after(self, cursor: Cursor | None) -> Changes:
        """Return the entries behind a cursor; they may be none."""
        if cursor is None or cursor.timeline != self.message.timeline:
            return self  # ids rise with the timeline: all of a new one is behind the cursor
        here, there = journal_key(self.chunk.layout.journal_name), journal_key(cursor.journal_name)
        if here != there:
            return self if here > there else self.between(self.part.last, self.part.last)
        events = self.chunk.events
        low, high = np.searchsorted(events["position"], [cursor.position, cursor.position + 1])
        inside = events["inner"][low:high]
        at = int(low + np.searchsorted(inside, cursor.inner))
        end = int(low + np.searchsorted(inside, cursor.inner, "right"))
        first = min(at + cursor.ordinal + 1, end)
        return self.between(min(max(first, self.part.first), self.part.last), self.part.last)

    @property
    def cursor(self) -> Cursor:
        """The place of the last entry."""
        events, last = self.chunk.events, self.part.last - 1
        position, inner = int(events["position"][last]), int(events["inner"][last])
        alike = (events["position"][:last] == position) & (events["inner"][:last] == inner)
        name, ack = self.chunk.layout.journal_name, self.message.head.ack
        return Cursor(
            timeline=self.message.timeline,
            journal_name=name,
            position=position,
            inner=inner,
            ordinal=int(alike.sum()),
            created_s=ack.created_s if ack is not None and ack.journal_name == name else 0,
        )

    @cached_property
    def _view(self) -> Message:
        head = replace(self.message.head, parts=(self.part,), untracked=False)
        return Message(head, lambda _: [self.chunk], transform=self.message.transform)

    @property
    def batches(self) -> list[pa.RecordBatch]:
        """Batches of rows as `Message.batches` has them, transformed; and those of statements of
        which the log has the text alone. (What else happens to whole tables is in
        `schema_changes`.)"""
        return [rows.batch for rows in self._written]

    @property
    def batches_aside(self) -> list[pa.RecordBatch]:
        """Batches of the tables that are set aside."""
        return [rows.batch for rows in self._rows if table_of(rows.batch) in self.aside]

    @property
    def _written(self) -> list[Rows]:
        return [rows for rows in self._rows if table_of(rows.batch) not in self.aside]

    @cached_property
    def _rows(self) -> list[Rows]:
        """Rows that are to be written now; first those that an XA COMMIT lets count."""
        found = self._released
        for batch in self._view.batches:
            if is_of_table(batch):
                if batch["event_type"][0].as_py() == STATEMENT:
                    found.append(Rows(batch, self._metas.get(table_of(batch))))
                continue
            counted = batch if self.in_doubt is None else self.in_doubt.counted(batch, self._due)
            found.extend(self._transformed(counted))
        return in_order(found) if self._due else found

    @cached_property
    def _metas(self) -> dict[tuple[str, str], TableMeta]:
        return {(t.meta.schema, t.meta.table): t.meta for t in self.chunk.layout.tables}

    def _transformed(self, batch: pa.RecordBatch) -> Iterator[Rows]:
        if not batch.num_rows:
            return
        shown = batch if self.transform is None else self.transform(batch)
        if shown is not None and shown.num_rows:
            notes = {**(batch.schema.metadata or {}), **(shown.schema.metadata or {})}
            shown = shown.replace_schema_metadata(notes)
            yield Rows(shown, self._metas.get(table_of(shown)))

    # --- transactions in doubt -------------------------------------------------------------------

    @cached_property
    def _ends(self) -> list[XaEnd]:
        return [] if self.in_doubt is None else self.in_doubt.ends_in(self.part, self.chunk)

    @property
    def ends_prepared(self) -> bool:
        """Return whether the first entry ends an XA transaction whose rows are kept."""
        first = int(self.chunk.events["position"][self.part.first])
        return any(end.position == first for end in self._ends)

    @property
    def begins_commit(self) -> bool:
        """Return whether what comes before is to be committed first."""
        return self.begins_with_ddl or (self.ends_prepared and not self._moves_all)

    @property
    def _moves_all(self) -> bool:
        return self.kept is not None and self.kept.moves_all

    @cached_property
    def _due(self) -> list[XaEnd]:
        """The ends that the target has not come to yet."""
        return self.after(self.kept.place)._ends if self.kept is not None and self._ends else []

    @property
    def _released(self) -> list[Rows]:
        """Rows that were kept before and that an XA COMMIT lets count."""
        found, name = list[Rows](), self.chunk.layout.journal_name
        for end in self._due:
            if self.kept is not None and end.is_committed:
                place = RowPlace(self.message.timeline, journal_key(name)[1], end.position, 0, name)
                found += moved(self.kept.rows(end.xa_id, place, end.transaction), place)
        return found

    def keep_prepared(self) -> None:
        """Have the target keep rows of XA transactions that are prepared here, and drop those
        that end here. Raises SinkError."""
        if self.in_doubt is None or self.kept is None:
            return
        new = self.after(self.kept.place)
        if not len(new):
            return
        for end in new._ends:
            self.kept.end(end.xa_id)
        names = self.in_doubt.prepared.keys() - {end.transaction for end in new._ends}
        for batch in new._view.batches if names else ():
            if not is_of_table(batch):
                for name, waiting in self.in_doubt.rows_of_prepared(batch, names):
                    xa_id, place = self.in_doubt.prepared[name], place_at(waiting, 0)
                    for rows in self._transformed(waiting):
                        self.kept.keep(xa_id, name, rows, place)

    @property
    def begins_with_ddl(self) -> bool:
        """Return whether the first entry changes a table as a whole, or its columns."""
        first = int(self.chunk.events["position"][self.part.first])
        return any(change.position == first for change in self.schema_changes)

    def pieces(self) -> list[Changes]:
        """Return the same entries in pieces: each DDL that changes a table, and each end of an XA
        transaction before which is to be committed, is at the start of one; the target has kept
        what is to be kept of a whole piece, or of none of it."""
        places = {change.position for change in self.schema_changes}
        first, last = self.part.first, self.part.last
        cuts = {first}
        if self._moves_all and self.kept is not None:
            cuts.add(last - len(self.after(self.kept.place)))
        else:
            places |= {end.position for end in self._ends}
        positions = self.chunk.events["position"][first:last]
        cuts |= {first + int(np.searchsorted(positions, at)) for at in places}
        return [self.between(low, high) for low, high in pairwise(sorted({*cuts, last}))]

    @property
    def schema_changes(self) -> list[TableChange]:
        """Return DDL between the rows, in order; none of tables that are set aside."""
        found = self._view.schema_changes
        return [change for change in found if (change.schema, change.table) not in self.aside]

    def statements(self) -> Iterator[Rows | list[Changed]]:
        """Yield the same as `steps`, what one statement changes together."""
        for is_ddl, run in groupby(self.steps(), lambda step: isinstance(step, Changed)):
            steps = list(run)
            if not is_ddl:
                yield from (step for step in steps if isinstance(step, Rows))
                continue
            changes = [step for step in steps if isinstance(step, Changed)]
            for _, statement in groupby(changes, lambda step: step.change.position):
                yield list(statement)

    def steps(self) -> Iterator[Rows | Changed]:
        """Yield rows and DDL as they follow each other in the log."""
        layout, positions = self.chunk.layout, self.chunk.events["position"]
        news = {(c.position, c.schema, c.table): c.meta for c in layout.changes}
        if layout.props:  # a snapshot's TRUNCATE tells the columns that its rows will have
            for entry, _, effect in layout.table_events:
                if effect.kind == TRUNCATE:
                    news[int(positions[entry]), effect.schema, effect.table] = effect.meta
        batches = self._written
        low = -1
        for change in self.schema_changes:
            yield from within(batches, low, change.position)
            meta = news.get((change.position, change.schema, change.table))
            at = int(np.searchsorted(positions, change.position))
            event = self.chunk.events[at]
            end = change.position + int(event["length"])
            yield Changed(change, meta, end, int(event["timestamp"]))
            low = change.position
        yield from within(batches, low, None)


class Sink(Protocol):
    """A target. All calls come from one thread, in the order open, (write… commit)…, close; after
    an error comes `abort` or `close`."""

    guarantee: Guarantee

    def open(self) -> Cursor | None:
        """Connect, shut out whoever wrote here before, and return the place up to which the target
        has everything; None if the target keeps no place, or has nothing yet. May be called again
        after `close`. Raises SinkError."""

    def write(self, changes: Changes) -> None:
        """Take changes; they need not be durable yet. Raises SinkError."""

    def commit(self, upto: Cursor) -> None:
        """Make everything written durable, with `upto` where the target keeps its place. Raises
        SinkError: nothing of it counts, or it cannot be told whether it does."""

    def abort(self) -> None:
        """Forget what was written and not committed."""

    def close(self) -> None:
        """Disconnect. What was not committed is forgotten."""
