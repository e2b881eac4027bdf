"""Look for tables whose rows foreign keys change without a word in the log.

InnoDB itself did ON DELETE CASCADE, SET NULL and the like, below what writes row events: in all of
MariaDB, in MySQL before 9.6, and after that with `innodb_native_foreign_keys` (MySQL manual,
"FOREIGN KEY Constraints").
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ray_canal.errors import CanalError
from ray_canal.source.catalog import Catalog
from ray_canal.source.catalog_tables import NOT_SYSTEM
from ray_canal.source.setting_checks import CheckResult, listed

_CHANGES_ROWS = re.compile(
    r"^\s*(CONSTRAINT .*)?FOREIGN KEY .* ON (DELETE|UPDATE) (CASCADE|SET )", re.MULTILINE
)


def check_foreign_keys(catalog: Catalog, admits: Callable[[str, str], bool]) -> CheckResult:
    """Check that no foreign key of the tables that a filter admits changes rows unseen."""
    name = "foreign keys"
    if (catalog.variable("innodb_native_foreign_keys") or "").upper() in ("OFF", "0"):
        return CheckResult(name, True, "the rows that they change are in the log")
    rows = catalog.rows(  # the catalog's table of rules shows none to who may only SELECT
        "SELECT DISTINCT TABLE_SCHEMA AS s, TABLE_NAME AS t FROM information_schema"
        f".KEY_COLUMN_USAGE WHERE {NOT_SYSTEM} AND REFERENCED_TABLE_NAME IS NOT NULL"
    )
    tables = sorted((str(row["s"]), str(row["t"])) for row in rows)
    found = [table for table in tables if admits(*table) and _changes_rows(catalog, *table)]
    if not found:
        return CheckResult(name, True, "none changes rows of these tables")
    names = listed(".".join(table) for table in found)
    return CheckResult(
        name,
        False,
        f"ON DELETE or ON UPDATE changes rows of {names}, and this server does not log that",
        "let the application change these rows itself, or MySQL 9.6 or later: else nobody is told, "
        "and a mirror keeps them until a new snapshot of these tables",
        advisory=True,
    )


def _changes_rows(catalog: Catalog, schema: str, table: str) -> bool:
    quoted = ".".join("`" + name.replace("`", "``") + "`" for name in (schema, table))
    try:
        row = catalog.rows(f"SHOW CREATE TABLE {quoted}")[0]
    except CanalError:
        return False  # it was dropped meanwhile
    return _CHANGES_ROWS.search(str(row.get("Create Table", ""))) is not None
