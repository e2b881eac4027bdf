"""A history to which statements are applied, for tests."""

from __future__ import annotations

from ray_canal.schema.history import SchemaHistory, place_of
from ray_canal.schema.table_state import StatementSession

FILE = "mysql-bin.000009"


SESSION = StatementSession("db")


class Log:
    """A history to which statements are applied 100 bytes apart."""

    def __init__(self, *statements: str, session: StatementSession = SESSION) -> None:
        self.history = SchemaHistory()
        self.session = session
        self.at = 0
        self.run(*statements)

    def run(self, *statements: str) -> None:
        for sql in statements:
            self.at += 100
            self.history.apply(place_of(FILE, self.at), sql, self.session)

    def columns(self, table: str, at: int | None = None) -> str | None:
        """The columns' names; `?` for a table that is not known, None: no such table."""
        schema, _, name = table.rpartition(".")
        state = self.history.at(schema or "db", name, place_of(FILE, at or self.at + 1))
        if state is None:
            return None
        return "?" if state.problem else " ".join(c.name for c in state.columns)
