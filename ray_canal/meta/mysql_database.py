"""A database on a MySQL or MariaDB server for what must outlive the head: its connection.

One statement at a time, each committed by itself. A statement on a connection that was lost is run
once more on a new one, so callers write statements that may be run twice. A server that does not
answer is not asked twice, so a call ends after about twice `meta.timeout_s`, connection included.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, TypeVar

from ray_canal.config import MetaConfig, SourceConfig
from ray_canal.errors import (
    CanalError,
    ConfigError,
    ConnectionLost,
    MetaUnavailable,
    PrivilegeMissing,
    SourceError,
)
from ray_canal.source.connection import connect, query

T = TypeVar("T")

_LARGE = 64 << 10
"""A statement with values of so many characters is measured before it is sent."""
_BYTES_PER_S = 1 << 20
"""A server that is slower with a large statement counts as one that does not answer."""


class _Login(SourceConfig):
    section: ClassVar[str] = "meta"


class MetaDatabase:
    """`{d}` in a statement stands for the database. Makes database and tables that are not there.

    Raises MetaUnavailable; on opening ConfigError, too: refused, not allowed.
    """

    def __init__(self, config: MetaConfig, tables: dict[str, str]) -> None:
        """`tables`: what is in the parentheses of each CREATE TABLE."""
        self._database = f"`{config.database}`"
        self.where = f"meta tables {config.database}.canal_* at {config.address}"
        login = {
            "address": config.address,
            "username": config.username,
            "password": config.password,
            "connect_timeout_s": config.timeout_s,
            "read_timeout_s": config.timeout_s,
            "tls": config.tls,
        }
        self._login = _Login.model_validate(login)
        self._connection: Any = None
        try:
            self._prepare(tables)
        except CanalError as error:
            self.close()
            kind = MetaUnavailable if isinstance(error, ConnectionLost) else ConfigError
            raise kind(self._explained(error)) from None

    def _prepare(self, tables: dict[str, str]) -> None:
        """Make what is not there. A user that may not make it may use what is there."""
        try:
            for name in tables:
                self._run(f"select 1 from {{d}}.{name} limit 0")
        except ConnectionLost:
            raise
        except SourceError:
            with contextlib.suppress(PrivilegeMissing):  # the database may be there
                self._run("create database if not exists {d}")
            for name, columns in tables.items():
                self._run(f"create table if not exists {{d}}.{name} ({columns}) engine=InnoDB")

    def rows(self, sql: str, *values: object) -> list[dict[str, Any]]:
        """Run a statement and return its rows; once more over a new connection if the first was
        lost. Raises MetaUnavailable."""
        return self._again_if_lost(lambda: self._run(sql, *values))

    def changed(self, sql: str, *values: object) -> int:
        """Run a statement; how many rows it changed."""
        return self._again_if_lost(lambda: self._changed(sql, *values))

    def changed_and_id(self, sql: str, *values: object) -> tuple[int, int]:
        """Return the count of changed rows and LAST_INSERT_ID, by which a statement tells what it
        has written."""

        def statements() -> tuple[int, int]:
            count = self._changed(sql, *values)
            return count, int(self._run("select last_insert_id() id")[0]["id"])

        return self._again_if_lost(statements)

    def _changed(self, sql: str, *values: object) -> int:
        self._run(sql, *values)
        return int(self._connection.affected_rows())

    def _run(self, sql: str, *values: object) -> list[dict[str, Any]]:
        if self._connection is None:
            self._connection = connect(self._login)
        # Texts of the caller are values, never part of the statement.
        statement = sql.replace("{d}", self._database)
        size = sum(len(value) for value in values if isinstance(value, str | bytes))
        if size <= _LARGE:
            return query(self._connection, self._login, statement, *values)
        self._refuse_too_long(statement, values)
        with self._patient(size):
            return query(self._connection, self._login, statement, *values)

    @contextlib.contextmanager
    def _patient(self, size: int) -> Iterator[None]:
        """Wait longer for a statement of that size: it is sent, parsed and written first. One that
        always ends too late would be repeated without end."""
        connection, usual_s = self._connection, max(1, round(self._login.read_timeout_s))
        connection._read_timeout = connection._write_timeout = usual_s + size / _BYTES_PER_S
        try:
            yield
        finally:
            connection._read_timeout = connection._write_timeout = usual_s

    def _refuse_too_long(self, statement: str, values: Sequence[object]) -> None:
        """Raises MetaUnavailable: the server would not take it. It ends the connection then, and
        some servers do not say why."""
        rows = query(self._connection, self._login, "select @@max_allowed_packet packet_bytes")
        most = int(rows[0]["packet_bytes"])
        text: str = self._connection.cursor().mogrify(statement, values)
        size = len(text.encode(errors="surrogateescape"))
        if size >= most:
            wanted = min(max(64 << 20, 2 * size), 1 << 30)
            raise MetaUnavailable(
                f"a record makes a statement of {size} bytes, and the server's max_allowed_packet "
                f"is {most}; run: SET GLOBAL max_allowed_packet = {wanted}, and "
                "keep it in the server's configuration. The record is written as soon as it fits"
            )

    def _again_if_lost(self, operation: Callable[[], T]) -> T:
        """Run; once more on a new connection if the old one has ended, but not after a server that
        did not answer. Raises MetaUnavailable."""
        began_s = time.monotonic()
        try:
            try:
                return operation()
            except ConnectionLost:
                if time.monotonic() - began_s > self._login.read_timeout_s / 2:
                    raise
                self.close()
                return operation()
        except CanalError as error:
            self.close()
            raise MetaUnavailable(self._explained(error)) from None

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close()

    def _explained(self, error: CanalError) -> str:
        text = str(error)
        if isinstance(error, PrivilegeMissing):
            text = text.partition("; run:")[0] + (
                f"; run: GRANT CREATE, SELECT, INSERT, UPDATE, DELETE ON {self._database}.* TO "
                f"'{self._login.username}'@'%'"
            )
        return f"{self.where} cannot be used: {text}"


def marks(rows: Sequence[Sequence[object]]) -> str:
    """`(%s, %s), (%s, %s)` for so many rows of values."""
    return ", ".join("(" + ", ".join(["%s"] * len(row)) + ")" for row in rows)
