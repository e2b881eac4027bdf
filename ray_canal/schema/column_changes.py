"""Changes of a table's columns by one statement, for those who hold its rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ray_canal.model.table_meta import ColumnMeta
from ray_canal.schema.ddl.alter_table import Alteration
from ray_canal.schema.ddl.column_definition import Definition
from ray_canal.schema.ddl.default_value import Constant, implicit_value
from ray_canal.schema.table_state import TableState

Columns = Mapping[str, ColumnMeta]
"""Columns of a version by their names in lower case."""


class ColumnChanges(NamedTuple):
    """See SchemaChange."""

    retyped: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    filled: tuple[tuple[str, Constant | None], ...] = ()
    remade: tuple[str, ...] = ()
    added: tuple[str, ...] = ()


def column_changes(
    old: TableState | None, new: TableState | None, change: Alteration | None
) -> ColumnChanges:
    """Compare two versions of a table; `change`: the ALTER TABLE between them, if it was one."""
    if old is None or new is None or old.problem or new.problem:
        return ColumnChanges()
    types = {column.name: column.mysql_type for column in old.columns}
    retyped = tuple(c.name for c in new.columns if types.get(c.name, c.mysql_type) != c.mysql_type)
    if change is None:
        return ColumnChanges(retyped)
    known = {column.name.lower(): column for column in old.columns}
    now = {column.name.lower(): column for column in new.columns}
    renamed = _renamed(known, now, change)
    kept = known.keys() - change.dropped - {name.lower() for name, _ in renamed}
    placed = {d.name.lower(): d for name, d in change.placed if not name}
    added = {name: placed[name] for name in placed if name in now and name not in kept}
    remade = tuple(now[name].name for name in added if name in change.dropped)
    names = tuple(now[name].name for name in added)
    return ColumnChanges(retyped, renamed, _filled(added, now), remade, names)


def _renamed(
    known: Columns, now: Columns, change: Alteration
) -> tuple[tuple[str, str], ...]:
    """The columns that have another name now, by it. A change of letters' case is none."""
    pairs = {**change.renamed_columns, **{name: d.name for name, d in change.placed if name}}
    return tuple(
        (known[name].name, now[to.lower()].name)
        for name, to in pairs.items()
        if name in known and to.lower() in now and name != to.lower()
    )


def _filled(
    added: Mapping[str, Definition], now: Columns
) -> tuple[tuple[str, Constant | None], ...]:
    found: list[tuple[str, Constant | None]] = []
    for name, definition in added.items():
        column = now[name]
        if definition.is_computed:
            found.append((column.name, None))
        elif definition.default is not None:
            found.append((column.name, definition.default))
        elif not column.nullable:
            found.append((column.name, implicit_value(column)))
    return tuple(found)
