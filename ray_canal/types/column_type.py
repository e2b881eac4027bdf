"""The records that a family of column types consists of: field types, words, storages.

A **field type** is a number that TABLE_MAP gives a column: how its bytes stand in rows, and what
the schema calls it. A **word** is a type as statements and the catalog write it; several words
share a field type (`char` and `uuid`), and one may change how rows are read. A **storage** is how
decoded values lie in memory (kernels/base/codes.py), and what the views make of them. The families
list their own; registry.py joins the lists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from ray_canal.errors import CorruptEvent, UnsupportedEvent
from ray_canal.kernels.base import codes
from ray_canal.model.table_meta import ColumnMeta
from ray_canal.types import sql
from ray_canal.types.charsets import canonical, charset_of_collation


class PlanLine(NamedTuple):
    """Wire format that the row kernels read: the first fields of a plan (kernels/rows/wire.py).

    `size` is in bytes; -n says that n bytes of length come first.
    """

    read: int
    size: int
    null: int
    code: int
    precision: int = 0
    scale: int = 0
    table: int = 0
    charset: int = 0


class RowColumn(NamedTuple):
    """A column of rows: its field type and metadata as TABLE_MAP has them, and its schema.

    `collation` is 0 where TABLE_MAP names none; `unsigned` is the schema's where it has no signs.
    """

    type_code: int
    metadata: int
    unsigned: bool
    collation: int
    schema: ColumnMeta

    @property
    def charset(self) -> str:
        """MySQL's name of the character set. Raises UnsupportedEvent: unknown."""
        if self.collation:
            return charset_of_collation(self.collation)
        if not self.schema.charset:
            raise UnsupportedEvent("its character set is not known")
        return canonical(self.schema.charset)


class MetadataColumn(NamedTuple):
    """A column as TABLE_MAP alone tells it, with MySQL 8's row metadata where that was written."""

    type_code: int
    metadata: int
    charset: str
    labels: tuple[str, ...]
    geometry: int
    dimensions: int


class Declared(NamedTuple):
    """A type's declared text, and its measures as a ColumnMeta has them."""

    text: str
    length: int = 0
    precision: int = 0
    scale: int = 0
    fraction: int = 0


MetadataReader = Callable[[int, int, int], tuple[int, int]]
"""(type in the event, first byte, second byte) -> (real type, metadata as one number)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldType:
    """A number that TABLE_MAP gives a column.

    `plan` and `declare` are None for types that no row has; the column is refused by name.
    `same_as`: the field type that schemas have for it. `stands_for`: types that the schema may have
    instead (MariaDB's VECTOR is a VARCHAR in its rows). `metadata_bytes`: 0 to 2, and
    `read_metadata` what two bytes mean. `size_bytes`: of a value in a row and in a key, 0 where it
    varies. `has_sign`, `has_charset`: row metadata gives it one. `sql_text`: Canal's sqlType of its
    texts.
    """

    code: int
    plan: Callable[[RowColumn], PlanLine] | None = None
    declare: Callable[[MetadataColumn], Declared] | None = None
    storage: Callable[[ColumnMeta], int] | None = None
    same_as: int | None = None
    stands_for: tuple[int, ...] = ()
    metadata_bytes: int = 0
    read_metadata: MetadataReader | None = None
    size_bytes: int = 0
    has_sign: bool = False
    has_charset: bool = False
    sql_text: int = sql.CLOB


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeWord:
    """A type as statements and information_schema.DATA_TYPE write it.

    `synonyms` are other words for it (one, two or three). `charset`: "text" where its columns have
    one, "binary" for bytes, "" for neither. `is_sized`: its first number is a length. `key_bytes`
    where a key takes others than its field type. `plans` and `storage` replace the field type's:
    by the type in the rows, how they are read.
    """

    word: str
    code: int
    synonyms: tuple[str, ...] = ()
    charset: Literal["", "text", "binary"] = ""
    is_sized: bool = False
    key_bytes: int = 0
    plans: Mapping[int, Callable[[RowColumn], PlanLine]] = field(default_factory=dict)
    storage: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Storage of values in decoded chunks, and their form in the views.

    `arrow` makes the Arrow type from the pyarrow module (most processes run without it) and the
    column. `spark` is Spark's name of the type that spark/schema.py derives from that.
    `sql_type` is Canal's; `sql_widened` that of an unsigned value whose top bit is set, and
    `sql_null` that of NULL, where they differ.
    """

    code: int
    arrow: Callable[[Any, ColumnMeta], Any]
    spark: str
    sql_type: int
    sql_widened: int | None = None
    sql_null: int | None = None


def fixed(read: int, size: int, code: int) -> PlanLine:
    """Return the line of a value of `size` bytes; a NULL leaves zero bytes in its slot."""
    return PlanLine(read, size, -codes.WIDTH_BYTES[code], code)


def size_between(size: int, least: int, most: int) -> int:
    """Return `size`. Raises CorruptEvent: it is out of bounds."""
    if not least <= size <= most:
        raise CorruptEvent(f"a size of {size} bytes is not between {least} and {most}")
    return size
