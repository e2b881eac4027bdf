"""Every table of a server at one place of its log: the start of a schema history.

The catalog has no position of its own. So it is read twice, with the log's end asked for in
between: where both readings agree, the tables were so at that position. A server makes a DDL
visible in catalog and log some moments apart, hence the pauses. Raises SourceError kinds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from ray_canal.binlog.charsets import canonical
from ray_canal.binlog.chunk import RawChunk
from ray_canal.config import SourceConfig
from ray_canal.driver.catalog import Catalog, column_of_row
from ray_canal.driver.server_log import ServerLog
from ray_canal.errors import ServerSettingRefused
from ray_canal.protocol.position import EntryPosition, journal_key
from ray_canal.protocol.schema_record import CatalogSnapshot, TableState
from ray_canal.protocol.table_meta import TableMeta

_PAUSE_S = 0.05
_READINGS_MAX = 20
_CHUNK_BYTES = 4 << 20

_NOT_SYSTEM = (
    "TABLE_SCHEMA NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys',"
    " 'mysql_innodb_cluster_metadata')"
)
_TABLES = (
    "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, TABLE_COLLATION FROM information_schema.TABLES"
    " WHERE {which} AND TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED', 'SEQUENCE')"
)
_COLUMNS = (
    "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, IS_NULLABLE, COLUMN_KEY,"
    " CHARACTER_SET_NAME, CHARACTER_MAXIMUM_LENGTH, NUMERIC_PRECISION, NUMERIC_SCALE,"
    " DATETIME_PRECISION, EXTRA{more} FROM information_schema.COLUMNS WHERE {which}"
    " ORDER BY TABLE_SCHEMA, TABLE_NAME, ORDINAL_POSITION"
)
_KEYS = (
    "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME FROM information_schema.STATISTICS"
    " WHERE {which} AND INDEX_NAME = 'PRIMARY'"
)
_DATABASES = "SELECT SCHEMA_NAME, DEFAULT_CHARACTER_SET_NAME FROM information_schema.SCHEMATA"

_Tables = tuple[tuple[TableState, ...], dict[str, str]]


class CatalogTables:
    """See parse/schema_keeper.py's LiveCatalog."""

    def __init__(self, config: SourceConfig, sleep: Callable[[float], None] = time.sleep) -> None:
        self._catalog = Catalog(config)
        self._config = config
        self._address = config.address
        self._sleep = sleep

    def position(self) -> EntryPosition:
        """Where the log ends now."""
        return self._catalog.position()

    def snapshot(self) -> CatalogSnapshot:
        """Every table that the user may see. Raises ServerSettingRefused: tables change faster
        than they can be read."""
        before = self._read(_NOT_SYSTEM)
        for _ in range(_READINGS_MAX):
            self._sleep(_PAUSE_S)
            position = self._catalog.position()
            self._sleep(_PAUSE_S)
            after = self._read(_NOT_SYSTEM)
            if before == after:
                tables, charsets = after
                return CatalogSnapshot(position.journal_name, position.position, tables, charsets)
            before = after
        raise ServerSettingRefused(
            f"MySQL at {self._address}: its tables were altered during each of {_READINGS_MAX} "
            "readings of the catalog; start when fewer DDL statements run"
        )

    def table_now(self, schema: str, table: str) -> CatalogSnapshot:
        """One table, or none, and where the log ended after it was read."""
        tables, charsets = self._read("TABLE_SCHEMA = %s AND TABLE_NAME = %s", schema, table)
        self._sleep(_PAUSE_S)
        position = self._catalog.position()
        return CatalogSnapshot(position.journal_name, position.position, tables, charsets)

    def has_row_metadata(self) -> bool:
        """Whether rows come with column names now."""
        return (self._catalog.variable("binlog_row_metadata") or "").upper() == "FULL"

    def chunks(self, first: str, last: str) -> Iterator[RawChunk]:
        """The log from the beginning of a file to the present end of another one."""
        wake_out, wake_in = os.pipe()  # nobody wakes it
        try:
            log = ServerLog(self._config, self._catalog, wake_out)
            for name, _ in log.files():
                if journal_key(first) <= journal_key(name) <= journal_key(last):
                    yield from log.chunks(name, _CHUNK_BYTES)
        finally:
            os.close(wake_out)
            os.close(wake_in)

    def _read(self, which: str, *values: object) -> _Tables:
        mariadb = self._catalog.is_mariadb
        more = ", GENERATION_EXPRESSION" if mariadb else ""
        rows = self._catalog.rows
        columns: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for row in rows(_COLUMNS.format(which=which, more=more), *values):
            columns.setdefault(_name(row), []).append(row)
        keys = {(*_name(r), r["COLUMN_NAME"]) for r in rows(_KEYS.format(which=which), *values)}
        charsets = {
            str(r["SCHEMA_NAME"]): canonical(str(r["DEFAULT_CHARACTER_SET_NAME"]))
            for r in rows(_DATABASES)
        }
        tables = tuple(
            _state(row, columns[_name(row)], keys)
            for row in sorted(rows(_TABLES.format(which=which), *values), key=_name)
            if _name(row) in columns
        )
        return tables, charsets

    def close(self) -> None:
        self._catalog.close()


def _name(row: dict[str, Any]) -> tuple[str, str]:
    return str(row["TABLE_SCHEMA"]), str(row["TABLE_NAME"])


def _state(
    row: dict[str, Any], columns: list[dict[str, Any]], keys: set[tuple[str, str, str]]
) -> TableState:
    name = _name(row)
    found = tuple(
        column_of_row(column, is_key=(*name, column["COLUMN_NAME"]) in keys) for column in columns
    )
    periods = [str(c.get("GENERATION_EXPRESSION") or "").upper() for c in columns]
    hidden = row["TABLE_TYPE"] == "SYSTEM VERSIONED" and "ROW START" not in periods
    charset = str(row["TABLE_COLLATION"] or "").partition("_")[0]
    return TableState(TableMeta(*name, found), canonical(charset), hidden)
