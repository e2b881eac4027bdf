"""Renames that a mirror has done, so that its tables have the names of the place to which the sink
is moved.

Rows that are written again do no harm, as long as they come to the same tables. Rows of a table
that was renamed since come under its old name, and the rename, done once more, would drop the table
that has the new name, with rows from before the place.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ray_canal.config.sink import TablePolicy
from ray_canal.model.position import journal_key
from ray_canal.sinks.column_specs import ColumnSpec
from ray_canal.sinks.databases.port import RENAMES, Database
from ray_canal.sinks.port import Changed, Cursor, SinkError
from ray_canal.sinks.schema_follower import SchemaFollower, TableName

logger = logging.getLogger(__name__)

_BYTES_MAX = 60_000
"""A little less than MySQL's TEXT holds."""


class _Renamed(NamedTuple):
    """The change of names by the statement at `where`: (database, table) of each old one and of its
    new one. `turns`: how often that was undone, and done again, since; odd: it is undone. No names:
    they are not kept any more, nor are those of statements before. `time_s`: the Unix time of its
    execution; 0: not known."""

    where: str
    names: list[list[str]]
    turns: int = 0
    time_s: int = 0

    @property
    def order(self) -> tuple[int, ...]:
        timeline, _, place = self.where.partition(":")
        journal_name, _, position = place.rpartition(":")
        return int(timeline), journal_key(journal_name)[1], int(position)

    def is_again(self, other: _Renamed) -> bool:
        """Return whether another one is the same statement in another log: that of another server,
        say."""
        is_same = self.names == other.names and self.time_s == other.time_s != 0
        return is_same and self.order[0] != other.order[0]

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
        self._time_s = 0

    def _compare(self, name: TableName, specs: list[ColumnSpec], named: dict[str, str]) -> None:
        super()._compare(name, specs, named)
        if found := self._database.triggers(name):
            logger.warning(
                "%s has triggers (%s), which act on what is written there: drop those that the "
                "source has, too, as the log has what they did", name, ", ".join(found),
            )  # fmt: skip

    def follow(self, statement: Sequence[Changed], timeline: int = 0) -> None:
        self._time_s = statement[0].time_s
        super().follow(statement, timeline)

    def _rename(self, named: Mapping[TableName, TableName], where: str) -> None:
        now = _Renamed(where, [[*old, *new] for old, new in named.items()], time_s=self._time_s)
        done = self._done()
        again = [each for each in done if each.is_again(now)]
        if any(not each.turns % 2 for each in again):  # it was not acknowledged before a failover
            for name in named.keys() - set(named.values()):
                self._drop(name)
        else:
            self._give(named, where)
        kept = [each for each in done if each.where != where and each not in again]
        self._keep(sorted([*kept, now], key=lambda each: each.order))

    def _give(self, named: Mapping[TableName, TableName], where: str) -> None:
        if self._database.has_renamed(where):
            return
        present = {old: new for old, new in named.items() if self._tables.find(old) is not None}
        for name in set(named.values()) - set(present):
            self._drop(name)
        if present:
            self._begin()
            self._database.rename(present, where)

    def move_to(self, place: Cursor, time_s: int) -> None:
        """Give tables the names that they had at a place of the log, from where changes come now,
        the first one of which was executed at `time_s`. A table that got such a name later is
        dropped: all its rows come again. Raises SinkError: the names are not kept any more, or the
        place is of another log than a rename that was executed later."""
        if self._policy.schema_change not in ("add", "evolve"):
            return
        at, done = place.order[:3], self._done()
        for each in done:
            if each.order[0] != at[0] and each.time_s > time_s and not each.turns % 2:
                names = each.named(back=False)
                text = ", ".join(f"{old} to {new}" for old, new in names.items())
                raise SinkError(
                    f"what comes now, from {place} of timeline {at[0]} on, was executed before "
                    f"the RENAME TABLE at {each.where.partition(':')[2]} of timeline "
                    f"{each.order[0]} ({text}): places of two logs cannot be compared, so rows "
                    f"might be lost: `ray-canal sink seek {self._sink}` to a place behind that "
                    "statement, and let `ray-canal snapshot start` bring the rows of its tables"
                )
        if done and not done[0].names and done[0].order >= at:
            raise SinkError(
                f"sink {self._sink} was moved back to {place}, and which tables were renamed up to "
                f"{done[0].where.partition(':')[2]} is not kept any more, so rows would be lost: "
                f"`ray-canal sink seek {self._sink}` to a place behind that, and let `ray-canal "
                "snapshot start` bring the rows of its tables"
            )
        later = [n for n, each in enumerate(done) if each.order >= at and not each.turns % 2]
        earlier = [
            n
            for n, each in enumerate(done)
            if each.order < at and each.turns % 2
            and (each.order[0] == at[0] or each.time_s <= time_s)  # else it comes again
        ]  # fmt: skip
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
