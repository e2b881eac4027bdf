"""TABLE_MAP events: the column types of the rows that follow, and MySQL 8's row metadata.

Layout (MySQL's source documentation of Table_map_event): table id (6 bytes, 4 in old servers),
flags (2), schema and table name (length byte, text, NUL), column count (packed), types, metadata
(packed length, then 0 … 2 bytes per column), a bitmap of nullable columns, then optional fields:
type, packed length, value. MariaDB has the same. CorruptEvent where bytes are missing or disagree.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ray_canal.binlog.reader import Reader
from ray_canal.errors import CorruptEvent, UnsupportedEvent
from ray_canal.model.table_meta import ColumnMeta, TableMeta
from ray_canal.types import mysql
from ray_canal.types.charsets import charset_of_collation, decode_label
from ray_canal.types.column_type import MetadataColumn
from ray_canal.types.registry import field_type


@dataclass(frozen=True, slots=True)
class TableMap:
    """One TABLE_MAP event. Tuples have one item per column, in ordinal order.

    `types` are real types (ENUM and SET told apart from STRING), `metadata` one integer per column:
    bytes of a STRING, VARCHAR, ENUM or SET, bits of a BIT, precision << 8 | scale of a NEWDECIMAL,
    digits of fractional seconds, length bytes of a blob; 0 where the type has none. The optional
    parts are None where the server did not write them: `unsigned`, `collations` (0: the column has
    no character set), `names`, `labels`, `geometry_types`, `visible`, `dimensions` (most elements
    of a VECTOR). `primary_key` holds column indexes, empty where the table has none or the server
    did not say. `hashes`: how many of the last columns are MariaDB's hidden ones, by their names.
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
    dimensions: tuple[int, ...] | None = None
    hashes: int = 0

    @property
    def full_name(self) -> str:
        """Return schema.table."""
        return f"{self.schema}.{self.table}"


# Optional metadata fields.
_SIGNEDNESS, _DEFAULT_CHARSET, _COLUMN_CHARSET, _COLUMN_NAME = 1, 2, 3, 4
_SET_VALUES, _ENUM_VALUES, _GEOMETRY_TYPE = 5, 6, 7
_PRIMARY_KEY, _PRIMARY_KEY_PREFIX = 8, 9
_ENUM_SET_DEFAULT, _ENUM_SET_CHARSET, _VISIBILITY = 10, 11, 12
_VECTOR_DIMENSIONS = 13
_HASH_NAME = re.compile(r"DB_ROW_HASH_[1-9]\d*")


def parse_table_map(body: bytes, id_bytes: int = 6, mariadb: bool = False) -> TableMap:
    """Parse an event's body; `id_bytes` is 4 if FORMAT_DESCRIPTION gives TABLE_MAP 6 fixed bytes.
    Columns with a character set include VECTOR in MySQL, geometry in MariaDB."""
    reader = Reader(body, "TABLE_MAP")
    table_id = reader.integer(id_bytes)
    reader.skip(2)
    schema = _name(reader)
    table = _name(reader)
    count = reader.packed()
    codes = reader.take(count)
    fields = Reader(reader.take(reader.packed()), "TABLE_MAP metadata")
    columns = [_column_type(code, fields) for code in codes]
    if fields.left:
        extra = f"{fields.left} bytes of metadata too many"
        raise CorruptEvent(f"TABLE_MAP of {schema}.{table}: {extra}")
    nulls = reader.take((count + 7) // 8)
    nullable = tuple(bool(nulls[c >> 3] >> (c & 7) & 1) for c in range(count))
    kinds = tuple(kind for kind, _ in columns)
    optional = _optional(reader, kinds, mariadb) if reader.left else {}
    return TableMap(
        table_id, schema, table, kinds, tuple(value for _, value in columns), nullable, **optional
    )


def _name(reader: Reader) -> str:
    name = reader.take(reader.integer(1)).decode("utf-8", "replace")
    reader.skip(1)
    return name


def _column_type(code: int, fields: Reader) -> tuple[int, int]:
    """Return the real type, and its metadata as one integer."""
    field = field_type(code)
    if field.read_metadata is not None:
        first, second = fields.take(2)
        return field.read_metadata(code, first, second)
    return code, fields.integer(field.metadata_bytes) if field.metadata_bytes else 0


def _optional(reader: Reader, kinds: tuple[int, ...], mariadb: bool) -> dict[str, Any]:
    raw: dict[int, bytes] = {}
    while reader.left:
        field = reader.integer(1)
        raw[field] = reader.take(reader.packed())
    found: dict[str, Any] = {}
    if _SIGNEDNESS in raw:
        numeric = [c for c, kind in enumerate(kinds) if field_type(kind).has_sign]
        found["unsigned"] = _bits(raw[_SIGNEDNESS], numeric, len(kinds), False)
    collations = _collations(raw, kinds, mariadb)
    if collations is not None:
        found["collations"] = collations
    if _COLUMN_NAME in raw:
        names = Reader(raw[_COLUMN_NAME], "TABLE_MAP column names")
        found["names"] = tuple(names.take(names.packed()).decode("utf-8", "replace") for _ in kinds)
        if mariadb:
            found["hashes"] = _hashes(kinds, found["names"])
    if _ENUM_VALUES in raw or _SET_VALUES in raw:
        found["labels"] = _labels(raw, kinds, collations)
    if _GEOMETRY_TYPE in raw:
        numbers = Reader(raw[_GEOMETRY_TYPE], "TABLE_MAP geometry types")
        found["geometry_types"] = tuple(
            numbers.packed() if kind == mysql.GEOMETRY and numbers.left else 0 for kind in kinds
        )
    if _VECTOR_DIMENSIONS in raw:
        numbers = Reader(raw[_VECTOR_DIMENSIONS], "TABLE_MAP vector dimensions")
        found["dimensions"] = tuple(
            numbers.packed() if kind == mysql.VECTOR and numbers.left else 0 for kind in kinds
        )
    key = _primary_key(raw, len(kinds))
    if key is not None:
        found["primary_key"] = key
    if _VISIBILITY in raw:
        found["visible"] = _bits(raw[_VISIBILITY], list(range(len(kinds))), len(kinds), True)
    return found


def _hashes(kinds: tuple[int, ...], names: tuple[str, ...]) -> int:
    """Count the columns at the end that have type and name of MariaDB's hidden ones for long unique
    keys."""
    count = 0
    for kind, name in zip(reversed(kinds), reversed(names), strict=True):
        if kind != mysql.LONGLONG or not _HASH_NAME.fullmatch(name):
            break
        count += 1
    return min(count, len(kinds) - 1)


def _bits(data: bytes, columns: list[int], count: int, default: bool) -> tuple[bool, ...]:
    """One bit per item of `columns`, most significant first; other columns get the default."""
    if len(data) * 8 < len(columns):
        raise CorruptEvent("TABLE_MAP: a bit field is too short")
    values = [default] * count
    for bit, column in enumerate(columns):
        values[column] = bool(data[bit >> 3] >> (7 - (bit & 7)) & 1)
    return tuple(values)


def _collations(
    raw: dict[int, bytes], kinds: tuple[int, ...], mariadb: bool
) -> tuple[int, ...] | None:
    counted = mysql.GEOMETRY if mariadb else mysql.VECTOR
    characters = {k for k in kinds if k == counted or field_type(k).has_charset}
    values = [0] * len(kinds)
    known = False
    for default, each, wanted in (
        (_DEFAULT_CHARSET, _COLUMN_CHARSET, characters),
        (_ENUM_SET_DEFAULT, _ENUM_SET_CHARSET, {mysql.ENUM, mysql.SET}),
    ):
        columns = [c for c, kind in enumerate(kinds) if kind in wanted]
        if default in raw:
            known = True
            reader = Reader(raw[default], "TABLE_MAP default character set")
            usual = reader.packed()
            for column in columns:
                values[column] = usual
            while reader.left:  # exceptions: index among these columns, collation
                which, collation = reader.packed(), reader.packed()
                if which >= len(columns):
                    raise CorruptEvent("TABLE_MAP: a character set for a column that is not there")
                values[columns[which]] = collation
        elif each in raw:
            known = True
            reader = Reader(raw[each], "TABLE_MAP character sets")
            for column in columns:
                values[column] = reader.packed()
    if not known:
        return None
    # VECTOR or geometry is counted among them, as binary; it has no characters.
    bare = {mysql.VECTOR, mysql.GEOMETRY}
    return tuple(0 if k in bare else v for k, v in zip(kinds, values, strict=True))


def _labels(
    raw: dict[int, bytes], kinds: tuple[int, ...], collations: tuple[int, ...] | None
) -> tuple[tuple[str, ...], ...]:
    values: list[tuple[str, ...]] = [()] * len(kinds)
    for field, wanted in ((_ENUM_VALUES, mysql.ENUM), (_SET_VALUES, mysql.SET)):
        reader = Reader(raw.get(field, b""), "TABLE_MAP labels")
        for column, kind in enumerate(kinds):
            if kind == wanted and reader.left:
                number = collations[column] if collations else 0
                charset = charset_of_collation(number) if number else "utf8mb4"
                values[column] = tuple(
                    decode_label(reader.take(reader.packed()), charset)
                    for _ in range(reader.packed())
                )
    return tuple(values)


def _primary_key(raw: dict[int, bytes], count: int) -> tuple[int, ...] | None:
    key: list[int] = []
    if _PRIMARY_KEY in raw:
        reader = Reader(raw[_PRIMARY_KEY], "TABLE_MAP primary key")
        while reader.left:
            key.append(reader.packed())
    elif _PRIMARY_KEY_PREFIX in raw:
        reader = Reader(raw[_PRIMARY_KEY_PREFIX], "TABLE_MAP primary key")
        while reader.left:
            key.append(reader.packed())
            reader.packed()  # characters of the prefix; 0: the whole column
    else:
        return () if _COLUMN_NAME in raw else None
    if any(column >= count for column in key):
        raise CorruptEvent("TABLE_MAP: the primary key names a column that is not there")
    return tuple(key)


def table_meta_from_metadata(table_map: TableMap, hidden: int | None = None) -> TableMeta | None:
    """The table's schema as binlog_row_metadata=FULL tells it; None where the event has no names.

    Display widths are not in the binlog: `tinyint(1)` comes out as `tinyint`. `hidden`: how many of
    the last columns are hidden ones, where that is known better than by their names.
    """
    if table_map.names is None:
        return None
    hidden = table_map.hashes if hidden is None else hidden
    columns = tuple(_column_meta(table_map, c) for c in range(len(table_map.types) - hidden))
    return TableMeta(table_map.schema, table_map.table, columns, hidden)


def _column_meta(table_map: TableMap, number: int) -> ColumnMeta:
    kind = table_map.types[number]
    collation = table_map.collations[number] if table_map.collations else 0
    charset = charset_of_collation(collation) if collation else ""
    unsigned = bool(table_map.unsigned and table_map.unsigned[number]) and kind != mysql.YEAR
    labels = table_map.labels[number] if table_map.labels else ()
    declare = field_type(kind).declare
    if declare is None:
        raise UnsupportedEvent(
            f"{table_map.full_name}, column {number + 1}: type {mysql.type_name(kind)}"
        )
    declared = declare(
        MetadataColumn(
            kind,
            table_map.metadata[number],
            charset,
            labels,
            table_map.geometry_types[number] if table_map.geometry_types else 0,
            table_map.dimensions[number] if table_map.dimensions else 0,
        )
    )
    return ColumnMeta(
        name=table_map.names[number] if table_map.names else "",
        type_code=kind,
        mysql_type=declared.text + (" unsigned" if unsigned else ""),
        unsigned=unsigned,
        nullable=table_map.nullable[number],
        is_key=bool(table_map.primary_key and number in table_map.primary_key),
        charset=charset,
        length=declared.length,
        precision=declared.precision,
        scale=declared.scale,
        fraction=declared.fraction,
        labels=labels,
        visible=table_map.visible[number] if table_map.visible else True,
    )
