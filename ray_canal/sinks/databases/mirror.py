"""A database that follows the source: rows by primary key, tables by policy, the place in the same
transaction.

What databases differ in is a `Database` (port.py); a `Sender` (sender.py) is one connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ray_canal.config import MirrorConfig
from ray_canal.config.sink import MirrorOrder
from ray_canal.sinks.databases.checks import check_mirror
from ray_canal.sinks.databases.mirror_prepared import MirrorPrepared
from ray_canal.sinks.databases.port import OTHERS, Database
from ray_canal.sinks.databases.renames import DatabaseFollower
from ray_canal.sinks.databases.sender import Sender, TableWrite
from ray_canal.sinks.key_shares import shared_out
from ray_canal.sinks.net_change import as_in_target, image, net_change, of_one_schema, plain
from ray_canal.sinks.port import Changes, Cursor, Guarantee, SinkError, naming
from ray_canal.sinks.rows import Rows
from ray_canal.sinks.schema_follower import TableName
from ray_canal.sinks.target_checks import SourceTable
from ray_canal.source.setting_checks import CheckResult


@dataclass
class _Run:
    """Rows of one table version that are to be written; `columns` by their names in the target."""

    source: tuple[str, str]
    name: TableName
    key: list[str]
    columns: dict[str, str]
    schema: pa.Schema
    batches: list[pa.RecordBatch]

    def write(self) -> TableWrite:
        """Return what they come to. Of a table without a key, rows that come are added, then those
        that go are found by their values. A row that did both is there for a moment, and equal rows
        are the same. Raises SinkError."""
        if self.key:
            net = net_change(self.batches, self.key, self.columns)
            deletes, upserts = net.deletes, net.upserts
        else:
            table = of_one_schema(self.batches)
            kinds = plain(table["event_type"])
            came, gone = pc.not_equal(kinds, "DELETE"), pc.not_equal(kinds, "INSERT")
            upserts = image(table.filter(came), "after", self.columns)
            deletes = image(table.filter(gone), "before", self.columns)
        return TableWrite(
            source=self.source,
            name=self.name,
            key=[self.columns.get(each, each) for each in self.key],
            deletes=as_in_target(deletes, self.columns),
            upserts=as_in_target(upserts, self.columns),
        )


class Mirror:
    """A sink into a database: exactly once. Its first sender also changes tables.

    Several senders commit each for itself, so that readers see what some have written and others
    not yet; between two calls of `commit`, and at each DDL, all have come to the same place. What a
    run before this one left is finished with its senders, and their order, before others begin.
    """

    guarantee: Guarantee = "exactly_once"

    def __init__(
        self,
        sink: str,
        destination: str,
        config: MirrorConfig,
        make_database: Callable[[], Database],
    ) -> None:
        self._sink = sink
        self._destination = destination
        self._config = config
        self._make_database = make_database
        self._database = make_database()
        self._first = Sender(sink, destination, self._database)
        self._senders = [self._first]
        self._order = config.order
        self.prepared = MirrorPrepared(sink, self._first, config.cursor_database)
        begin = self._first.begin_ddl
        self._follower = DatabaseFollower(config, self._database, begin, sink, destination)
        self._runs: dict[tuple[Sender, ...], list[_Run]] = {}  # by who writes them
        self._splits: dict[TableName, bool] = {}
        self._pool: ThreadPoolExecutor | None = None

    def open(self) -> Cursor | None:
        self._forget()
        self._first.open()
        self._arrange()
        self.prepared.open()
        return self._reached

    @property
    def _reached(self) -> Cursor | None:
        """The place up to which every sender has everything."""
        places = [sender.place for sender in self._senders]
        return min((p for p in places if p), key=lambda p: p.order) if all(places) else None

    def close(self) -> None:
        self._forget()
        for sender in self._senders:
            sender.close()
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def check(self, tables: Sequence[SourceTable]) -> Iterator[CheckResult]:
        """Look at the target. Raises SinkError."""
        named = {self._follower.name(each.schema, each.table): each for each in tables}
        who = self._sink, self._destination
        return check_mirror(self._config, self._make_database(), named, *who)

    def forget_place(self) -> None:
        """Forget the place in the log up to which the target is written, so that all that comes
        next is written; fence whoever writes now."""
        try:
            self.open()
            for sender in self._senders:
                sender.commit((), None)
        finally:
            self.close()

    def abort(self) -> None:
        self._forget()
        for sender in self._senders:
            sender.abort()

    def _forget(self) -> None:
        self._runs.clear()
        self._splits.clear()
        self.prepared.abort()
        self._follower.forget()
        for sender in self._senders:
            sender.forget()

    # --- senders ---------------------------------------------------------------------------------

    def _arrange(self) -> None:
        """Have the senders that are configured; those of the run before, as long as they have not
        come to the same place."""
        first, wanted = self._first, self._config.senders
        if wanted == 1 and not self._database.other_places(self._sink):
            self._have("transaction", ())
            return
        first.begin()
        left = self._database.other_places(self._sink)
        names = [_row_of(self._sink, self._config.order, wanted, n) for n in range(1, wanted)]
        order = self._config.order
        if set(left) != set(names):
            at = first.text(first.place)
            if set(left.values()) <= {at}:
                self._database.replace_others(self._sink, names, at)
            else:
                names = sorted(left, key=lambda row: int(row.rpartition("/")[2]))
                order = _order_of(names[0])
        self._database.commit(self._sink, first.text(first.place))
        first.is_begun = False
        self._have(order, names)

    def _have(self, order: MirrorOrder, names: Sequence[str]) -> None:
        for sender in self._senders[1:]:
            sender.close()
        if self._pool is not None:
            self._pool.shutdown()
        self._order = order
        others = [Sender(row, self._destination, self._make_database()) for row in names]
        self._senders = [self._first, *others]
        for sender in self._senders[1:]:
            sender.open()
        self._pool = ThreadPoolExecutor(len(self._senders)) if names else None
        self.prepared.keeps_all = bool(names)

    # --- changes ---------------------------------------------------------------------------------

    def write(self, changes: Changes) -> None:
        place, timeline = self._first.place, changes.message.timeline
        if place is None or place.timeline != timeline:
            begin = changes.part.first
            first = changes.between(begin, begin + 1).cursor
            self._follower.move_to(first, int(changes.chunk.events["timestamp"][begin]))
        if self._pool is None:
            self._stage_all(changes, (self._first,))
            return
        self._release(changes)
        ahead, late = self._late()
        if ahead is not None and late:
            rest = changes.after(ahead)
            missed = changes.between(changes.part.first, changes.part.last - len(rest))
            for sender in late:
                mine = missed.after(sender.place)
                if len(mine):
                    self._stage_all(mine, (sender,))
            if not len(rest):
                return
            missed.keep_prepared()
            self._commit_late(late, ahead)
            changes = rest
        self._stage_all(changes, tuple(self._senders))

    def _release(self, changes: Changes) -> None:
        """Let the first sender write what an XA COMMIT lets count, and remove it from what is kept,
        before others come there; unless one has come there already."""
        first, (ahead, _) = changes.part.first, self._late()
        entry = changes.between(first, first + 1)
        if not entry.ends_prepared or (ahead is not None and not ahead.is_before(entry.cursor)):
            return
        alone = (self._first,)
        self._stage_all(entry, alone)
        entry.keep_prepared()
        writes = []
        for run in self._runs.pop(alone, ()):
            with naming(*run.source):
                writes.append(run.write())
        self._first.commit([*writes, *self.prepared.write()], entry.cursor)
        self.prepared.committed()

    def _late(self) -> tuple[Cursor | None, list[Sender]]:
        """Return the place of the sender that has come farthest, and those that are behind it."""
        places = [sender.place for sender in self._senders if sender.place is not None]
        ahead = max(places, key=lambda place: place.order, default=None)
        if ahead is None:
            return None, []
        late = [s for s in self._senders if s.place is None or s.place.is_before(ahead)]
        return ahead, late

    def _commit_late(self, late: Sequence[Sender], upto: Cursor) -> None:
        """Let senders that others have left behind come to a place that the others have, one after
        the other.

        It is not known whether a table was split then: it may have got or lost a unique key since.
        So each writes what would be its own either way; what another one has written is the
        same."""
        for sender in late:
            writes = []
            for run in self._runs.pop((sender,), ()):
                with naming(*run.source):
                    write = run.write()
                    if self._owner(write.name) is sender:
                        writes.append(write)
                    elif self._order == "key" and write.key:
                        writes.append(self._by_key(write)[self._senders.index(sender)])
            if sender is self._first:
                writes += self.prepared.write()
            if sender.place is None or sender.place.is_before(upto):
                sender.commit([write for write in writes if len(write)], upto)
                if sender is self._first:
                    self.prepared.committed()

    def _stage_all(self, changes: Changes, senders: tuple[Sender, ...]) -> None:
        """Stage what these senders have not written yet."""
        for step in changes.statements():
            if not isinstance(step, list):
                with naming(step.schema, step.table):
                    self._stage(step, senders)
            elif self._first in senders:
                with naming(step[0].change.schema, step[0].change.table):
                    self._follower.follow(step, changes.message.timeline)
                self._settle(_behind(changes, step[0].change.position))

    def _settle(self, place: Cursor | None) -> None:
        """Let other senders see what the first one has done to tables: `place` is behind it."""
        if self._pool is None:
            return
        self._splits.clear()
        self._first.commit((), place)
        for sender in self._senders[1:]:
            sender.abort()

    def commit(self, upto: Cursor) -> None:
        """Raises SinkError; of several the one that says most about what counts."""
        ahead, late = self._late() if self._pool is not None else (None, [])
        if ahead is not None and late:
            self._commit_late(late, min(upto, ahead, key=lambda place: place.order))
            if upto.is_before(ahead):
                return
        staged, self._runs = self._runs, {}
        shares: dict[Sender, list[TableWrite]] = {sender: [] for sender in self._senders}
        for run in (run for runs in staged.values() for run in runs):
            with naming(*run.source):
                write = run.write()
                for sender, mine in zip(self._senders, self._shared_out(write), strict=True):
                    if len(mine):
                        shares[sender].append(mine)
        shares[self._first] += (kept := self.prepared.write())
        if self._pool is None or kept:  # no other one may come behind rows that are not kept yet
            self._first.commit(shares[self._first], upto)
            self.prepared.committed()
        if self._pool is None:
            return
        behind = [s for s in self._senders if s.place is None or s.place.is_before(upto)]
        done = [self._pool.submit(sender.commit, shares[sender], upto) for sender in behind]
        errors = [error for each in done if (error := each.exception()) is not None]
        if errors:
            raise min(errors, key=_weight)
        self._rearrange()

    def _rearrange(self) -> None:
        if self._order != self._config.order or len(self._senders) != self._config.senders:
            self._arrange()

    def _shared_out(self, write: TableWrite) -> list[TableWrite]:
        """Return what each sender has to write of it."""
        if self._pool is None:
            return [write]
        if self._is_split(write):
            return self._by_key(write)
        none = replace(write, deletes=write.deletes.slice(0, 0), upserts=write.upserts.slice(0, 0))
        own = self._owner(write.name)
        return [write if sender is own else none for sender in self._senders]

    def _by_key(self, write: TableWrite) -> list[TableWrite]:
        count = len(self._senders)
        parts = (shared_out(rows, write.key, count) for rows in (write.deletes, write.upserts))
        return [replace(write, deletes=d, upserts=u) for d, u in zip(*parts, strict=True)]

    def _owner(self, name: TableName) -> Sender:
        """Return the sender of a table that is not split."""
        return self._senders[crc32(".".join(name).encode()) % len(self._senders)]

    def _is_split(self, write: TableWrite) -> bool:
        """Return whether rows of a table may be written by several senders: no two of them meet,
        neither by the key as the target compares it nor by another unique one."""
        if self._order != "key" or not write.key:
            return False
        found = self._splits.get(write.name)
        if found is None:
            kinds = [write.upserts.schema.field(name).type for name in write.key]
            self._database.find(write.name)
            found = not any(pa.types.is_floating(kind) for kind in kinds)
            found = self._splits[write.name] = found and self._database.tells_keys(write.name)
        return found

    # --- rows ------------------------------------------------------------------------------------

    def _stage(self, rows: Rows, senders: tuple[Sender, ...]) -> None:
        if self._follower.leaves_out(rows):
            return
        name, columns = self._follower.columns(rows)
        if self._pool is not None and self._first.is_begun:
            self._settle(self._first.place)
        schema, runs = rows.batch.schema, self._runs.setdefault(senders, [])
        for run in reversed(runs):
            if run.name == name:
                if run.schema == schema:
                    run.batches.append(rows.batch)
                    return
                break
        source = rows.schema, rows.table
        runs.append(_Run(source, name, rows.key, columns, schema, [rows.batch]))


def _row_of(sink: str, order: str, count: int, number: int) -> str:
    return f"{sink}{OTHERS}{order}/{count}/{number}"


def _order_of(row: str) -> MirrorOrder:
    return "key" if row.partition(OTHERS)[2].startswith("key/") else "table"


def _weight(error: BaseException) -> int:
    """Several senders failed: where it is not known what counts, the rest comes again."""
    kind = error.kind if isinstance(error, SinkError) else "fatal"
    return ("fatal", "fenced", "retry", "schema", "poison").index(kind)


def _behind(changes: Changes, position: int) -> Cursor:
    """The place of the last entry of a statement."""
    first, last = changes.part.first, changes.part.last
    positions = changes.chunk.events["position"][first:last]
    return changes.between(first, first + int(np.searchsorted(positions, position, "right"))).cursor
