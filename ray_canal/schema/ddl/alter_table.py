"""Read ALTER TABLE: its actions.

altered.py makes the table of it. An action that is not known raises DdlNotApplied; those that leave
columns alone are listed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ray_canal.model.schema_record import KeyState
from ray_canal.schema.ddl.column_definition import Definition, read_charset, read_definition
from ray_canal.schema.ddl.create_table import (
    is_key_part,
    key_of,
    key_of_column,
    period,
    primary_key,
    split_body,
)
from ray_canal.schema.ddl.keys import (
    if_not_exists,
)
from ray_canal.schema.ddl.vocabulary import skip_lock_wait
from ray_canal.schema.ddl.words import Dialect, Token, Words, parts
from ray_canal.schema.table_state import DdlNotApplied, StatementSession

_NO_COLUMNS = {
    "ALGORITHM", "AUTO_INCREMENT", "AUTOEXTEND_SIZE", "AVG_ROW_LENGTH", "CHECKSUM", "COMMENT",
    "COMPRESSION", "CONNECTION", "DATA", "DELAY_KEY_WRITE", "DISABLE", "DISCARD", "ENABLE",
    "ENCRYPTED", "ENCRYPTION", "ENCRYPTION_KEY_ID", "ENGINE", "ENGINE_ATTRIBUTE", "FORCE",
    "IETF_QUOTES", "IMPORT", "INDEX", "INSERT_METHOD", "ITEF_QUOTES", "KEY_BLOCK_SIZE", "LOCK",
    "MAX_ROWS", "MIN_ROWS", "PACK_KEYS", "PAGE_CHECKSUM", "PAGE_COMPRESSED",
    "PAGE_COMPRESSION_LEVEL", "PASSWORD", "ROW_FORMAT", "SECONDARY_ENGINE",
    "SECONDARY_ENGINE_ATTRIBUTE", "SECONDARY_LOAD", "SECONDARY_UNLOAD", "SEQUENCE",
    "START", "STATS_AUTO_RECALC", "STATS_PERSISTENT", "STATS_SAMPLE_PAGES", "STORAGE",
    "TABLESPACE", "TABLE_CHECKSUM", "TRANSACTIONAL", "TYPE", "UNION", "UPGRADE", "WITH", "WITHOUT",
}  # fmt: skip
_PARTITIONS = {
    "PARTITION", "REMOVE", "COALESCE", "REORGANIZE", "ANALYZE", "CHECK", "OPTIMIZE", "REBUILD",
    "REPAIR", "TRUNCATE", "EXCHANGE",
}  # fmt: skip
"""Words that begin what concerns partitions; the rest of the statement belongs to them."""
_KEY_WORDS = ("INDEX", "KEY", "FOREIGN", "CHECK", "CONSTRAINT")


@dataclass(slots=True)
class Alteration:
    """Actions of one ALTER TABLE. Column names are keys in lower case."""

    table: tuple[str, str]
    dropped: set[str] = field(default_factory=set)
    placed: list[tuple[str, Definition]] = field(default_factory=list)  # (old name or "", new)
    renamed_columns: dict[str, str] = field(default_factory=dict)
    visible: dict[str, bool] = field(default_factory=dict)
    added_key: set[str] | None = None
    key_maybe: set[str] = field(default_factory=set)  # added if there is no primary key
    periods: dict[str, set[str]] = field(default_factory=dict)
    drops_key: bool = False
    dropped_keys: set[str] = field(default_factory=set)
    renamed_keys: dict[str, str] = field(default_factory=dict)
    new_keys: list[KeyState] = field(default_factory=list)
    new_keys_maybe: list[KeyState] = field(default_factory=list)  # if there is none of their name
    engine: str = ""
    # A generated invisible key does, whatever becomes FIRST; that is no change.
    key_stays_first: bool = field(default=True, compare=False)
    names_only: bool = True  # the table's definition is not made again
    if_exists: set[str] = field(default_factory=set)  # changes of these may find nothing
    if_not_exists: set[str] = field(default_factory=set)
    charset: str = ""
    convert_to: str = ""
    convert_texts: bool = False  # without a text to convert, convert_to is passed over
    versioning: bool | None = None
    new_name: tuple[str, str] | None = None
    made_from_partition: tuple[str, str] | None = None
    became_partition: tuple[str, str] | None = None


def read_alter(words: Words, session: StatementSession) -> Alteration:
    """Read the actions after ALTER TABLE (those words taken). Raises DdlNotApplied."""
    words.take("IF", "EXISTS")
    found = Alteration(words.name(session.schema))
    skip_lock_wait(words)
    actions = parts(words.rest())
    is_alone = len(actions) == 1
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
    found.key_stays_first = not session.dialect.mariadb
    # Tried on servers: to MySQL 5.6 nothing is altered then, not the table's default either.
    if found.convert_to and is_alone:
        found.convert_texts = session.dialect.is_mysql_before(50700)
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


def _action(
    words: Words, action: list[Token], found: Alteration, session: StatementSession
) -> None:
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
        old = words.column()
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
            found.key_maybe |= {definition.name.lower()} if definition.is_key else set()
            definition = replace(
                definition, is_key=False, nullable=definition.nullable and not definition.is_key
            )
        found.placed.append(("", definition))


def _add_key(part: list[Token], found: Alteration, dialect: Dialect) -> None:
    maybe = if_not_exists(part)
    if maybe:
        found.key_maybe |= primary_key(part) or set()
    else:
        found.added_key = primary_key(part) or found.added_key
    found.periods |= period(part)
    keys = found.new_keys_maybe if maybe else found.new_keys
    keys += key_of(part, dialect)


def _drop(words: Words, found: Alteration) -> None:
    if words.take("SYSTEM", "VERSIONING"):
        found.versioning = False
    elif words.take("PRIMARY", "KEY"):
        found.drops_key = True
    elif words.peek() == "PERIOD" and words.peek(1) in ("FOR", "IF"):
        pass  # a period is no column
    elif words.peek() in _KEY_WORDS:
        words.skip()
        words.take("IF", "EXISTS")
        name = words.identifier()
        found.drops_key |= name.upper() == "PRIMARY"
        found.dropped_keys.add(name.lower())
    else:
        words.take("COLUMN")
        maybe = words.take("IF", "EXISTS")
        name = words.column().lower()
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


def _rename(words: Words, found: Alteration, session: StatementSession) -> None:
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


def _convert(words: Words, found: Alteration, session: StatementSession) -> None:
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
