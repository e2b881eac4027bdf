"""Savepoints of a transaction, and the rows of it that ROLLBACK TO undoes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeVar

_Place = TypeVar("_Place")


class SavepointStatement(NamedTuple):
    """A SAVEPOINT of the log, or a ROLLBACK TO (`undoes`). `entry`: its index in its chunk;
    `position`, `row`: the ids that a row in its place would have; `name`: alike for names that are
    the same savepoint's."""

    entry: int
    position: int
    row: int
    name: str
    undoes: bool


class UndoneRows(NamedTuple):
    """Rows of one transaction that ROLLBACK TO has undone: those whose ids (position, row) are not
    before `begin` and before `end`."""

    begin: int
    begin_row: int
    end: int
    end_row: int


def follow(
    known: dict[str, _Place], statement: SavepointStatement, here: _Place, begin: _Place
) -> _Place | None:
    """Take the next statement, which is `here`, into the places of a transaction's savepoints, by
    name in the order in which they were set; return from where on it undoes rows, None: it does
    not. One that is not known was set before `begin`. (MySQL manual, "SAVEPOINT": one of the same
    name replaces the earlier one; ROLLBACK TO removes those that were set later.)"""
    if not statement.undoes:
        known.pop(statement.name, None)
        known[statement.name] = here
        return None
    while known and next(reversed(known)) != statement.name:
        known.popitem()
    return known.get(statement.name, begin)


class Savepoints:
    """The savepoints of one transaction, and the rows of it that are undone."""

    def __init__(
        self,
        begin: int,
        known: Iterable[SavepointStatement] = (),
        undone: Iterable[UndoneRows] = (),
    ) -> None:
        """`begin`: where the transaction begins; what is known of it already."""
        # The log lacks one that was set before the transaction changed anything.
        self._begin = SavepointStatement(-1, begin, 0, "", undoes=False)
        self._known = {one.name: one for one in known}
        self._undone = list(undone)

    @property
    def known(self) -> tuple[SavepointStatement, ...]:
        """Return the savepoints, as they were set."""
        return tuple(self._known.values())

    @property
    def undone(self) -> tuple[UndoneRows, ...]:
        """Return the undone rows, in their order; none are told twice."""
        return tuple(self._undone)

    def add(self, statement: SavepointStatement) -> None:
        """Take the next statement."""
        since = follow(self._known, statement, statement, self._begin)
        if since is None:
            return
        begin = since.position, since.row
        while self._undone and self._undone[-1][:2] >= begin:
            self._undone.pop()
        self._undone.append(UndoneRows(*begin, statement.position, statement.row))
