"""Apply ALTER TABLE: its actions on a table's columns.

Columns are put together as the servers do it (mysql_prepare_alter_table): the old ones in place,
dropped ones left out, changed ones exchanged; then one after the other, in the statement's order,
new ones are inserted and changed ones moved, FIRST or AFTER a column by its new name. Then a key
that names a column has the first one that had this name before, or is new and has it now: so one
that is dropped and added again stays in the keys that it was in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

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
    with_length,
    with_renamed,
    without_column,
)
from ray_canal.schema.table_state import DdlNotApplied, TableState
from ray_canal.types import mysql
from ray_canal.types.charsets import char_bytes_max

_BLOB_ORDER = ("tiny", "", "medium", "long")
_GENERATED_KEY = "my_row_id"
"""MySQL's generated invisible primary key (manual, section "Generated Invisible Primary Keys")."""


@dataclass(frozen=True, slots=True)
class _Placed:
    """A column of the table to be; `key_name`: what keys of before call it, in lower case."""

    column: ColumnMeta
    key_name: str
    is_new: bool = False


def altered(state: TableState, change: Alteration, database_charset: str) -> TableState:
    """The table after the change; its name stays. Raises DdlNotApplied: it does not fit."""
    charset = state.charset
    convert = change.convert_to
    if convert == "DEFAULT":
        convert = database_charset
    if change.convert_texts and not any(is_text(c) and c.charset != convert for c in state.columns):
        convert = ""
    if change.charset:
        charset = database_charset if change.charset == "DEFAULT" else change.charset
    elif convert:
        charset = convert
    columns = list(state.columns)
    hidden = columns[-2:] if state.hidden_period else []
    columns = columns[: len(columns) - len(hidden)]
    placed = _put_together(columns, change, convert or charset)
    columns = [each.column for each in placed]
    heirs = {each.key_name: each for each in reversed(placed)}  # the first one counts
    if change.key_stays_first and _has_generated_key(state):
        columns.sort(key=lambda column: column.name.lower() != _GENERATED_KEY)
    added = change.added_key or set()
    if change.drops_key or not any(column.is_key for column in state.columns):
        added |= change.key_maybe
    if not change.drops_key:
        old_key = (heirs.get(c.name.lower()) for c in state.columns if c.is_key)
        added |= {heir.column.name.lower() for heir in old_key if heir is not None}
    key = with_periods(added, change.periods)
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
        keys=_keys(state, change, heirs),
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


def _keys(
    state: TableState, change: Alteration, heirs: Mapping[str, _Placed]
) -> tuple[KeyState, ...]:
    """The keys after the change: the old ones first, as new ones get their names from that."""
    if change.names_only:
        return state.keys
    keys = tuple(
        replace(key, name=change.renamed_keys.get(key.name.lower(), key.name))
        for key in taken_over(state)
        if key.name.lower() not in change.dropped_keys
    )
    for column in state.columns:
        name = column.name.lower()
        if name not in heirs:
            keys = without_column(keys, name)
        elif heirs[name].is_new:
            keys = with_length(keys, column)
    keys = with_renamed(keys, {name: heir.column.name for name, heir in heirs.items()})
    known = {key.name.lower() for key in keys}
    maybe = [key for key in change.new_keys_maybe if key.name.lower() not in known]
    return named(keys, [*change.new_keys, *maybe])


def _put_together(
    old: list[ColumnMeta], change: Alteration, charset: str
) -> list[_Placed]:
    known = {column.name.lower() for column in old}
    _refuse_missing(known | {d.name.lower() for n, d in change.placed if not n}, change)
    placed = _without_changed_adds(change, known)
    changes = {name: definition for name, definition in placed if name}
    result: list[_Placed] = []
    for column in old:
        name = column.name.lower()
        if name in change.dropped:
            continue
        if name in changes:
            result.append(_Placed(changes[name].column(charset), name))
        else:
            renamed = change.renamed_columns.get(name, column.name)
            result.append(_Placed(replace(column, name=renamed, is_key=False), name))
    for name, definition in placed:
        if name:
            if name in known and (definition.first or definition.after):
                at = next(at for at, each in enumerate(result) if each.key_name == name)
                _insert(result, result.pop(at), definition)
        elif definition.name.lower() not in change.if_not_exists & known:
            column = definition.column(charset)
            _insert(result, _Placed(column, column.name.lower(), is_new=True), definition)
    return result


def _insert(columns: list[_Placed], placed: _Placed, definition: Definition) -> None:
    if definition.first:
        columns.insert(0, placed)
    elif definition.after:
        names = [each.column.name.lower() for each in columns]
        if definition.after.lower() not in names:
            raise DdlNotApplied(f"column {definition.after!r} is not among the known ones")
        columns.insert(names.index(definition.after.lower()) + 1, placed)
    else:
        columns.append(placed)


def _without_changed_adds(
    change: Alteration, known: set[str]
) -> list[tuple[str, Definition]]:
    """Return the placed columns, without those that the statement also changes: MariaDB lets a
    statement change a column that it adds, and the change counts (but not one with IF EXISTS; of
    two with IF NOT EXISTS the first one counts)."""
    found: list[tuple[str, Definition]] = []
    adds: set[str] = set()
    for name, definition in change.placed:
        if name in change.if_exists - known:
            continue
        added = [at for at, (n, d) in enumerate(found) if not n and d.name.lower() == name]
        if name and added and name not in known - change.dropped:
            del found[added[-1]]
            name = ""
        elif not name and definition.name.lower() in change.if_not_exists & adds:
            continue
        adds |= set() if name else {definition.name.lower()}
        found.append((name, definition))
    return found


def _refuse_missing(known: set[str], change: Alteration) -> None:
    asked = change.dropped | {n for n, _ in change.placed if n} | set(change.renamed_columns)
    missing = asked - known - change.if_exists
    if missing:
        raise DdlNotApplied(f"column {min(missing)!r} is not among the known ones")


def _finished(
    column: ColumnMeta, change: Alteration, convert: str, key: frozenset[str]
) -> ColumnMeta:
    """A column after what concerns the table as a whole."""
    name = column.name.lower()
    if name in change.visible:
        column = replace(column, visible=change.visible[name])
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
        is_key=column.is_key, visible=column.visible, is_generated=column.is_generated,
    )  # fmt: skip
