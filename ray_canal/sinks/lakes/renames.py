"""Names that tables of a lake had before, so that a sink that is moved back over a RENAME writes
the rows from before it to the table that has them now.

A lake cannot give tables their old names again all at once, so each table tells since when it has
its name, and its rows stay where they are. Else rows from before a RENAME would come under the old
name, and the RENAME, done once more, would take away the table that has the new one.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from ray_canal.sinks.port import SinkError
from ray_canal.sinks.schema_follower import TableName, TargetTable
from ray_canal.views.row_places import RowPlace

RENAMES_PROPERTY = "ray_canal.renames"
_RENAMES_MAX = 500
_UNKNOWN = TableName("", "")
"""Stands for the names that are not kept any more, the newest of which ended there."""


class _Tables(Protocol):
    def names(self) -> list[TableName]: ...
    def find(self, name: TableName) -> TargetTable | None: ...
    def place(self, name: TableName) -> RowPlace | None: ...
    def renames(self, name: TableName) -> str: ...


class _Renamed(NamedTuple):
    """A table had a name until the statement at a place, which was executed at a Unix time."""

    name: TableName
    place: RowPlace
    time_s: int


class Renames:
    """Names at a place of the log: `at` and `time_s`, which say where a sink is."""

    def __init__(self, tables: _Tables) -> None:
        self._tables = tables
        self._held: list[TableName] | None = None
        self.at = RowPlace(0, 0, 0, 0)
        self.time_s = 0

    def forget(self) -> None:
        """Look at the tables again."""
        self._held = None

    def present(self, name: TableName) -> TableName:
        """Return the name that the table has now which has this one at the place. Raises SinkError:
        that cannot be told."""
        place = self._tables.place(name)
        has_come = place is not None and place.timeline == self.at.timeline
        if has_come and not self.is_anothers(name):
            return name  # without a look at the others
        until = [
            (later.place.key, each)
            for each in self._listed()
            if (later := self._later(each)) is not None and later.name == name
        ]  # several: the next ones were made when the first one had another name
        return min(until)[1] if until else name

    def is_anothers(self, name: TableName) -> bool:
        """Return whether the table that has this name now had another one at the place. Raises
        SinkError: that cannot be told."""
        later = self._later(name)
        return later is not None and later.name != name

    def has(self, name: TableName) -> bool:
        """Return whether the table that has a name at the place has had no other one since. Raises
        SinkError: that cannot be told."""
        return self._later(name) is None and self.present(name) == name

    def came_from(self, name: TableName) -> set[TableName]:
        """Return which names a table had until the statement at the place gave it its own, as it
        has come before, from another log: that of another server, say."""
        return {
            each.name
            for each in self._of(name)
            if each.time_s == self.time_s and each.place.timeline != self.at.timeline
        }

    def renamed(self, name: TableName) -> str:
        """Return what the table is to tell of its names when it gets another one here."""
        return _text([*self._of(name), _Renamed(name, self.at, self.time_s)])

    def _later(self, name: TableName) -> _Renamed | None:
        """Return until when the table of this name has the name that it has at the place; None: it
        is this one."""
        if self._tables.find(name) is None:
            return None
        return next((each for each in self._of(name) if self._is_later(name, each)), None)

    def _listed(self) -> list[TableName]:
        """Return the sink's own tables that had other names."""
        if self._held is None:
            try:
                names = self._tables.names()
            except SinkError as error:
                if error.retryable:
                    raise
                names = []  # they cannot be listed: nor could they be moved back
            self._held = [name for name in names if self._had_others(name)]
        return self._held

    def _had_others(self, name: TableName) -> bool:
        tables = self._tables
        with contextlib.suppress(SinkError):  # somebody else's
            has = bool(tables.renames(name)) and tables.find(name) is not None
            return has and tables.place(name) is not None
        return False

    def _of(self, name: TableName) -> list[_Renamed]:
        text = self._tables.renames(name)
        told = [
            _Renamed(TableName(*names), RowPlace(*place), time_s)
            for names, place, time_s in (json.loads(text) if text else ())
        ]
        if told and told[-1].name == name:  # the sink ended before it got the other one
            told.pop()
        return told

    def _is_later(self, holder: TableName, renamed: _Renamed) -> bool:
        """Return whether a statement comes behind the place. Raises SinkError."""
        name, place, time_s = renamed
        if place.timeline == self.at.timeline:
            if place.key < self.at.key:
                return False
            if name != _UNKNOWN:
                return True
            why = "how tables were named before that is not kept any more"
        elif time_s <= self.time_s:
            return False
        else:
            why = "that place is of another log, so it cannot be told what came before it"
        raise SinkError(
            f"{holder} was renamed at {place}, and what comes now, at {self.at}, was executed "
            f"before that: {why}, and rows would be lost. `ray-canal sink seek` to a place behind "
            f"that statement, and let `ray-canal snapshot start` bring the rows of {holder}",
            "schema",
        )


def _text(renames: Iterable[_Renamed]) -> str:
    kept = list(renames)
    if len(kept) > _RENAMES_MAX:
        kept = kept[-_RENAMES_MAX:]
        kept[0] = kept[0]._replace(name=_UNKNOWN)
    return json.dumps([[*map(list, each[:2]), each[2]] for each in kept])
