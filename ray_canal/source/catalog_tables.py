"""Every table of a server at one place of its log: the start of a schema history.

The catalog has no position of its own. So it is read twice, with the log's end asked for in
between: where both readings agree, the tables were so at that position. A server makes a DDL
visible in catalog and log some moments apart, hence the pauses. Raises SourceError kinds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from ray_canal.binlog.chunk import RawChunk
from ray_canal.config import SourceConfig
from ray_canal.errors import PositionNotFound, ServerSettingRefused, UnsupportedEvent
from ray_canal.model.position import EntryPosition
from ray_canal.model.schema_record import CatalogSnapshot, KeyState, TableState
from ray_canal.model.table_meta import ColumnMeta, SharedColumns, TableMeta
from ray_canal.source.catalog import Catalog, column_of_row
from ray_canal.source.start.log_file import read_head
from ray_canal.source.start.server_log import log_of_server
from ray_canal.types.charsets import canonical

_PAUSE_S = 0.05
_READINGS_MAX = 20
_CHUNK_BYTES = 4 << 20

NOT_SYSTEM = (
    "TABLE_SCHEMA NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys',"
    " 'mysql_innodb_cluster_metadata')"
)
_TABLES = (
    "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, TABLE_COLLATION, ENGINE"
    " FROM information_schema.TABLES"
    " WHERE {which} AND TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED', 'SEQUENCE')"
)
_COLUMNS = (
    "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, IS_NULLABLE,"
    " CHARACTER_SET_NAME, CHARACTER_MAXIMUM_LENGTH, NUMERIC_PRECISION, NUMERIC_SCALE,"
    " DATETIME_PRECISION, EXTRA{more} FROM information_schema.COLUMNS WHERE {which}"
    " ORDER BY TABLE_SCHEMA, TABLE_NAME, ORDINAL_POSITION"
)
_KEYS = (
    "SELECT TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, COLUMN_NAME, NON_UNIQUE, SUB_PART, INDEX_TYPE"
    " FROM information_schema.STATISTICS WHERE {which}{more}"
    " ORDER BY TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX"
)
_DATABASES = "SELECT SCHEMA_NAME, DEFAULT_CHARACTER_SET_NAME FROM information_schema.SCHEMATA"

_Tables = tuple[tuple[TableState, ...], dict[str, str]]


class CatalogTables:
    """The LiveCatalog (schema/keeper.py) of a server."""

    def __init__(self, config: SourceConfig, sleep: Callable[[float], None] = time.sleep) -> None:
        self._catalog = Catalog(config)
        self._config = config
        self._address = config.address
        self._sleep = sleep
        self._shared = SharedColumns()

    def position(self) -> EntryPosition:
        """Return where the log ends now."""
        return self._catalog.position()

    def snapshot(self) -> CatalogSnapshot:
        """Every table that the user may see. Raises ServerSettingRefused: tables change faster
        than they can be read."""
        before = self._read(NOT_SYSTEM)
        for _ in range(_READINGS_MAX):
            self._sleep(_PAUSE_S)
            position = self._catalog.position()
            self._sleep(_PAUSE_S)
            after = self._read(NOT_SYSTEM)
            if before == after:
                tables, charsets = after
                return CatalogSnapshot(
                    position.journal_name,
                    position.position,
                    tables,
                    charsets,
                    position.gtid,
                    self.created_s(position.journal_name),
                )
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

    def table(self, schema: str, table: str) -> TableState | None:
        """One table as it is now; None: there is none, or the user may not see it."""
        tables, _ = self._read("TABLE_SCHEMA = %s AND TABLE_NAME = %s", schema, table)
        return tables[0] if tables else None

    def tables_of(self, schema: str) -> tuple[TableState, ...]:
        """Return all tables of a database as they are now."""
        return self._read("TABLE_SCHEMA = %s", schema)[0]

    def lower_case_table_names(self) -> int:
        """Return how the server compares names."""
        return self._catalog.lower_case_table_names()

    def files(self) -> list[str]:
        """The files of the log, in order."""
        return [name for name, _ in self._catalog.binlogs()]

    def created_s(self, journal_name: str) -> int:
        """Return when a file of the log was created; 0: there is no such file."""
        with log_of_server(self._config, self._catalog) as log:
            if journal_name not in dict(log.files()):
                return 0
            return read_head(log, journal_name).created_s

    def has_row_metadata(self) -> bool:
        """Return whether rows come with column names now."""
        return (self._catalog.variable("binlog_row_metadata") or "").upper() == "FULL"

    def chunks(self, first: str, last: str) -> Iterator[RawChunk]:
        """The log from the beginning of a file to the present end of another one."""
        with log_of_server(self._config, self._catalog) as log:
            names = [name for name, _ in log.files()]
            gone = [name for name in (first, last) if name not in names]
            if gone:
                raise PositionNotFound(f"MySQL at {self._address} has no {gone[0]} any more")
            for name in names[names.index(first) : names.index(last) + 1]:
                yield from log.chunks(name, _CHUNK_BYTES)

    def _read(self, which: str, *values: object) -> _Tables:
        mariadb = self._catalog.is_mariadb
        more = ", GENERATION_EXPRESSION" if mariadb else ""
        rows = self._catalog.rows
        keys: dict[tuple[str, str], list[dict[str, Any]]] = {}
        which_keys = "" if mariadb else " AND INDEX_NAME = 'PRIMARY'"
        for row in rows(_KEYS.format(which=which, more=which_keys), *values):
            keys.setdefault(_name(row), []).append(row)
        columns: dict[tuple[str, str], _Columns] = {}
        for row in self._catalog.each(_COLUMNS.format(which=which, more=more), *values):
            name = _name(row)
            if name not in columns:
                columns[name] = _Columns(self._shared, keys.get(name, []))
            columns[name].add(row)
        charsets = {
            str(r["SCHEMA_NAME"]): canonical(str(r["DEFAULT_CHARACTER_SET_NAME"]))
            for r in rows(_DATABASES)
        }
        tables = tuple(
            _state(row, columns[_name(row)], keys.get(_name(row), []), mariadb)
            for row in sorted(rows(_TABLES.format(which=which), *values), key=_name)
            if _name(row) in columns
        )
        return tables, charsets

    def close(self) -> None:
        self._catalog.close()


def _name(row: dict[str, Any]) -> tuple[str, str]:
    return str(row["TABLE_SCHEMA"]), str(row["TABLE_NAME"])


class _Columns:
    """Columns of one table, as their rows come: of all tables they are many. `problem`: why they
    cannot be known; those of other tables can. `periods`: MariaDB's columns by what they are."""

    def __init__(self, shared: SharedColumns, keys: list[dict[str, Any]]) -> None:
        self._shared = shared
        self._primary = {key["COLUMN_NAME"] for key in keys if key["INDEX_NAME"] == "PRIMARY"}
        self._found: list[ColumnMeta] = []
        self.problem = ""
        self.periods: dict[str, str] = {}

    def add(self, row: dict[str, Any]) -> None:
        name = row["COLUMN_NAME"]
        generated = str(row.get("GENERATION_EXPRESSION") or "").upper()
        if generated in ("ROW START", "ROW END"):
            self.periods[generated] = str(name)
        try:
            column = column_of_row(row, is_key=name in self._primary)
        except UnsupportedEvent as error:
            self.problem = self.problem or str(error)
        else:
            self._found.append(self._shared.one(column))

    @property
    def all(self) -> tuple[ColumnMeta, ...]:
        return self._shared.all(self._found)


def _state(
    row: dict[str, Any], columns: _Columns, keys: list[dict[str, Any]], mariadb: bool
) -> TableState:
    name = _name(row)
    charset = canonical(str(row["TABLE_COLLATION"] or "").partition("_")[0])
    if columns.problem:
        return TableState(TableMeta(*name, ()), charset, problem=columns.problem)
    periods = columns.periods
    hidden = row["TABLE_TYPE"] == "SYSTEM VERSIONED" and "ROW START" not in periods
    meta = TableMeta(*name, columns.all)
    state = TableState(meta, charset, hidden, row_end=periods.get("ROW END", ""))
    if not mariadb:
        return state
    engine = str(row["ENGINE"] or "").upper()
    others = _others(keys)
    hashes = sum(key.unique and key.algorithm == "HASH" for key in others)
    meta = replace(state.meta, hidden=0 if engine == "MEMORY" else hashes)
    return replace(state, meta=meta, keys=others, engine=engine)


def _others(rows: list[dict[str, Any]]) -> tuple[KeyState, ...]:
    """Every key but the primary one."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row["INDEX_NAME"] != "PRIMARY":
            found.setdefault(str(row["INDEX_NAME"]), []).append(row)
    return tuple(
        KeyState(
            name,
            tuple(str(part["COLUMN_NAME"]) for part in parts),
            tuple(int(part["SUB_PART"] or 0) for part in parts),
            not parts[0]["NON_UNIQUE"],
            "HASH" if parts[0]["INDEX_TYPE"] == "HASH" else "",
        )
        for name, parts in found.items()
    )
