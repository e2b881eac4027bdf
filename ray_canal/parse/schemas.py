"""Which schema a TABLE_MAP's table has: from row metadata, given CREATE TABLEs, or the server's
catalog."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

from ray_canal.binlog import types
from ray_canal.binlog.table_map import TableMap, table_meta_from_metadata
from ray_canal.errors import TableMetaMismatch
from ray_canal.parse.create_table import parse_tables
from ray_canal.protocol.table_meta import ColumnMeta, TableMeta

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
    types.MARIADB_VARCHAR_COMPRESSED: types.VARCHAR,
    types.MARIADB_BLOB_COMPRESSED: types.BLOB,
}
"""Types that are one type to a schema: old and new temporal formats, sizes of BLOB."""


_WIDTH = re.compile(r"\b(tinyint|smallint|mediumint|int|bigint|year)\(\d+\)")
_FLOAT_DIGITS = re.compile(r"\b(float|double)\(\d+,\d+\)")
_RESOLVED_MAX = 4096


class SchemaRegistry:
    """Resolves tables.

    Names, keys and signs come from row metadata where the binlog has it; then a given schema or the
    catalog only lends the exact type text (`tinyint(1)`), which row metadata lacks. Else the given
    schema counts, then the catalog, which is asked once per table until a DDL. A schema from the
    catalog is today's: where it does not fit the TABLE_MAP it is refused, not guessed.
    """

    def __init__(self, create_table_sql: str = "", catalog: Catalog | None = None) -> None:
        self._given: dict[tuple[str, str], TableMeta] = {
            (meta.schema, meta.table): meta for meta in parse_tables(create_table_sql)
        }
        self._catalog = catalog
        self._known: dict[tuple[str, str], TableMeta | None] = {}
        self._resolved: dict[TableMap, TableMeta] = {}

    def resolve(self, table_map: TableMap) -> TableMeta:
        """The table's schema. Raises TableMetaMismatch: none is known, or it does not fit; and what
        the catalog raises."""
        found = self._resolved.get(table_map)
        if found is None:
            from_row = table_meta_from_metadata(table_map)
            found = self._look_up(table_map) if from_row is None else self._detailed(
                from_row, table_map
            )
            if len(self._resolved) >= _RESOLVED_MAX:
                self._resolved.clear()
            self._resolved[table_map] = found
        return found

    def _detailed(self, from_row: TableMeta, table_map: TableMap) -> TableMeta:
        """Row metadata's schema with the known schema's type texts, column by column where they
        agree."""
        known = self._given_meta(table_map) or self._catalog_meta(table_map)
        if known is None or len(known.columns) != len(from_row.columns):
            return from_row
        columns = tuple(
            dataclasses.replace(mine, mysql_type=theirs.mysql_type)
            if mine.name == theirs.name and same_type(mine, theirs)
            else mine
            for mine, theirs in zip(from_row.columns, known.columns, strict=True)
        )
        return dataclasses.replace(from_row, columns=columns)

    def _look_up(self, table_map: TableMap) -> TableMeta:
        meta = self._given_meta(table_map) or self._catalog_meta(table_map)
        if meta is None:
            places = ["the schema text"] * bool(self._given) + ["the catalog"] * bool(self._catalog)
            where = f" and the table is not in {' or in '.join(places)}" if places else ""
            raise TableMetaMismatch(
                f"no column names for table {table_map.full_name}: the binlog has no row metadata"
                f"{where}; set binlog_row_metadata=FULL on the server, or give its CREATE TABLE "
                "(decode --schema, source.schema_sql)"
            )
        problem = misfit(table_map, meta)
        if problem and self._catalog is not None:
            self._known.pop((table_map.schema, table_map.table), None)
            meta = self._catalog_meta(table_map) or meta
            problem = misfit(table_map, meta)
        if problem:
            raise TableMetaMismatch(
                f"the known schema of {table_map.full_name} does not fit its rows: {problem}; the "
                "table was altered since, and names are not guessed. Set binlog_row_metadata=FULL "
                "on the server, or give the CREATE TABLE of that time (source.schema_sql)"
            )
        return meta

    def changed(self, schema: str) -> None:
        """A DDL ran in this schema: what the catalog said of it is out of date."""
        for key in [key for key in self._known if key[0] == schema]:
            del self._known[key]
        self._resolved.clear()

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
            return (
                f"column {column.name} is {column.mysql_type}, the rows have "
                f"{types.type_name(kind)}"
            )
    return ""


def same_type(mine: ColumnMeta, theirs: ColumnMeta) -> bool:
    """Whether two types differ in nothing but what the binlog does not tell (display widths)."""
    if mine.labels or theirs.labels:
        return mine.type_code == theirs.type_code and mine.labels == theirs.labels
    return _plain(mine.mysql_type) == _plain(theirs.mysql_type)


def _plain(mysql_type: str) -> str:
    text = _FLOAT_DIGITS.sub(r"\1", _WIDTH.sub(r"\1", mysql_type.lower()))
    text = text.replace(" zerofill", "").replace("geometrycollection", "geomcollection")
    return re.sub(r"\b(vector|float)\(\d+\)", r"\1", text)


def _kind(code: int) -> int:
    return _KINDS.get(code, code)
