"""TABLE_MAP events: the column types of the rows that follow, and MySQL 8's row metadata.

Stub: the record; the parser follows.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TableMap:
    """One TABLE_MAP event. Tuples have one item per column, in ordinal order.

    `types` are real types (ENUM and SET told apart from STRING), `metadata` one integer per column
    (0 where the type has none). The optional parts are None (or empty) where the server did not
    write them: `unsigned`, `collations` (0: the column has no character set), `names`, `labels`,
    `geometry_types`, `visible`. `primary_key` holds column indexes, None: unknown.
    """

    table_id: int
    schema: str
    table: str
    types: tuple[int, ...]
    metadata: tuple[int, ...]
    nullable: tuple[bool, ...]
    unsigned: tuple[bool, ...] | None = None
    collations: tuple[int, ...] | None = None
    names: tuple[str, ...] | None = None
    labels: tuple[tuple[str, ...], ...] | None = None
    geometry_types: tuple[int, ...] | None = None
    primary_key: tuple[int, ...] | None = None
    visible: tuple[bool, ...] | None = None

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.table}"
