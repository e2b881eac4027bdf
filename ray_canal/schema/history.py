"""Keep the table meta history: each table's versions by place of one server's log.

It starts from a snapshot of the catalog, or from nothing (binlog files alone), and each DDL of the
log adds versions of the tables that it changes. A lookup names a place, so that events that are
read again are decoded with the schema that they had. What is kept durably are records (snapshots
and DDL statements); the same records give the same history. In memory it keeps what can still be
asked for: `forget` drops what was true only before a place.
"""

from __future__ import annotations

import heapq
import logging
from bisect import bisect_right
from collections.abc import Iterable
from typing import Generic, TypeVar

from ray_canal.model.position import journal_key
from ray_canal.schema.ddl.apply_ddl import Effects, apply_ddl, is_ddl
from ray_canal.schema.names import Name, Names, lowered
from ray_canal.schema.table_state import StatementSession, TableState

log = logging.getLogger(__name__)

HistoryPlace = tuple[tuple[str, int], int]
"""A place in the log: its file as (base, number), and the offset of an event's start."""
Key = tuple[int, int, int]
T = TypeVar("T")


def place_of(journal_name: str, position: int) -> HistoryPlace:
    """Return a place of a log, to compare by: the file's base name and number, then the offset."""
    return journal_key(journal_name), position


class FileOrder:
    """Order of the places of one log, whose files may have been given another base name (log_bin):
    numbers order files of one base. `bases`: in the log's order; new ones come last."""

    def __init__(self, bases: Iterable[str] = ()) -> None:
        self._bases: dict[str, int] = {}
        for base in bases:
            self._bases.setdefault(base, len(self._bases))

    def key(self, place: HistoryPlace) -> Key:
        """Return a place with its base name as a number, in the order in which base names came."""
        (base, number), position = place
        return self._bases.setdefault(base, len(self._bases)), number, position


class Versions(Generic[T]):
    """Versions of one thing by place (None: there is none). Offers the last one at or before a
    place."""

    __slots__ = ("_places", "_values")

    def __init__(self) -> None:
        self._places: list[Key] = []
        self._values: list[T | None] = []

    def put(self, place: Key, value: T | None) -> None:
        """Set what holds from `place` on, until the next version."""
        at = bisect_right(self._places, place)
        if at and self._places[at - 1] == place:
            self._values[at - 1] = value
        else:
            self._places.insert(at, place)
            self._values.insert(at, value)

    def at(self, place: Key) -> T | None:
        """Return the version that holds at `place`; None before the first one."""
        at = bisect_right(self._places, place)
        return self._values[at - 1] if at else None

    def begin_by(self, place: Key) -> bool:
        """Return whether there is a version at or before `place`, even if it is that there is
        none."""
        return bool(self._places) and self._places[0] <= place

    def after(self, place: Key) -> list[T | None]:
        """Return the versions that begin after `place`."""
        return self._values[bisect_right(self._places, place) :]

    def forget(self, place: Key) -> bool:
        """Drop what holds nowhere from `place` on. Whether nothing is left."""
        at = bisect_right(self._places, place)
        if at and self._values[at - 1] is None:
            at += 1
        if at > 1:
            del self._places[: at - 1], self._values[: at - 1]
        return not self._places


class _At:
    """Known state just before the statement at a place (see apply_ddl.Known)."""

    def __init__(self, history: SchemaHistory, place: HistoryPlace) -> None:
        self._history = history
        self._place = place
        self.names = history.names

    def table(self, name: Name) -> TableState | None:
        return self._history.tracked(name, self._place)

    def tables_of(self, schema: str) -> list[Name]:
        known = self._history.known_names()
        return [name for name in known if name[0] == schema and self.table(name)]

    def would_know(self, name: Name) -> bool:
        return self._history.would_know(name, self._place)

    def charset_of(self, schema: str) -> str:
        return self._history.charset_of(schema, self._place)

    def alike(self, name: Name) -> list[Name]:
        return [other for other in self._history.alike(name) if self.table(other)]

    def schemas_alike(self, schema: str) -> list[str]:
        return self._history.schemas_alike(schema)


class SchemaHistory:
    """Table versions of one log, whose names are compared as `names` says. Statements must be
    applied in the log's order; those that were applied before are passed over."""

    def __init__(self, names: Names | None = None, order: FileOrder | None = None) -> None:
        self.names = names or Names()
        self._order = order or FileOrder()
        self._tables: dict[Name, Versions[TableState]] = {}
        self._charsets: dict[str, Versions[str]] = {}
        self._alike: dict[Name, set[Name]] = {}  # by name in lower case, where that may matter
        self._applied: Key | None = None
        self._snapshot: Key | None = None
        self._stated: set[tuple[Name, Key]] = set()
        self._whole: set[str] = set()  # databases that the log made or dropped
        self._changed: dict[Key, set[Name]] = {}
        # Where versions begin that make older ones needless: of (schema, table), of (schema,).
        self._begins: list[tuple[Key, tuple[str, ...]]] = []

    @property
    def has_snapshot(self) -> bool:
        """Return whether it began with a snapshot of the catalog."""
        return self._snapshot is not None

    def has_all_at(self, place: HistoryPlace) -> bool:
        """Return whether every table that there is at a place is known."""
        return self._snapshot is not None and self._snapshot <= self._order.key(place)

    def would_know(self, name: Name, place: HistoryPlace) -> bool:
        """Return whether a table of this name would be known at a place if there was one: since a
        snapshot of the catalog, or since the log made the database, or dropped the table."""
        versions = self._tables.get(name)
        return (
            self.has_all_at(place)
            or name[0] in self._whole
            or (versions is not None and versions.begin_by(self._order.key(place)))
        )

    def whole_databases(self, place: HistoryPlace) -> tuple[str, ...] | None:
        """Return databases of which every table is known at a place; None: of all."""
        return None if self.has_all_at(place) else tuple(sorted(self._whole))

    def known_names(self) -> list[Name]:
        """Every table that there is, or was at a place that is not forgotten."""
        return list(self._tables)

    def apply(self, place: HistoryPlace, sql: str, session: StatementSession) -> Effects | None:
        """Apply the statement at `place`; None if it was applied before, or is no DDL. Never raises
        for what the statement says."""
        key = self._order.key(place)
        if not is_ddl(sql) or (self._applied is not None and key <= self._applied):
            return None
        effects = apply_ddl(sql, session, _At(self, place))
        self._applied = key
        for name, state in effects.tables.items():
            if state is not None and state.problem:
                log.warning("table %s.%s at %s: %s", *name, place, state.problem)
            self._changed.setdefault(key, set()).add(name)
            if (name, key) not in self._stated:
                self._put(name, key, state)
        for schema, charset in effects.charsets.items():
            self._put_charset(schema, key, charset)
        self._whole |= effects.whole
        return effects

    def _put(self, name: Name, key: Key, state: TableState | None) -> None:
        versions = self._tables.get(name)
        if versions is None:
            versions = self._tables[name] = Versions()
            if self.names.setting is None:
                self._alike.setdefault(_lowered(name), set()).add(name)
        versions.put(key, state)
        heapq.heappush(self._begins, (key, name))

    def _put_charset(self, schema: str, key: Key, charset: str) -> None:
        self._charsets.setdefault(schema, Versions()).put(key, charset or None)
        heapq.heappush(self._begins, (key, (schema,)))

    def take_snapshot(
        self,
        place: HistoryPlace,
        tables: Iterable[TableState],
        charsets: dict[str, str],
        whole: Iterable[str] | None = None,
    ) -> None:
        """Take the catalog at `place`. Tables that it does not have are gone from there on.
        `whole`: it was made of what was known, which is every table of these databases alone."""
        found, key = {}, self._order.key(place)
        for state in tables:
            name = self.names.pair((state.meta.schema, state.meta.table))
            found[name] = state.renamed(*name)
        for name in {*found, *self._tables}:
            self._put(name, key, found.get(name))
        for schema, charset in charsets.items():
            self._put_charset(self.names.one(schema), key, charset)
        if whole is not None:
            self._whole.update(whole)
        else:
            self._snapshot = key if self._snapshot is None else min(key, self._snapshot)

    def put(self, place: HistoryPlace, state: TableState) -> None:
        """State what a table looks like from `place` on, whatever a statement there makes of it."""
        name = self.names.pair((state.meta.schema, state.meta.table))
        key = self._order.key(place)
        self._stated.add((name, key))
        self._changed.setdefault(key, set()).add(name)
        self._put(name, key, state.renamed(*name))

    def forget(self, place: HistoryPlace) -> None:
        """Nothing before `place` is asked for any more. What held only there is dropped: versions
        that were replaced, tables and databases that are gone."""
        until = self._order.key(place)
        while self._begins and self._begins[0][0] < until:
            begins, name = heapq.heappop(self._begins)
            self._changed.pop(begins, None)
            if len(name) == 1:
                self._forget_charset(name[0], until)
            else:
                self._forget_table((name[0], name[1]), begins, until)

    def _forget_table(self, name: Name, begins: Key, until: Key) -> None:
        self._stated.discard((name, begins))
        versions = self._tables.get(name)
        if versions is not None and versions.forget(until):
            del self._tables[name]
            alike = self._alike.get(_lowered(name), set())
            alike.discard(name)
            if not alike:
                self._alike.pop(_lowered(name), None)

    def _forget_charset(self, schema: str, until: Key) -> None:
        versions = self._charsets.get(schema)
        if versions is not None and versions.forget(until):
            del self._charsets[schema]

    def tracked(self, name: Name, place: HistoryPlace) -> TableState | None:
        """The table's version at a place, its columns known or not; None: there is none."""
        versions = self._tables.get(self.names.pair(name))
        return None if versions is None else versions.at(self._order.key(place))

    def at(self, schema: str, table: str, place: HistoryPlace) -> TableState | None:
        """See `tracked`."""
        return self.tracked((schema, table), place)

    def later(self, schema: str, table: str, place: HistoryPlace) -> TableState | None:
        """Return the table's next version after a place: before it, the table may have been
        another."""
        versions = self._tables.get(self.names.pair((schema, table)))
        after = [] if versions is None else versions.after(self._order.key(place))
        return next((state for state in after if state is not None and not state.problem), None)

    def alike(self, name: Name) -> list[Name]:
        """Tables whose names differ from this one in the case of letters alone, where it is not
        known how the server compares names; else none."""
        return sorted(self._alike.get(_lowered(name), set()) - {name})

    def schemas_alike(self, schema: str) -> list[str]:
        """Likewise, databases."""
        if self.names.setting is not None:
            return []
        known = {*self._charsets, *(name[0] for name in self._tables)} - {schema}
        return sorted(other for other in known if lowered(other) == lowered(schema))

    def charset_of(self, schema: str, place: HistoryPlace) -> str:
        """A database's default character set at a place; empty: not known."""
        versions = self._charsets.get(self.names.one(schema))
        return "" if versions is None else versions.at(self._order.key(place)) or ""

    def states_at(self, place: HistoryPlace) -> list[TableState]:
        """Every table that there is at a place: what a compacted snapshot holds."""
        key = self._order.key(place)
        states = (versions.at(key) for versions in self._tables.values())
        return [state for state in states if state is not None]

    def charsets_at(self, place: HistoryPlace) -> dict[str, str]:
        """Return the default character sets of the databases at a place, those that are known."""
        found = {schema: self.charset_of(schema, place) for schema in self._charsets}
        return {schema: charset for schema, charset in found.items() if charset}

    def changed_at(self, place: HistoryPlace) -> dict[Name, TableState | None]:
        """The tables that a statement at exactly this place changed, or that were stated there."""
        names = sorted(self._changed.get(self._order.key(place), ()))
        return {name: self.tracked(name, place) for name in names}


def _lowered(name: Name) -> Name:
    return lowered(name[0]), lowered(name[1])
