"""Renames that a mirror has done, so that its tables have the names of the place to which the sink
is moved.

Rows that are written again do no harm, as long as they come to the same tables. Rows of a table
that was renamed since come under its old name, and the rename, done once more, would drop the table
that has the new name, with rows from before the place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ray_canal.config.sink import TablePolicy
from ray_canal.model.position import journal_key
from ray_canal.sinks.databases.port import RENAMES, Database
from ray_canal.sinks.port import Cursor, SinkError
from ray_canal.sinks.schema_follower import SchemaFollower, TableName

_BYTES_MAX = 60_000
"""A little less than MySQL's TEXT holds."""


class _Renamed(NamedTuple):
    """The change of names by the statement at `where`: (database, table) of each old one and of its
    new one. `turns`: how often that was undone, and done again, since; odd: it is undone. No names:
    they are not kept any more, nor are those of statements before."""

    where: str
    names: list[list[str]]
    turns: int = 0

    @property
    def order(self) -> tuple[int, ...]:
        timeline, _, place = self.where.partition(":")
        journal_name, _, position = place.rpartition(":")
        return int(timeline), journal_key(journal_name)[1], int(position)

    def named(self, *, back: bool) -> dict[TableName, TableName]:
        pairs = [(TableName(*each[:2]), TableName(*each[2:])) for each in self.names]
        return {new: old for old, new in pairs} if back else dict(pairs)


class DatabaseFollower(SchemaFollower):
    """Names are given away all at once, and given back where the sink is moved back."""

    def __init__(
        self,
        policy: TablePolicy,
        database: Database,
        begin: Callable[[], None],
        sink: str,
        destination: str,
    ) -> None:
        super().__init__(policy, database, begin)
        self._database = database
        self._sink = sink
        self._destination = destination

    def _rename(self, named: Mapping[TableName, TableName], where: str) -> None:
        self._give(named, where)
        done = [each for each in self._done() if each.where != where]
        names = [[*old, *new] for old, new in named.items()]
        self._keep(sorted([*done, _Renamed(where, names)], key=lambda each: each.order))

    def _give(self, named: Mapping[TableName, TableName], where: str) -> None:
        if self._database.has_renamed(where):
            return
        present = {old: new for old, new in named.items() if self._tables.find(old) is not None}
        for name in set(named.values()) - set(present):
            self._drop(name)
        if present:
            self._begin()
            self._database.rename(present, where)

    def move_to(self, place: Cursor) -> None:
        """Give tables the names that they had at a place of the log, from where changes come now.
        A table that got such a name later is dropped: all its rows come again. Raises SinkError:
        the names are not kept any more."""
        if self._policy.schema_change not in ("add", "evolve"):
            return
        at, done = place.order[:3], self._done()
        if done and not done[0].names and done[0].order >= at:
            raise SinkError(
                f"sink {self._sink} was moved back to {place}, and which tables were renamed up to "
                f"{done[0].where.partition(':')[2]} is not kept any more, so rows would be lost: "
                f"`ray-canal sink seek {self._sink}` to a place behind that, and let `ray-canal "
                "snapshot start` bring the rows of its tables"
            )
        later = [n for n, each in enumerate(done) if each.order >= at and not each.turns % 2]
        earlier = [n for n, each in enumerate(done) if each.order < at and each.turns % 2]
        for number in (*reversed(later), *earlier):
            each = done[number]
            if self._database.has_renamed(each.where):
                continue  # after the move: the sink ended before its next commit
            self._give(each.named(back=number in later), f"{each.where} {each.turns}")
            done[number] = each._replace(turns=each.turns + 1)
            self._keep(done)
            self.forget()

    def _done(self) -> list[_Renamed]:
        """Return what is kept, in the order of the log."""
        text = self._database.place_of(self._sink + RENAMES)
        tree = json.loads(text) if text else {}
        is_own = tree.get("destination") == self._destination
        return [_Renamed(*each) for each in tree["renames"]] if is_own else []

    def _keep(self, done: list[_Renamed]) -> None:
        """Keep the newest ones, as many as there is room for."""
        while len(text := self._text(done)) > _BYTES_MAX:
            oldest = 0 if done[0].names else 1
            done = [_Renamed(done[oldest].where, []), *done[oldest + 1 :]]
        self._begin()
        self._database.keep(self._sink + RENAMES, text)

    def _text(self, done: list[_Renamed]) -> str:
        return json.dumps({"destination": self._destination, "renames": done})
