"""ALTER TABLE: what each of its actions makes of a table's columns.

Columns are put together in the server's order: the old ones in place (dropped ones left out,
changed ones exchanged), then new and moved ones, in the statement's order, at the end, FIRST, or
AFTER a column by its new name. An action that is not known raises DdlNotApplied; those that leave
columns alone are listed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ray_canal.model.schema_record import KeyState
from ray_canal.model.table_meta import ColumnMeta
from ray_canal.schema.ddl.column_definition import Definition, read_charset, read_definition
from ray_canal.schema.ddl.column_type import blob_size, column_meta, is_text
from ray_canal.schema.ddl.create_table import (
    is_key_part,
    key_of,
    key_of_column,
    period_columns,
    primary_key,
    split_body,
    with_row_end_key,
)
from ray_canal.schema.ddl.keys import (
    if_not_exists,
    named,
    taken_over,
    with_hashes,
    with_renamed,
    without_column,
)
from ray_canal.schema.ddl.words import Dialect, Token, Words, parts
from ray_canal.schema.table_state import DdlNotApplied, Session, TableState
from ray_canal.types import mysql
from ray_canal.types.charsets import char_bytes_max

_NO_COLUMNS = {
    "ALGORITHM", "AUTO_INCREMENT", "AUTOEXTEND_SIZE", "AVG_ROW_LENGTH", "CHECKSUM", "COMMENT",
    "COMPRESSION", "CONNECTION", "DATA", "DELAY_KEY_WRITE", "DISABLE", "DISCARD", "ENABLE",
    "ENCRYPTED", "ENCRYPTION", "ENCRYPTION_KEY_ID", "ENGINE", "ENGINE_ATTRIBUTE", "FORCE",
    "IETF_QUOTES", "IMPORT", "INDEX", "INSERT_METHOD", "ITEF_QUOTES", "KEY_BLOCK_SIZE", "LOCK",
    "MAX_ROWS", "MIN_ROWS", "NOWAIT", "PACK_KEYS", "PAGE_CHECKSUM", "PAGE_COMPRESSED",
    "PAGE_COMPRESSION_LEVEL", "PASSWORD", "ROW_FORMAT", "SECONDARY_ENGINE",
    "SECONDARY_ENGINE_ATTRIBUTE", "SECONDARY_LOAD", "SECONDARY_UNLOAD", "SEQUENCE",
    "START", "STATS_AUTO_RECALC", "STATS_PERSISTENT", "STATS_SAMPLE_PAGES", "STORAGE", "TABLESPACE",
    "TRANSACTIONAL", "TYPE", "UNION", "WAIT", "WITH", "WITHOUT",
}  # fmt: skip
_PARTITIONS = {
    "PARTITION", "REMOVE", "COALESCE", "REORGANIZE", "ANALYZE", "CHECK", "OPTIMIZE", "REBUILD",
    "REPAIR", "TRUNCATE", "EXCHANGE",
}  # fmt: skip
"""Words that begin what concerns partitions; the rest of the statement belongs to them."""
_KEY_WORDS = ("INDEX", "KEY", "FOREIGN", "CHECK", "CONSTRAINT", "PERIOD")
_BLOB_ORDER = ("tiny", "", "medium", "long")


@dataclass(slots=True)
class Alteration:
    """What the actions of one ALTER TABLE ask for. Column names are keys in lower case."""

    table: tuple[str, str]
    dropped: set[str] = field(default_factory=set)
    placed: list[tuple[str, Definition]] = field(default_factory=list)  # (old name or "", new)
    renamed_columns: dict[str, str] = field(default_factory=dict)
    visible: dict[str, bool] = field(default_factory=dict)
    added_key: set[str] | None = None
    drops_key: bool = False
    dropped_keys: set[str] = field(default_factory=set)
    renamed_keys: dict[str, str] = field(default_factory=dict)
    new_keys: list[KeyState] = field(default_factory=list)
    new_keys_maybe: list[KeyState] = field(default_factory=list)  # if there is none of their name
    engine: str = ""
    names_only: bool = True  # the table's definition is not made anew
    if_exists: set[str] = field(default_factory=set)  # changes of these may find nothing
    if_not_exists: set[str] = field(default_factory=set)
    charset: str = ""
    convert_to: str = ""
    versioning: bool | None = None
    new_name: tuple[str, str] | None = None
    made_from_partition: tuple[str, str] | None = None
    became_partition: tuple[str, str] | None = None


def read_alter(words: Words, session: Session) -> Alteration:
    """The actions behind ALTER TABLE (those words taken). Raises DdlNotApplied."""
    words.take("IF", "EXISTS")
    found = Alteration(words.name(session.schema))
    actions = parts(words.rest())
    while actions:
        action = actions.pop(0)
        if _concerns_partitions(action):
            found.names_only &= Words(action).peek() not in ("PARTITION", "REMOVE")
            break
        if action[0].text.upper() == "ORDER":
            while actions and _is_order_column(actions[0]):
                actions.pop(0)
            continue
        _action(Words(action), action, found, session)
    if session.dialect.mariadb is False:  # keys hide nothing there
        found.dropped_keys, found.renamed_keys, found.engine = set(), {}, ""
    return found


def _concerns_partitions(action: list[Token]) -> bool:
    first, second = (Words(action).peek(), Words(action).peek(1))
    if first in ("DROP", "ADD"):
        return second == "PARTITION"
    return first in _PARTITIONS or (first in ("DISCARD", "IMPORT") and second == "PARTITION")


def _is_order_column(action: list[Token]) -> bool:
    words = Words(action)
    words.name("")
    words.take_any("ASC", "DESC")
    return words.done


def _action(words: Words, action: list[Token], found: Alteration, session: Session) -> None:
    dialect = session.dialect
    word = words.take_any("ADD", "DROP", "MODIFY", "CHANGE", "ALTER", "RENAME", "CONVERT")
    found.names_only &= word == "RENAME" and words.peek() not in ("COLUMN", "KEY", "INDEX")
    if word == "ADD":
        _add(words, found, dialect)
    elif word == "DROP":
        _drop(words, found)
    elif word == "MODIFY":
        words.take("COLUMN")
        maybe = words.take("IF", "EXISTS")
        definition = read_definition(words, dialect)
        _change(found, definition.name, definition, maybe)
        found.new_keys += key_of_column(definition, dialect)
    elif word == "CHANGE":
        words.take("COLUMN")
        maybe = words.take("IF", "EXISTS")
        old = words.identifier()
        definition = read_definition(words, dialect)
        _change(found, old, definition, maybe)
        found.new_keys += key_of_column(definition, dialect)
    elif word == "ALTER":
        _alter_column(words, found)
    elif word == "RENAME":
        _rename(words, found, session)
    elif word == "CONVERT":
        _convert(words, found, session)
    else:
        _options(words, action, found)


def _add(words: Words, found: Alteration, dialect: Dialect) -> None:
    if words.take("SYSTEM", "VERSIONING"):
        found.versioning = True
        return
    rest = words.rest()
    if rest and rest[0].kind == "word" and is_key_part(rest):
        _add_key(rest, found, dialect)
        return
    words = Words(rest)
    words.take("COLUMN")
    maybe = words.take("IF", "NOT", "EXISTS")
    items = [words.rest()]
    if items[0] and items[0][0] == Token("other", "("):
        items = parts(split_body(items[0])[0])
    for item in items:
        if is_key_part(item):
            _add_key(item, found, dialect)
            continue
        definition = read_definition(Words(item), dialect)
        found.new_keys += key_of_column(definition, dialect)
        if maybe:
            found.if_not_exists.add(definition.name.lower())
        found.placed.append(("", definition))


def _add_key(part: list[Token], found: Alteration, dialect: Dialect) -> None:
    found.added_key = primary_key(part) or found.added_key
    keys = found.new_keys_maybe if if_not_exists(part) else found.new_keys
    keys += key_of(part, dialect)


def _drop(words: Words, found: Alteration) -> None:
    if words.take("SYSTEM", "VERSIONING"):
        found.versioning = False
    elif words.take("PRIMARY", "KEY"):
        found.drops_key = True
    elif words.peek() in _KEY_WORDS:
        words.skip()
        words.take("IF", "EXISTS")
        name = words.identifier()
        found.drops_key |= name.upper() == "PRIMARY"
        found.dropped_keys.add(name.lower())
    else:
        words.take("COLUMN")
        maybe = words.take("IF", "EXISTS")
        name = words.identifier().lower()
        found.dropped.add(name)
        if maybe:
            found.if_exists.add(name)


def _change(found: Alteration, old: str, definition: Definition, maybe: bool) -> None:
    found.placed.append((old.lower(), definition))
    if maybe:
        found.if_exists.add(old.lower())


def _alter_column(words: Words, found: Alteration) -> None:
    if words.take_any("INDEX", "KEY", "CHECK", "CONSTRAINT"):
        return
    words.take("COLUMN")
    words.take("IF", "EXISTS")
    name = words.identifier().lower()
    if words.take("SET", "INVISIBLE"):
        found.visible[name] = False
    elif words.take("SET", "VISIBLE"):
        found.visible[name] = True


def _rename(words: Words, found: Alteration, session: Session) -> None:
    if words.take_any("INDEX", "KEY"):
        words.take("IF", "EXISTS")
        old = words.identifier().lower()
        words.take("TO")
        found.renamed_keys[old] = words.identifier()
        return
    if words.peek() == "COLUMN":
        words.skip()
        maybe = words.take("IF", "EXISTS")
        old = words.identifier().lower()
        words.take("TO")
        found.renamed_columns[old] = words.identifier()
        if maybe:
            found.if_exists.add(old)
        return
    words.take_any("TO", "AS", "=")
    found.new_name = words.name(session.schema)


def _convert(words: Words, found: Alteration, session: Session) -> None:
    if words.take("PARTITION"):
        words.identifier()
        words.take("TO")
        words.take("TABLE")
        found.made_from_partition = words.name(session.schema)
    elif words.take("TABLE"):
        found.became_partition = words.name(session.schema)
    else:
        words.take("TO")
        found.convert_to = read_charset(words)
        if not found.convert_to:
            raise DdlNotApplied(f"CONVERT {words.peek()} is not known")


def _options(words: Words, action: list[Token], found: Alteration) -> None:
    """Table options, which blanks may separate."""
    charset = ""
    depth = 0
    words = Words(action)
    while not words.done:
        depth += (words.peek() == "(") - (words.peek() == ")")
        named_charset = "" if depth else read_charset(words)
        if named_charset:
            charset = charset if named_charset == "DEFAULT" and charset else named_charset
        elif not depth and words.take("ENGINE"):
            words.take("=")
            found.engine = words.identifier().upper()
        else:
            words.skip()
    found.charset = charset or found.charset
    first = Words(action).peek()
    if not charset and first not in _NO_COLUMNS and Words(action).peek(1) != "=":
        raise DdlNotApplied(f"{first} is not known")


# --- putting it to a table --------------------------------------------------------------------


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
    columns = [_finished(column, change, convert) for column in columns]
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
    """What is placed. MariaDB lets a statement change a column that it adds: then that counts."""
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
    """Place columns in turn; one behind a column that is itself to be placed yet waits for it."""
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


def _finished(column: ColumnMeta, change: Alteration, convert: str) -> ColumnMeta:
    """A column after what concerns the table as a whole."""
    name = column.name.lower()
    if name in change.visible:
        column = replace(column, visible=change.visible[name])
    if change.drops_key:
        keeps = any(d.name.lower() == name and d.is_key for _, d in change.placed)
        column = replace(column, is_key=keeps)
    if change.added_key and name in change.added_key:
        column = replace(column, is_key=True, nullable=False)
    if convert and is_text(column):
        column = _converted(column, convert)
    return column


def _converted(column: ColumnMeta, charset: str) -> ColumnMeta:
    """A text column in another character set: a text whose bytes may not fit grows."""
    size = blob_size(column)
    grows = char_bytes_max(charset) > char_bytes_max(column.charset)
    converted = replace(column, charset=charset)
    if column.type_code == mysql.BLOB:
        if grows and size != "long":
            size = _BLOB_ORDER[_BLOB_ORDER.index(size) + 1]
        return column_meta(
            column.name, f"{size}text", charset=charset, nullable=column.nullable,
            is_key=column.is_key, visible=column.visible,
        )  # fmt: skip
    return converted
