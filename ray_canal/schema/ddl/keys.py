"""The keys of a MariaDB table, for what they hide: where a unique key is too long for an index,
the server indexes a hash of it, kept in a column behind all others that nobody may see
(DB_ROW_HASH_1 …, BIGINT UNSIGNED). It is in TABLE_MAP and in the rows.

What makes a key such a one was tried on servers: text or geometry without a prefix, a part or a sum
of parts longer than the engine indexes, or USING HASH, which the next ALTER TABLE forgets. Names
count, as keys are dropped and renamed by them: a key without one gets its first column's, numbered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ray_canal.model.schema_record import KeyState, TableState
from ray_canal.model.table_meta import ColumnMeta
from ray_canal.schema.ddl.column_type import DEFAULT_CHARSET, blob_size
from ray_canal.schema.ddl.words import Token, Words, number_of, parts
from ray_canal.types import mysql
from ray_canal.types.charsets import char_bytes_max

_MEMORY = ("MEMORY", "HEAP")
"""Engines that index hashes themselves."""
_KEY_BYTES_MAX = {"MYISAM": 1000, "ARIA": 2300}
_INNODB_KEY_BYTES_MAX = 3072
_BLOB_BYTES_MAX = {"tiny": 255, "": 65535, "medium": (1 << 24) - 1, "long": (1 << 32) - 1}
_OTHER_BYTES = 8  # times and bits; a sum within a few bytes of the limit is beyond us
_GEOMETRY_PREFIX_BYTES = 8
_FOREIGN = "FOREIGN"  # in place of an algorithm: a foreign key, which may need a key of its own


def read_key(part: list[Token]) -> KeyState | None:
    """Read a key in a table's definition or after ADD; None: a primary key, a check, a period.

    A foreign key counts as the key that it needs. The name is empty where none is given.
    """
    words = Words(part)
    name = ""
    if words.take("CONSTRAINT") and words.peek() not in ("PRIMARY", "UNIQUE", "FOREIGN", "CHECK"):
        name = words.identifier()
    kind = words.take_any("UNIQUE", "KEY", "INDEX", "FULLTEXT", "SPATIAL", "VECTOR", "FOREIGN")
    if not kind:
        return None
    words.take_any("KEY", "INDEX")
    words.take("IF", "NOT", "EXISTS")
    if words.peek() not in ("(", "USING", "TYPE"):
        given = words.identifier()
        name = name if kind == "FOREIGN" and name else given
    key = read_parts(words, name, kind == "UNIQUE")
    return replace(key, algorithm=_FOREIGN) if kind == "FOREIGN" else key


def if_not_exists(part: list[Token]) -> bool:
    """Tell if a key is only added if there is none of its name."""
    heads = [token.text.upper() for token in part[:8] if token.kind == "word"]
    return any(heads[at : at + 3] == ["IF", "NOT", "EXISTS"] for at in range(len(heads)))


def read_parts(words: Words, name: str, unique: bool) -> KeyState:
    """A key from its USING clause or its columns on."""
    algorithm, columns, prefixes = "", [], []
    while not words.done and words.peek() != "(":
        if words.take_any("USING", "TYPE"):
            algorithm = words.peek()
        words.skip()
    for item in parts(_inside(words)):
        each = Words(item)
        columns.append(each.identifier())
        prefixes.append((each.take("(") and number_of(each.peek())) or 0)
    while not words.done:
        if words.take_any("USING", "TYPE"):
            algorithm = words.peek()
        words.skip()
    return KeyState(name, tuple(columns), tuple(prefixes), unique, algorithm)


def _inside(words: Words) -> list[Token]:
    """Return the inside of the parenthesis that comes next; its end is stepped over."""
    found: list[Token] = []
    depth = 0
    while not words.done:
        token = words.token()
        words.skip()
        if token.kind == "other":
            depth += (token.text == "(") - (token.text == ")")
            if depth == 0:
                break
            if depth == 1 and token.text == "(":
                continue
        found.append(token)
    return found


def named(keys: Iterable[KeyState], new: Iterable[KeyState]) -> tuple[KeyState, ...]:
    """Return keys, and after them new ones with the names that the server gives."""
    found = list(keys)
    added = list(new)
    for key in added:
        if key.algorithm == _FOREIGN:
            size = len(key.columns)
            others = [k for k in (*found, *added) if k is not key]
            if any(_lower(k)[:size] == _lower(key) for k in others):
                continue
            key = replace(key, algorithm="")
        if not key.name and key.columns:
            taken = {other.name.lower() for other in found} | {"primary"}
            first = key.columns[0]
            numbered = [first, *(f"{first}_{number}" for number in range(2, 100))]
            key = replace(key, name=next((n for n in numbered if n.lower() not in taken), first))
        found.append(key)
    return tuple(found)


def _lower(key: KeyState) -> list[str]:
    return [column.lower() for column in key.columns]


def without_column(keys: Iterable[KeyState], name: str) -> tuple[KeyState, ...]:
    """Keys after a column (in lower case) is gone."""
    found = []
    for key in keys:
        left = [at for at, column in enumerate(key.columns) if column.lower() != name]
        columns = tuple(key.columns[at] for at in left)
        if columns:
            found.append(
                replace(key, columns=columns, prefixes=tuple(key.prefixes[at] for at in left))
            )
    return tuple(found)


def with_length(keys: Iterable[KeyState], column: ColumnMeta) -> tuple[KeyState, ...]:
    """Keys after a column was dropped and added again: the length that it had, of a text in
    characters, is the prefix."""
    length = column.length or _part_bytes(column, 0) or 0
    name = column.name.lower()
    found = []
    for key in keys:
        pairs = zip(key.columns, key.prefixes, strict=True)
        prefixes = tuple((p or length) if c.lower() == name else p for c, p in pairs)
        found.append(replace(key, prefixes=prefixes))
    return tuple(found)


def with_renamed(keys: Iterable[KeyState], renamed: Mapping[str, str]) -> tuple[KeyState, ...]:
    """Keys after columns have other names: the new one by the old one in lower case."""
    return tuple(
        replace(key, columns=tuple(renamed.get(c.lower(), c) for c in key.columns)) for key in keys
    )


def taken_over(state: TableState) -> tuple[KeyState, ...]:
    """Keys as an ALTER TABLE or CREATE LIKE takes them over: without USING HASH, and a geometry has
    the prefix that the catalog shows."""
    bare = {
        c.name.lower() for c in state.columns
        if c.type_code == mysql.GEOMETRY and c.mysql_type.lower() != "point"
    }  # fmt: skip
    found = []
    for key in state.keys:
        prefixes = tuple(
            prefix or (_GEOMETRY_PREFIX_BYTES if column.lower() in bare else 0)
            for column, prefix in zip(key.columns, key.prefixes, strict=True)
        )
        algorithm = "" if key.algorithm == "HASH" else key.algorithm
        found.append(replace(key, prefixes=prefixes, algorithm=algorithm))
    return tuple(found)


def with_hashes(state: TableState) -> TableState:
    """The table with the number of columns that its keys hide."""
    columns = {column.name.lower(): column for column in state.columns}
    hidden = sum(_is_hashed(key, columns, state.engine) for key in state.keys)
    return replace(state, meta=replace(state.meta, hidden=hidden))


def _is_hashed(key: KeyState, columns: dict[str, ColumnMeta], engine: str) -> bool:
    if not key.unique or engine in _MEMORY:
        return False
    if key.algorithm == "HASH":
        return True
    limit = _KEY_BYTES_MAX.get(engine, _INNODB_KEY_BYTES_MAX)
    total = 0
    for name, prefix in zip(key.columns, key.prefixes, strict=True):
        column = columns.get(name.lower())
        size = _part_bytes(column, prefix) if column is not None else 0
        if size is None or size > limit:
            return True
        total += size
    return total > limit


def _part_bytes(column: ColumnMeta, prefix: int) -> int | None:
    """Bytes of a key's part; None: it has no most."""
    from ray_canal.types.registry import declared_word, field_type  # kernels come with it

    character = char_bytes_max(column.charset or DEFAULT_CHARSET)
    kind = column.type_code
    if kind == mysql.GEOMETRY:
        return 25 if column.mysql_type.lower() == "point" else prefix or None
    if kind in (mysql.BLOB, mysql.JSON):
        return min(prefix * character, _BLOB_BYTES_MAX[blob_size(column)]) if prefix else None
    word = declared_word(column.mysql_type)
    if word and word.key_bytes:
        return word.key_bytes
    if kind in (mysql.STRING, mysql.VARCHAR):
        return (prefix or column.length) * character
    if kind == mysql.NEWDECIMAL:
        return column.precision // 2 + 2
    return field_type(kind).size_bytes or _OTHER_BYTES
