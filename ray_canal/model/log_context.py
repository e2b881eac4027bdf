"""Facts of the log before a chunk that its rows' columns need: its timeline, and the transaction
that is open where it begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ray_canal.model.savepoints import SavepointStatement, UndoneRows


class OpenTransaction(NamedTuple):
    """A transaction that is open where a chunk begins: where its first event starts, how many rows
    it had before the chunk, of which tables (schema, table, rows), its savepoints, and what is
    undone of it."""

    begin: int
    rows: int
    tables: tuple[tuple[str, str, int], ...]
    savepoints: tuple[SavepointStatement, ...] = ()
    undone: tuple[UndoneRows, ...] = ()

    def seen(self, admits: Callable[[str, str], bool]) -> OpenTransaction:
        """Return the context with those tables alone that a filter lets through."""
        if all(admits(schema, table) for schema, table, _ in self.tables):
            return self
        return self._replace(tables=tuple(one for one in self.tables if admits(*one[:2])))


class LogContext(NamedTuple):
    """`open`: None: the chunk begins between transactions. `numbered`: False: nobody knows what lay
    before it (a chunk by itself, out of quarantine)."""

    timeline: int = 0
    open: OpenTransaction | None = None
    numbered: bool = True


NO_CONTEXT = LogContext()
"""Context of the first chunk of files that are decoded alone."""
