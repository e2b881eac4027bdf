"""The table meta history: what every table looked like at every place of one server's log.

It starts from a snapshot of the catalog, or from nothing (binlog files alone), and each DDL of the
log adds versions of the tables that it changes. A lookup names a place, so that events that are
read again are decoded with the schema that they had. What is kept durably are records (snapshots
and DDL statements); the same records give the same history.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterable

from ray_canal.parse.apply_ddl import Effects, Name, apply_ddl, is_ddl
from ray_canal.parse.table_state import Session, TableState
from ray_canal.protocol.position import journal_key

log = logging.getLogger(__name__)

Place = tuple[tuple[str, int], int]
"""A place in the log: its file as (base, number), and the offset of an event's start."""


def place_of(journal_name: str, position: int) -> Place:
    return journal_key(journal_name), position


class Versions:
    """Versions of one thing by place. Offers the last one at or before a place."""

    def __init__(self) -> None:
        self._places: list[Place] = []
        self._values: list[TableState | None] = []

    def put(self, place: Place, value: TableState | None) -> None:
        """Set what holds from `place` on, until the next version."""
        at = bisect_right(self._places, place)
        if at and self._places[at - 1] == place:
            self._values[at - 1] = value
        else:
            self._places.insert(at, place)
            self._values.insert(at, value)

    def at(self, place: Place) -> tuple[bool, TableState | None]:
        """(whether a version holds at `place`, that version)."""
        at = bisect_right(self._places, place)
        return (True, self._values[at - 1]) if at else (False, None)

    def behind(self, place: Place) -> TableState | None:
        """The first table there is behind `place`."""
        later = self._values[bisect_right(self._places, place) :]
        return next((state for state in later if state is not None and not state.problem), None)

    def has(self, place: Place) -> bool:
        """Whether a version begins at exactly this place."""
        at = bisect_right(self._places, place)
        return bool(at) and self._places[at - 1] == place


class _At:
    """What is known just before the statement at a place (see apply_ddl.Known)."""

    def __init__(self, history: SchemaHistory, place: Place) -> None:
        self._history = history
        self._place = place

    def table(self, name: Name) -> TableState | None:
        return self._history.tracked(name, self._place)

    def tables_of(self, schema: str) -> list[Name]:
        return [
            name for name in self._history.names() if name[0] == schema and self.table(name)
        ]

    def charset_of(self, schema: str) -> str:
        return self._history.charset_of(schema, self._place)


class SchemaHistory:
    """Table versions of one server. Statements must be applied in the log's order; those that
    were applied before are passed over."""

    def __init__(self) -> None:
        self._tables: dict[Name, Versions] = {}
        self._charsets: dict[str, list[tuple[Place, str]]] = {}
        self._applied: Place | None = None
        self._snapshot: Place | None = None
        self._stated: set[tuple[Name, Place]] = set()

    @property
    def has_snapshot(self) -> bool:
        return self._snapshot is not None

    def names(self) -> list[Name]:
        """Every table that ever was."""
        return list(self._tables)

    def apply(self, place: Place, sql: str, session: Session) -> Effects | None:
        """Apply the statement at `place`; None if it was applied before, or is no DDL. Never raises
        for what the statement says."""
        if not is_ddl(sql) or (self._applied is not None and place <= self._applied):
            return None
        effects = apply_ddl(sql, session, _At(self, place))
        self._applied = place
        for name, state in effects.tables.items():
            if state is not None and state.problem:
                log.warning("table %s.%s at %s: %s", *name, place, state.problem)
            if (name, place) not in self._stated:
                self._tables.setdefault(name, Versions()).put(place, state)
        for schema, charset in effects.charsets.items():
            self._charsets.setdefault(schema, []).append((place, charset))
        return effects

    def take_snapshot(
        self, place: Place, tables: Iterable[TableState], charsets: dict[str, str]
    ) -> None:
        """What the catalog said at `place`. Tables that it does not have are gone from there on."""
        found = {(state.meta.schema, state.meta.table): state for state in tables}
        for name in {*found, *self._tables}:
            self._tables.setdefault(name, Versions()).put(place, found.get(name))
        for schema, charset in charsets.items():
            self._charsets.setdefault(schema, []).append((place, charset))
        self._snapshot = place if self._snapshot is None else min(place, self._snapshot)

    def put(self, place: Place, state: TableState) -> None:
        """State what a table looks like from `place` on, whatever a statement there makes of it."""
        name = (state.meta.schema, state.meta.table)
        self._stated.add((name, place))
        self._tables.setdefault(name, Versions()).put(place, state)

    def tracked(self, name: Name, place: Place) -> TableState | None:
        """The table's version at a place; None: there is none."""
        versions = self._tables.get(name)
        return None if versions is None else versions.at(place)[1]

    def at(self, schema: str, table: str, place: Place) -> TableState | None:
        """The table's version at a place; None: there is none, or it is not known."""
        versions = self._of(schema, table)
        return None if versions is None else versions.at(place)[1]

    def later(self, schema: str, table: str, place: Place) -> TableState | None:
        """The table's next version behind a place: before it, the table may have been another."""
        versions = self._of(schema, table)
        return None if versions is None else versions.behind(place)

    def _of(self, schema: str, table: str) -> Versions | None:
        return self._tables.get((schema, table)) or self._tables.get(
            (schema.lower(), table.lower())
        )

    def charset_of(self, schema: str, place: Place) -> str:
        """A database's default character set at a place; empty: not known."""
        found = ""
        for since, charset in sorted(self._charsets.get(schema, [])):
            if since <= place:
                found = charset
        return found

    def states_at(self, place: Place) -> list[TableState]:
        """Every table that there is at a place: what a compacted snapshot holds."""
        states = (self.tracked(name, place) for name in self._tables)
        return [state for state in states if state is not None]

    def charsets_at(self, place: Place) -> dict[str, str]:
        found = {schema: self.charset_of(schema, place) for schema in self._charsets}
        return {schema: charset for schema, charset in found.items() if charset}

    def changed_at(self, place: Place) -> dict[Name, TableState | None]:
        """The tables that have a version from exactly this place on."""
        return {
            name: versions.at(place)[1]
            for name, versions in self._tables.items()
            if versions.has(place)
        }
