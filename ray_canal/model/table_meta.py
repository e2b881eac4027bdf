"""Definition of a table at a point of the binlog: names, types, keys.

Plain records. Where they come from (row metadata, catalog, CREATE TABLE text) is the business of
schema/.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, Protocol

SEQUENCE_COLUMNS = (
    "next_not_cached_value", "minimum_value", "maximum_value", "start_value", "increment",
    "cache_size", "cycle_option", "cycle_count",
)  # fmt: skip
"""Columns of the one row of a MariaDB SEQUENCE (MariaDB manual, "SEQUENCE Storage Engine")."""


class HasName(Protocol):
    """A column, or a field of Arrow's."""

    @property
    def name(self) -> str:
        """Return its name."""
        ...


def is_sequence(columns: Iterable[HasName]) -> bool:
    """Tell if a table is a SEQUENCE, by its columns."""
    return tuple(column.name for column in columns) == SEQUENCE_COLUMNS


@dataclass(frozen=True, slots=True)
class ColumnMeta:
    """One column of a table version.

    `type_code` is MySQL's field type as the binlog writes it (`enum_field_types`, with ENUM and SET
    told apart from STRING), `mysql_type` the column type as its DDL declared it (`bool`) or as
    `information_schema.COLUMN_TYPE` prints it (`varchar(50)`, `int unsigned`). `charset` is MySQL's
    character set name, `binary` for bytes, and empty where it does not apply. `length` is in
    characters for CHAR/VARCHAR, in bytes for BINARY/VARBINARY, bits for BIT, elements for VECTOR;
    `precision`/`scale` for DECIMAL; `fraction` for the digits of fractional seconds. `is_generated`
    is told of MariaDB alone, which leaves such columns out of images.
    """

    name: str
    type_code: int
    mysql_type: str
    unsigned: bool = False
    nullable: bool = True
    is_key: bool = False
    charset: str = ""
    length: int = 0
    precision: int = 0
    scale: int = 0
    fraction: int = 0
    labels: tuple[str, ...] = ()
    visible: bool = True
    is_generated: bool = False

    def to_tree(self) -> dict[str, Any]:
        """Return the fields that are not their defaults, for JSON."""
        return {
            name: value
            for name, default in _DEFAULTS.items()
            if (value := getattr(self, name)) != default
        }

    @classmethod
    def from_tree(cls, tree: Mapping[str, Any]) -> ColumnMeta:
        """Return the column of `to_tree`. Raises KeyError, TypeError: it is none."""
        return cls(**{**tree, "labels": tuple(tree.get("labels", ()))})


_DEFAULTS = {each.name: each.default for each in fields(ColumnMeta)}
"""Defaults of a column's fields; no value equals that of a field that has none."""


class SharedColumns:
    """Makes one object of columns that are equal, and of lists of them: a server of many tenants
    has the same tables many times."""

    def __init__(self) -> None:
        self._columns: dict[ColumnMeta, ColumnMeta] = {}
        self._lists: dict[tuple[ColumnMeta, ...], tuple[ColumnMeta, ...]] = {}

    def one(self, column: ColumnMeta) -> ColumnMeta:
        """Return a column that is equal."""
        return self._columns.setdefault(column, column)

    def all(self, columns: Iterable[ColumnMeta]) -> tuple[ColumnMeta, ...]:
        """Return columns that are equal, one after the other."""
        found = tuple(map(self.one, columns))
        return self._lists.setdefault(found, found)


UNIQUE_KEY_NOTE = b"canal.unique_key"
"""In the metadata of an Arrow schema: TableMeta's `unique_key`."""
RDS_HIDDEN_KEY = "__#alibaba_rds_row_id#__"
POLARDBX_HIDDEN_KEY = "_drds_implicit_id_"
"""A BIGINT after a keyless table's columns that the server adds: the catalog does not show it."""
HIDDEN_KEYS = frozenset({RDS_HIDDEN_KEY, POLARDBX_HIDDEN_KEY})


@dataclass(frozen=True, slots=True)
class TableMeta:
    """One version of a table's schema. `columns` are in ordinal order, invisible ones included.

    `hidden`: how many columns rows have after these that no statement can show: MariaDB's
    DB_ROW_HASH_n (BIGINT UNSIGNED, may be NULL), one for each unique key too long for an index.
    `unique_key`: columns of the unique key that row metadata names where there is no primary one.

    It goes along with every chunk and is what caches ask for, so it keeps its hash and its pickle,
    and is the same object each time that it comes to a process.
    """

    schema: str
    table: str
    columns: tuple[ColumnMeta, ...]
    hidden: int = 0
    unique_key: tuple[str, ...] = ()
    _hash: int = field(init=False, repr=False, compare=False)
    _pickle: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.schema, self.table, self.columns)))
        object.__setattr__(self, "_pickle", b"")

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        if not self._pickle:
            values = (self.schema, self.table, self.columns, self.hidden, self.unique_key)
            object.__setattr__(self, "_pickle", pickle.dumps(values, protocol=5))
        return _known, (self._pickle,)

    @property
    def full_name(self) -> str:
        """Return schema.table."""
        return f"{self.schema}.{self.table}"


@lru_cache(maxsize=4096)
def _known(values: bytes) -> TableMeta:
    return TableMeta(*pickle.loads(values))
