"""Targets of random mirrors, and what they hold: rows as SELECT shows them at the source."""

from __future__ import annotations

import contextlib
import datetime as dt
import ipaddress
import struct
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol

import duckdb
import psycopg
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from sqlalchemy.exc import OperationalError

from tests.random_columns import Kind
from tests.random_mirror import MirroredTable
from tests.servers import Server
from tests.servers.postgres import PostgresServer
from tests.unit.sinks.lakes.test_lake import options

REFUSES = {
    "delta": ("swap",),
    "iceberg": ("swap",),
    "duckdb": ("letters",),
    "mysql56": ("rename_column", "column_letters", "take_name"),
}
"""Changes that a target stops at, as its documents say."""


class Target(Protocol):
    kind: str

    def sink(self) -> dict[str, Any]:
        """Settings of a sink that writes to it."""
        ...

    def rows(self, table: MirroredTable) -> list[list[Any]]:
        """A table's rows in the order of their ids: id, k, and columns as SELECT shows them.
        Raises LookupError: it is not there."""
        ...

    def columns(self, table: str) -> list[str]: ...
    def clean(self) -> None: ...


def shown(kind: Kind, value: Any, has_labels: bool) -> Any:
    """A value as a mirror can have it: an irregular date is NULL there, and so is an ENUM's error
    where a column has labels."""
    value = kind.received(value)
    if kind.ddl.startswith("enum") and has_labels and not value:
        return None
    if kind.ddl.startswith("inet") and value is not None:
        return str(ipaddress.ip_address(value))
    return value if value is None or kind.regular(value) else None


def held(
    server: Server, database: str, table: MirroredTable, has_labels: bool = True
) -> list[list[Any]]:
    """A table's rows in MySQL. `has_labels`: the target's ENUM is one, too."""
    kinds = list(table.columns.values())
    rows = server.execute("set time_zone = '+00:00'", table.select.format(database))
    return [
        [*row[:2], *(shown(k, v, has_labels) for k, v in zip(kinds, row[2:], strict=True))]
        for row in rows
    ]


class MySqlTarget:
    def __init__(self, server: Server, name: str) -> None:
        self.server, self.name, self.kind = server, name, server.kind

    def sink(self) -> dict[str, Any]:
        login = {"address": self.server.address, "username": "root"}
        names = {"database": self.name, "cursor_database": f"{self.name}_canal"}
        return {"type": "mysql", "mirror": {**login, **names}}

    def rows(self, table: MirroredTable) -> list[list[Any]]:
        return held(self.server, self.name, table)

    def columns(self, table: str) -> list[str]:
        return [row[0] for row in self.server.execute(f"SHOW COLUMNS FROM {self.name}.{table}")]

    def clean(self) -> None:
        names = (self.name, f"{self.name}_canal")
        self.server.execute(*(f"DROP DATABASE IF EXISTS {each}" for each in names))


def seen(kind: Kind, value: Any) -> Any:
    """A value of Arrow's, or of a driver's, as SELECT shows it at the source."""
    if value is None:
        return None
    word = kind.ddl.partition("(")[0].split()[0]
    if word == "time" and not isinstance(value, dt.timedelta):
        micros = value if isinstance(value, int) else value.nanoseconds // 1000
        value = dt.timedelta(days=getattr(value, "days", 0), microseconds=micros)
    elif word == "set" and isinstance(value, str):
        value = value.split(",") if value else []
    elif word == "decimal":
        return Decimal(value)
    elif word == "float":
        return struct.unpack("f", struct.pack("f", value))[0]
    elif word.startswith("inet"):
        return str(ipaddress.ip_interface(str(value)).ip)
    elif word == "uuid":
        return str(value)
    return kind.seen(value)


def as_seen(table: MirroredTable, rows: Iterable[dict[str, Any]]) -> list[list[Any]]:
    kinds = table.columns.items()
    found = []
    for row in rows:
        lower = {name.lower(): value for name, value in row.items()}
        values = (seen(kind, lower[name.lower()]) for name, kind in kinds)
        found.append([row["id"], row["k"], *values])
    return sorted(found, key=lambda row: int(row[0]))


class PostgresTarget:
    kind = "postgres"

    def __init__(self, server: PostgresServer, name: str) -> None:
        self.server, self.name = server, name

    def sink(self) -> dict[str, Any]:
        login = {"address": self.server.address, "username": "postgres"}
        names = {"database": self.name, "cursor_database": f"{self.name}_canal"}
        return {"type": "postgres", "mirror": {**login, **names}}

    def _read(self, table: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        with self.server.connect() as connection:
            connection.execute("SET TIME ZONE 'UTC'")
            try:
                cursor = connection.execute(f'SELECT * FROM {self.name}."{table}"'.encode())
            except psycopg.Error as error:
                raise LookupError(error) from None
            assert cursor.description is not None
            return [column.name for column in cursor.description], cursor.fetchall()

    def rows(self, table: MirroredTable) -> list[list[Any]]:
        names, rows = self._read(table.name)
        return as_seen(table, (dict(zip(names, row, strict=True)) for row in rows))

    def columns(self, table: str) -> list[str]:
        return self._read(table)[0]

    def clean(self) -> None:
        names = (self.name, f"{self.name}_canal")
        self.server.execute(*(f"DROP SCHEMA IF EXISTS {each} CASCADE" for each in names))


class ArrowTarget:
    """A target whose tables are read as Arrow."""

    def __init__(self, kind: str, folder: Path, name: str) -> None:
        self.kind, self.folder, self.name = kind, folder, name

    def sink(self) -> dict[str, Any]:
        if self.kind == "duckdb":
            mirror = {"database": self.name, "cursor_database": "canal"}
            return {"type": "duckdb", "path": str(self.folder / "file.duckdb"), "mirror": mirror}
        return {"type": self.kind, "lake": {**options(self.kind, self.folder), "database": "copy"}}

    def _read(self, table: str) -> pa.Table:
        try:
            if self.kind == "delta":
                place = self.folder / "lake" / "copy" / table
                return DeltaTable(str(place)).to_pyarrow_table()
            if self.kind == "iceberg":
                settings = options("iceberg", self.folder)["options"]
                with load_catalog("ray_canal", **settings) as catalog:
                    return catalog.load_table(("copy", table)).scan().to_arrow()
            # the sink has the file open, in this process
            with duckdb.connect(str(self.folder / "file.duckdb")) as connection:
                connection.execute("SET TimeZone = 'UTC'")
                return connection.sql(f"SELECT * FROM file.{self.name}.{table}").to_arrow_table()
        except (TableNotFoundError, NoSuchTableError, duckdb.Error, OperationalError) as error:
            raise LookupError(error) from None  # or the sink makes the catalog at this moment

    def rows(self, table: MirroredTable) -> list[list[Any]]:
        return as_seen(table, self._read(table.name).to_pylist())

    def columns(self, table: str) -> list[str]:
        return list(self._read(table).column_names)

    def clean(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            (self.folder / "file.duckdb").unlink()
