"""Columns and indexes of a server's tables as they are now.

A question for each table takes milliseconds, and some seconds for a thousand of them. So where many
tables of a database are wanted, they are asked for at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from ray_canal.model.schema_record import TableState
from ray_canal.schema.names import Name
from ray_canal.source.catalog import Catalog
from ray_canal.source.catalog_tables import CatalogTables

Indexes = dict[str, list[dict[str, Any]]]
"""Name of an index, PRIMARY first -> its columns, as information_schema.STATISTICS has them."""

FEW = 3
"""So many tables of a database are asked for one by one."""
_PART_MIN = 4
"""Else it is read as a whole if no more than so many times as many tables are in it."""
_COLUMNS = (
    "TABLE_NAME", "INDEX_NAME", "COLUMN_NAME", "NON_UNIQUE", "SUB_PART", "NULLABLE", "INDEX_TYPE",
    "IS_VISIBLE", "IGNORED", "COLLATION",
)  # fmt: skip
_OF_A_TABLE = (  # what a server may not read by is in a column that only it has
    "SELECT * FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
    " ORDER BY INDEX_NAME <> 'PRIMARY', INDEX_NAME, SEQ_IN_INDEX"
)
_OF_A_DATABASE = (  # without CARDINALITY, for which MySQL opens each table
    "SELECT {columns} FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = %s"
    " ORDER BY TABLE_NAME, INDEX_NAME <> 'PRIMARY', INDEX_NAME, SEQ_IN_INDEX"
)
_COLLATIONS = (
    "SELECT TABLE_NAME, COLUMN_NAME, COLLATION_NAME FROM information_schema.COLUMNS"
    " WHERE TABLE_SCHEMA = %s AND COLLATION_NAME IS NOT NULL"
)


class Descriptions:
    """For one look at tables: what was asked for is kept."""

    def __init__(
        self,
        catalog: Catalog,
        tables: CatalogTables,
        wanted: Iterable[Name] = (),
        there: Iterable[Name] = (),
    ) -> None:
        """`wanted`: names of what will be asked for; `there`: of all tables of their databases."""
        self._catalog = catalog
        self._tables = tables
        in_all = Counter(schema for schema, _ in there)
        count = Counter(schema for schema, _ in wanted)
        self._whole = {
            schema for schema, n in count.items() if n > FEW and in_all[schema] <= _PART_MIN * n
        }
        self._states: dict[str, dict[str, TableState]] = {}
        self._indexes: dict[str, dict[str, Indexes]] = {}
        self._collations: dict[str, dict[str, dict[str, str]]] = {}

    def state(self, schema: str, table: str) -> TableState | None:
        """Return a table; None: there is none, or the user may not see it. Raises SourceError
        kinds."""
        if schema not in self._whole:
            return self.state_now(schema, table)
        if schema not in self._states:
            states = self._tables.tables_of(schema)
            self._states[schema] = {
                one.meta.table: one for one in states if one.meta.schema == schema
            }
        return self._states[schema].get(table)

    def state_now(self, schema: str, table: str) -> TableState | None:
        """Return the same of this moment."""
        return self._tables.table(schema, table)

    def indexes(self, schema: str, table: str) -> Indexes:
        """Return a table's indexes. Raises SourceError kinds."""
        if schema not in self._whole:
            return _grouped(self._catalog.rows(_OF_A_TABLE, schema, table))
        if schema not in self._indexes:
            found = self._catalog.rows("SHOW COLUMNS FROM information_schema.STATISTICS")
            known = {str(row["Field"]) for row in found}
            columns = ", ".join(name for name in _COLUMNS if name in known)
            of_tables: dict[str, list[dict[str, Any]]] = {}
            for row in self._catalog.rows(_OF_A_DATABASE.format(columns=columns), schema):
                of_tables.setdefault(str(row["TABLE_NAME"]), []).append(row)
            self._indexes[schema] = {name: _grouped(rows) for name, rows in of_tables.items()}
        return self._indexes[schema].get(table, {})

    def collations(self, schema: str, table: str) -> dict[str, str]:
        """Return the collation of each text column of a table. Raises SourceError kinds."""
        if schema not in self._whole:
            rows = self._catalog.rows(f"{_COLLATIONS} AND TABLE_NAME = %s", schema, table)
            return _named(rows).get(table, {})
        if schema not in self._collations:
            self._collations[schema] = _named(self._catalog.rows(_COLLATIONS, schema))
        return self._collations[schema].get(table, {})


def _named(rows: Iterable[dict[str, Any]]) -> dict[str, dict[str, str]]:
    """Return collations by table and column; servers have two names for one character set."""
    found: dict[str, dict[str, str]] = {}
    for row in rows:
        collation = str(row["COLLATION_NAME"]).lower().replace("utf8mb3_", "utf8_")
        found.setdefault(str(row["TABLE_NAME"]), {})[str(row["COLUMN_NAME"])] = collation
    return found


def _grouped(rows: Iterable[dict[str, Any]]) -> Indexes:
    indexes: Indexes = {}
    for row in rows:
        indexes.setdefault(str(row["INDEX_NAME"]), []).append(row)
    return indexes
