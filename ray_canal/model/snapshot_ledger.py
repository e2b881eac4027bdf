"""How far a snapshot for one subscriber has come: durable with its cursor, in the same record.

Pure values. A chunk counts when the subscriber has acked it; what was read and not acked is read
again. Chunks of a table are acked in the order of its key, so progress is one border: a few hundred
bytes a table, whatever its size.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from ray_canal.errors import ConfigError
from ray_canal.model.snapshot_wish import KEYED, SnapshotMode, SnapshotWish

State = Literal["running", "paused", "done", "failed", "cancelled"]
RUNNING: State = "running"
PAUSED: State = "paused"
DONE: State = "done"
FAILED: State = "failed"
CANCELLED: State = "cancelled"
ENDED = (DONE, FAILED, CANCELLED)

_SIGNALS_MAX = 32
Border = tuple[str, ...]
"""A key as SQL literals, one for each of its columns."""


@dataclass(frozen=True, slots=True)
class TableLedger:
    """One table. `where` and `columns` narrow what is read of it. `key`: its key's columns when its
    reading began, each with its collation, and " DESC" if the index has the greatest first; `made`:
    by which server and when the table was made; `end`: the last key in this order then. Everything
    up to `done` was acked; `finished`: all up to `end` was. `estimate`: how many rows it has,
    about; `rows`: how many were acked up to `done`, and `part` behind it: these are read again by
    the next attempt."""

    schema: str
    table: str
    where: str = ""
    columns: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    made: str = ""
    end: Border | None = None
    done: Border | None = None
    rows: int = 0
    part: int = 0
    estimate: int = 0
    finished: bool = False

    @property
    def full_name(self) -> str:
        """Return schema.table."""
        return f"{self.schema}.{self.table}"

    @property
    def acked_rows(self) -> int:
        """Return the rows that the subscriber has acked."""
        return self.rows + self.part

    def begun(
        self, key: tuple[str, ...], end: Border | None, estimate: int, made: str = ""
    ) -> TableLedger:
        """Return it with its reading begun; a table without rows is finished."""
        return replace(
            self, key=key, end=end, estimate=estimate, made=made, finished=end is None
        )

    def is_of(self, key: tuple[str, ...], made: str) -> bool:
        """Return whether what was read so far is of this table, as it has this key and was made
        then. Of another server it is not known when. One that does not say of its own (MySQL 5.6,
        of tables with partitions) may have made it again."""
        if not self.key:
            return True
        then, now = self.made.split("|"), made.split("|")
        return self.key == key and (then[0] != now[0] or (then == now and now[1:] != [""]))

    def restarted(self) -> TableLedger:
        """Return it as if nothing was read yet."""
        return TableLedger(self.schema, self.table, self.where, self.columns)

    def acked(self, upto: Border | None, rows: int) -> TableLedger:
        """Return it with the rows behind `done` acked up to this key; None: some of the range up to
        the next border. A key of a table whose reading has not begun is of the one before it."""
        if upto is not None and self.end is None:
            return self
        if upto is None:
            return replace(self, part=self.part + rows)
        rows += self.acked_rows
        return replace(self, done=upto, rows=rows, part=0, finished=upto == self.end)


@dataclass(frozen=True, slots=True)
class Ledger:
    """One snapshot. `wishes`: what was asked for; `tables`: what that is, once the server has said
    so. `attempt` rises each time that its reading begins or goes on, and on from snapshots before
    it, of any subscriber: row ids of an earlier one are lower. Times are in seconds since the
    epoch, 0: not yet. `place`: of the log, at which what the subscriber has is what the tables
    hold. `error`: why it failed. `reason`: why it was taken, for people. `signals`: the last ones
    of the signal table that were done."""

    id: str
    wishes: tuple[SnapshotWish, ...]
    tables: tuple[TableLedger, ...] = ()
    state: State = "running"
    attempt: int = 0
    began: int = 0
    ended: int = 0
    place: str = ""
    error: str = ""
    reason: str = ""
    signals: tuple[str, ...] = ()
    mode: SnapshotMode = KEYED

    @property
    def is_over(self) -> bool:
        """Return whether it is done, failed or cancelled."""
        return self.state in ENDED

    def attempt_name_of(self, client_id: int) -> str:
        """The name of this attempt, of this subscriber: no other one has it."""
        return f"{client_id}:{self.id}:{self.attempt}"

    @property
    def rows(self) -> int:
        """Return the rows of all tables that are acked."""
        return sum(table.acked_rows for table in self.tables)

    @property
    def estimate(self) -> int:
        """About how many rows all tables have."""
        return sum(max(table.estimate, table.acked_rows) for table in self.tables)

    def with_table(self, number: int, table: TableLedger) -> Ledger:
        """Return the ledger with another state of table number `number`."""
        tables = (*self.tables[:number], table, *self.tables[number + 1 :])
        return replace(self, tables=tables)

    def signalled(self, signal_id: str) -> Ledger:
        """Return it with a signal that was done."""
        return replace(self, signals=(*self.signals, signal_id)[-_SIGNALS_MAX:])

    def begun_again(self) -> Ledger:
        """Return it with the next attempt, which goes on at `done` of each table."""
        tables = tuple(replace(table, part=0) for table in self.tables)
        return replace(self, attempt=self.attempt + 1, tables=tables)

    def acked(self, number: int, upto: Border | None, rows: int) -> Ledger:
        """Return it with rows of its table `number` acked, up to a key; see TableProgress.acked."""
        return self.with_table(number, self.tables[number].acked(upto, rows))

    def with_restarted(self, names: Collection[tuple[str, str]]) -> Ledger:
        """Return it with these tables, (schema, name), as if nothing of them was read yet."""
        tables = (
            table.restarted() if (table.schema, table.table) in names else table
            for table in self.tables
        )  # fmt: skip
        return replace(self, tables=tuple(tables))

    def follow(self, record: Ledger) -> Ledger:
        """Return it without what the subscriber's record does not have of it as read any more: the
        subscriber was moved."""
        if record.id != self.id:
            return self
        tables = record.tables
        unread = {(one.schema, one.table) for one in tables if one == one.restarted()}
        now = self.with_restarted(unread)
        return replace(now, attempt=max(self.attempt, record.attempt))

    def restarted(self) -> Ledger:
        """Return it as if nothing was read yet. No attempt counts any more, nor one that begins
        just now."""
        tables = tuple(table.restarted() for table in self.tables)
        return replace(self, attempt=self.attempt + 2, tables=tables)

    def to_json(self) -> str:
        """Return it as JSON. Tables may be many, so fields of them that are 0 or empty are left
        out."""
        tree = asdict(self)
        tree["tables"] = [{k: v for k, v in table.items() if v} for table in tree["tables"]]
        return json.dumps(tree, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Ledger:
        """Raises ConfigError: the record is not one of ours."""
        try:
            tree = json.loads(text)
            known = {field.name for field in fields(cls)}
            tables = tuple(_table(each) for each in tree.pop("tables"))
            wishes = tuple(_wish(each) for each in tree.pop("wishes"))
            rest = {name: value for name, value in tree.items() if name in known}
            rest["signals"] = tuple(rest.get("signals", ()))
            return cls(tables=tables, wishes=wishes, **rest)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"a snapshot's record cannot be read ({error})") from None


def _wish(tree: dict[str, Any]) -> SnapshotWish:
    return SnapshotWish(str(tree["tables"]), str(tree["where"]), tuple(tree["columns"]))


def _table(tree: dict[str, Any]) -> TableLedger:
    known = {field.name for field in fields(TableLedger)}
    found = {k: v for k, v in tree.items() if k in known}
    for name in ("columns", "key", "end", "done"):
        if name in found:
            found[name] = tuple(found[name])
    return TableLedger(**found)


def restarted(record: str) -> str:
    """Return the record of a subscriber's snapshot after its cursor was moved: one that goes on
    begins again, as what was read does not fit the new place."""
    if not record:
        return ""
    ledger = Ledger.from_json(record)
    return record if ledger.is_over else ledger.restarted().to_json()
