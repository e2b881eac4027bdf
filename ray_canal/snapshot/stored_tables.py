"""Which tables of InnoDB hold the rows of a name now.

EXCHANGE PARTITION gives the rows of a partition to another table, and a read view from before shows
them under the new name. Servers give neither table a new date; but InnoDB has a number for each of
its tables, of which every partition is one, and that goes with the rows.
"""

from __future__ import annotations

import re

from ray_canal.errors import PrivilegeMissing
from ray_canal.schema.names import Name
from ray_canal.source.catalog import Catalog

Stored = dict[Name, frozenset[tuple[str, int]]]
"""Name, as `stored_name` has it -> (name in InnoDB, number) of what holds its rows."""

_SINCE_8 = "SELECT NAME, TABLE_ID FROM information_schema.INNODB_TABLES"
_BEFORE_8 = "SELECT NAME, TABLE_ID FROM information_schema.INNODB_SYS_TABLES"
_WRITTEN = re.compile("@([0-9a-f]{4})|@(..)")
_OTHER = "?"
"""Stands for any character outside ASCII: servers write some of them by a table of their own."""


def stored_now(catalog: Catalog) -> Stored | None:
    """Return what holds the rows of each table now; None: the account may not see it (PROCESS).
    Raises SourceError kinds."""
    is_old = catalog.is_mariadb or int(catalog.version.split(".")[0]) < 8
    found: dict[Name, set[tuple[str, int]]] = {}
    try:
        for row in catalog.rows(_BEFORE_8 if is_old else _SINCE_8):
            name = str(row["NAME"])
            schema, _, table = name.partition("/")
            of = stored_name(_decoded(schema), _decoded(table.partition("#")[0]))
            found.setdefault(of, set()).add((name, int(row["TABLE_ID"])))
    except PrivilegeMissing:
        return None
    return {name: frozenset(each) for name, each in found.items()}


def stored_name(schema: str, table: str) -> Name:
    """Return a table's name as far as it can be compared: without case, and without what letters
    outside ASCII are. Several tables may have the same one."""
    return _plain(schema), _plain(table)


def _plain(name: str) -> str:
    return "".join(c if c.isascii() else _OTHER for c in name.lower())


def _decoded(name: str) -> str:
    """Return the name in a file's name; `@@@` marks names that Windows reserves."""
    return _WRITTEN.sub(lambda m: chr(int(m[1], 16)) if m[1] else _OTHER, name.removesuffix("@@@"))
