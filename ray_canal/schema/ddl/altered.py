"""Apply ALTER TABLE: its actions on a table's columns.

Columns are put together in the server's order: the old ones in place (dropped ones left out,
changed ones exchanged), then new and moved ones, in the statement's order, at the end, FIRST, or
AFTER a column by its new name.
"""

from __future__ import annotations

from dataclasses import replace

from ray_canal.model.schema_record import KeyState
from ray_canal.model.table_meta import ColumnMeta
from ray_canal.schema.ddl.alter_table import Alteration
from ray_canal.schema.ddl.column_definition import Definition
from ray_canal.schema.ddl.column_type import blob_size, column_meta, is_text
from ray_canal.schema.ddl.create_table import (
    period_columns,
    with_periods,
    with_row_end_key,
)
from ray_canal.schema.ddl.keys import (
    named,
    taken_over,
    with_hashes,
    with_renamed,
    without_column,
)
from ray_canal.schema.table_state import DdlNotApplied, TableState
from ray_canal.types import mysql
from ray_canal.types.charsets import char_bytes_max

_BLOB_ORDER = ("tiny", "", "medium", "long")
_GENERATED_KEY = "my_row_id"
"""MySQL's generated invisible primary key (manual, section "Generated Invisible Primary Keys")."""


def altered(state: TableState, change: Alteration, database_charset: str) -> TableState:
    """The table after the change; its name stays. Raises DdlNotApplied: it does not fit."""
    charset = state.charset
    convert = change.convert_to
    if convert == "DEFAULT":
        convert = database_charset
    if change.charset:
        charset = database_charset if change.charset == "DEFAULT" else change.charset
    charset = convert or charset
    columns = list(state.columns)
    hidden = columns[-2:] if state.hidden_period else []
    columns = columns[: len(columns) - len(hidden)]
    columns = _put_together(columns, change, charset)
    if change.key_stays_first and _has_generated_key(state):
        columns.sort(key=lambda column: column.name.lower() != _GENERATED_KEY)
    key = with_periods(change.added_key or set(), change.periods)
    missing = key - {column.name.lower() for column in columns}
    if missing:  # MariaDB: a period that an earlier statement defined
        raise DdlNotApplied(f"the key's {min(missing)!r} is not among the known columns")
    columns = [_finished(column, change, convert, key) for column in columns]
    if change.versioning and not any(d.period for _, d in change.placed):
        hidden = period_columns()
    elif change.versioning is False:
        hidden = []
    result = replace(
        state,
        charset=charset,
        hidden_period=bool(hidden),
        row_end=_row_end(state.row_end, columns, change),
        engine=change.engine or state.engine,
        keys=_keys(state, change),
    )
    return with_hashes(with_row_end_key(result.with_columns(columns + hidden)))


def _has_generated_key(state: TableState) -> bool:
    """Return whether the first column is a key as MySQL 8.0.30 and later generate it. The server
    knows it by its looks, too, and keeps it first with the setting off."""
    first = next(iter(state.columns), None)
    return (
        first is not None
        and first.name.lower() == _GENERATED_KEY
        and first.mysql_type == "bigint unsigned"
        and first.is_key
        and not first.visible
    )


def _row_end(old: str, columns: list[ColumnMeta], change: Alteration) -> str:
    name = next((d.name for _, d in change.placed if d.row_end), "")
    name = name or change.renamed_columns.get(old.lower(), old)
    return name if any(column.name.lower() == name.lower() for column in columns) else ""


def _keys(state: TableState, change: Alteration) -> tuple[KeyState, ...]:
    """The keys after the change: the old ones first, as new ones get their names from that."""
    if change.names_only:
        return state.keys
    keys = tuple(
        replace(key, name=change.renamed_keys.get(key.name.lower(), key.name))
        for key in taken_over(state)
        if key.name.lower() not in change.dropped_keys
    )
    for name in change.dropped:
        keys = without_column(keys, name)
    renamed = dict(change.renamed_columns)
    renamed |= {old: d.name for old, d in change.placed if old and old != d.name.lower()}
    for old, new in renamed.items():
        keys = with_renamed(keys, old, new)
    known = {key.name.lower() for key in keys}
    maybe = [key for key in change.new_keys_maybe if key.name.lower() not in known]
    return named(keys, [*change.new_keys, *maybe])


def _put_together(
    old: list[ColumnMeta], change: Alteration, charset: str
) -> list[ColumnMeta]:
    known = {column.name.lower() for column in old}
    _refuse_missing(known | {d.name.lower() for n, d in change.placed if not n}, change)
    changes = {name: definition for name, definition in change.placed if name}
    result: list[ColumnMeta] = []
    for column in old:
        name = column.name.lower()
        definition = changes.get(name)
        if name in change.dropped:
            continue
        if definition is None:
            renamed = change.renamed_columns.get(name, column.name)
            result.append(replace(column, name=renamed))
        elif not (definition.first or definition.after):
            result.append(_changed(column, definition, change, charset))
    by_name = {column.name.lower(): column for column in old}
    waiting: list[tuple[ColumnMeta, Definition]] = []
    for name, definition in _without_changed_adds(change, known):
        if name and name not in known:
            continue  # IF EXISTS
        if name and not (definition.first or definition.after):
            continue  # in place already
        if not name and definition.name.lower() in change.if_not_exists & known - change.dropped:
            continue
        waiting.append((_changed(by_name.get(name), definition, change, charset), definition))
    _place_all(result, waiting)
    return result


def _without_changed_adds(
    change: Alteration, known: set[str]
) -> list[tuple[str, Definition]]:
    """Return the placed columns, without those that the statement also changes: MariaDB lets a
    statement change a column that it adds, and the change counts."""
    found: list[tuple[str, Definition]] = []
    for name, definition in change.placed:
        added = [at for at, (n, d) in enumerate(found) if not n and d.name.lower() == name]
        if name and added and name not in known - change.dropped:
            del found[added[-1]]
            name = ""
        found.append((name, definition))
    return found


def _refuse_missing(known: set[str], change: Alteration) -> None:
    asked = change.dropped | {n for n, _ in change.placed if n} | set(change.renamed_columns)
    missing = asked - known - change.if_exists
    if missing:
        raise DdlNotApplied(f"column {min(missing)!r} is not among the known ones")


def _changed(
    old: ColumnMeta | None, definition: Definition, change: Alteration, charset: str
) -> ColumnMeta:
    column = definition.column(charset)
    if old is not None and old.is_key and not change.drops_key:
        column = replace(column, is_key=True, nullable=False)
    return column


def _place_all(
    result: list[ColumnMeta], waiting: list[tuple[ColumnMeta, Definition]]
) -> None:
    """Place columns in turn; one after a column that is itself still to be placed waits for it."""
    waits = 0
    while waiting:
        column, definition = waiting.pop(0)
        to_come = {other.name.lower() for other, _ in waiting}
        placed = {other.name.lower() for other in result}
        after = definition.after.lower()
        if after in to_come and after not in placed and waits <= len(waiting):
            waiting.append((column, definition))
            waits += 1
        else:
            _place(result, column, definition)
            waits = 0


def _place(result: list[ColumnMeta], column: ColumnMeta, definition: Definition) -> None:
    if definition.first:
        result.insert(0, column)
    elif definition.after:
        names = [c.name.lower() for c in result]
        if definition.after.lower() not in names:
            raise DdlNotApplied(f"column {definition.after!r} is not among the known ones")
        result.insert(names.index(definition.after.lower()) + 1, column)
    else:
        result.append(column)


def _finished(
    column: ColumnMeta, change: Alteration, convert: str, key: frozenset[str]
) -> ColumnMeta:
    """A column after what concerns the table as a whole."""
    name = column.name.lower()
    if name in change.visible:
        column = replace(column, visible=change.visible[name])
    if change.drops_key:
        keeps = any(d.name.lower() == name and d.is_key for _, d in change.placed)
        column = replace(column, is_key=keeps)
    if name in key:
        column = replace(column, is_key=True, nullable=False)
    if convert and is_text(column):
        column = _converted(column, convert)
    return column


def _converted(column: ColumnMeta, charset: str) -> ColumnMeta:
    """A text column in another character set: a text whose bytes may not fit grows."""
    size = blob_size(column)
    grows = char_bytes_max(charset) > char_bytes_max(column.charset)
    if column.type_code == mysql.BLOB:
        if grows and size != "long":
            size = _BLOB_ORDER[_BLOB_ORDER.index(size) + 1]
        kind = f"{size}text"
    elif column.type_code == mysql.VARCHAR:
        kind = column.mysql_type
    else:
        return replace(column, charset=charset)
    return column_meta(
        column.name, kind, charset=charset, nullable=column.nullable,
        is_key=column.is_key, visible=column.visible,
    )  # fmt: skip
