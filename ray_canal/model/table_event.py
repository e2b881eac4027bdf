"""Effects of statements on all rows of a table (TRUNCATE, DROP, RENAME): no row event has them."""

from __future__ import annotations

from typing import NamedTuple

from ray_canal.model.table_meta import TableMeta

TRUNCATE, ERASE, RENAME, STATEMENT = "TRUNCATE", "ERASE", "RENAME", "STATEMENT"
"""All rows are gone; the table is gone; it has the rows of a table that had another name; rows were
changed by a statement that the log has as text, so which rows, and to what, it does not tell."""

ANY_TABLE = ("", "")
"""Name of what a statement changes that does not say which tables those are."""


class TableEffect(NamedTuple):
    """`other`: of RENAME the table's name before; of ERASE the name that it has now, if it was
    renamed. `ordinal`: number within its statement. `meta`: the columns until then; None: they are
    not known. `table` is empty where a statement does not say which tables it changes."""

    kind: str
    schema: str
    table: str
    other: tuple[str, str] | None = None
    ordinal: int = 0
    meta: TableMeta | None = None


class TableEvent(NamedTuple):
    """An effect at its place in a chunk: `entry` is the index of its statement's entry, `number`
    that of its table in ChunkInfo.tables."""

    entry: int
    number: int
    effect: TableEffect
