"""Savepoints of a transaction, and the rows of it that ROLLBACK TO undoes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


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


class Savepoints:
    """The savepoints of one transaction, and the rows of it that are undone."""

    def __init__(
        self,
        begin: int,
        known: Iterable[SavepointStatement] = (),
        undone: Iterable[UndoneRows] = (),
    ) -> None:
        """`begin`: where the transaction begins; what is known of it already."""
        self._begin = begin
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
        """Take the next statement. (MySQL manual, "SAVEPOINT": one of the same name replaces the
        earlier one; ROLLBACK TO removes those that were set later.)"""
        if not statement.undoes:
            self._known.pop(statement.name, None)
            self._known[statement.name] = statement
            return
        # One that the log does not have was set before the transaction changed anything.
        begin, begin_row = self._begin, 0
        if statement.name in self._known:
            _, begin, begin_row, *_ = self._known[statement.name]
        while self._known and next(reversed(self._known)) != statement.name:
            self._known.popitem()
        while self._undone and self._undone[-1][:2] >= (begin, begin_row):
            self._undone.pop()
        self._undone.append(UndoneRows(begin, begin_row, statement.position, statement.row))
