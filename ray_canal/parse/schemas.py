"""Which schema a TABLE_MAP's table has: from row metadata, given CREATE TABLEs, or the server's catalog."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from ray_canal.binlog import types
from ray_canal.binlog.table_map import TableMap, table_meta_from_metadata
from ray_canal.errors import TableMetaMismatch
from ray_canal.parse.create_table import parse_tables
from ray_canal.protocol.table_meta import TableMeta

Catalog = Callable[[str, str], TableMeta | None]

_KINDS = {
    types.TIMESTAMP: types.TIMESTAMP2,
    types.DATETIME: types.DATETIME2,
    types.TIME: types.TIME2,
    types.NEWDATE: types.DATE,
    types.VAR_STRING: types.VARCHAR,
    types.TINY_BLOB: types.BLOB,
    types.MEDIUM_BLOB: types.BLOB,
    types.LONG_BLOB: types.BLOB,
}
"""Types that are one type to a schema: old and new temporal formats, sizes of BLOB."""


class SchemaRegistry:
    """Resolves tables. Row metadata wins for names; the catalog is asked once per table until a DDL.

    A schema from the catalog is today's: where it does not fit the TABLE_MAP it is refused, not guessed.
    """

    def __init__(self, create_table_sql: str = "", catalog: Catalog | None = None) -> None:
        self._given: dict[tuple[str, str], TableMeta] = {
            (meta.schema, meta.table): meta for meta in parse_tables(create_table_sql)
        }
        self._catalog = catalog
        self._known: dict[tuple[str, str], TableMeta | None] = {}

    def resolve(self, table_map: TableMap) -> TableMeta:
        """The table's schema. Raises TableMetaMismatch: none is known, or it does not fit."""
        from_row = table_meta_from_metadata(table_map)
        if from_row is not None:
            return from_row
        meta = self._given_meta(table_map) or self._catalog_meta(table_map)
        if meta is None:
            where = "in the server's catalog" if self._catalog else "in the schema text"
            raise TableMetaMismatch(
                f"no column names for table {table_map.full_name}: the binlog has no row metadata and "
                f"the table is not {where}; set binlog_row_metadata=FULL on the server, or give its "
                "CREATE TABLE (decode --schema, source.schema_sql)"
            )
        problem = misfit(table_map, meta)
        if problem and self._catalog is not None:
            self._known.pop((table_map.schema, table_map.table), None)
            meta = self._catalog_meta(table_map) or meta
            problem = misfit(table_map, meta)
        if problem:
            raise TableMetaMismatch(
                f"the known schema of {table_map.full_name} does not fit its rows: {problem}; the table "
                "was altered since, and names are not guessed. Set binlog_row_metadata=FULL on the "
                "server, or give the CREATE TABLE of that time (source.schema_sql)"
            )
        return meta

    def changed(self, schema: str) -> None:
        """A DDL ran in this schema: what the catalog said of it is out of date."""
        for key in [key for key in self._known if key[0] == schema]:
            del self._known[key]

    def _given_meta(self, table_map: TableMap) -> TableMeta | None:
        found = self._given.get((table_map.schema, table_map.table))
        if found is None:
            found = self._given.get(("", table_map.table))
            if found is not None:
                found = dataclasses.replace(found, schema=table_map.schema)
        return found

    def _catalog_meta(self, table_map: TableMap) -> TableMeta | None:
        key = (table_map.schema, table_map.table)
        if self._catalog is None:
            return None
        if key not in self._known:
            self._known[key] = self._catalog(*key)
        return self._known[key]


def misfit(table_map: TableMap, meta: TableMeta) -> str:
    """Why a schema cannot be that of these rows; empty when it can."""
    if len(meta.columns) != len(table_map.types):
        return f"{len(meta.columns)} columns are known, the rows have {len(table_map.types)}"
    for column, kind in zip(meta.columns, table_map.types, strict=True):
        if _kind(column.type_code) != _kind(kind):
            name = types.TYPE_NAMES.get(kind, str(kind)) if hasattr(types, "TYPE_NAMES") else kind
            return f"column {column.name} is {column.mysql_type}, the rows have type {name}"
    return ""


def _kind(code: int) -> int:
    return _KINDS.get(code, code)
