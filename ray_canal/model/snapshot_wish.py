"""Requests for a snapshot for a subscriber."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ray_canal.errors import ConfigError

SnapshotMode = Literal["keyed", "consistent"]
"""Rows by chunks of their keys, between the changes; or all of one moment, then the changes."""
KEYED: SnapshotMode = "keyed"
CONSISTENT: SnapshotMode = "consistent"
SnapshotStart = Literal["initial", "never"]
"""When a new subscriber gets the rows that tables hold, into its log."""


@dataclass(frozen=True, slots=True)
class SnapshotWish:
    """Tables to read, as far as the subscriber sees them. `tables`: Canal's regex list over
    `schema.table`; empty: all. `where`: a condition in SQL, rows of which it is not true are left
    out. `columns`: names; empty: all; those of the key are always read."""

    tables: str = ""
    where: str = ""
    columns: tuple[str, ...] = ()


def wishes_of(
    tables: str = "",
    where: str | Mapping[str, str] = "",
    columns: Sequence[str] | Mapping[str, Sequence[str]] = (),
) -> tuple[SnapshotWish, ...]:
    """Return what is asked for: `where` and `columns` are for all of `tables`, or by patterns of
    some of them, of which the first that fits a table counts. A pattern of `where` alone has
    none of another pattern's `columns`. Raises ConfigError."""
    if isinstance(columns, str):
        raise ConfigError(f"columns {columns!r}: give a list of names")
    conditions = where if isinstance(where, Mapping) else {}
    lists = columns if isinstance(columns, Mapping) else {}
    every_where = "" if isinstance(where, Mapping) else where
    every_columns = () if isinstance(columns, Mapping) else tuple(columns)
    found = [
        SnapshotWish(
            pattern,
            conditions.get(pattern, every_where),
            tuple(lists.get(pattern, every_columns)),
        )
        for pattern in dict.fromkeys([*conditions, *lists])
    ]
    if tables or not found:
        found.append(SnapshotWish(tables, every_where, every_columns))
    return tuple(found)


def refuse_mode(mode: str) -> None:
    """Raises ConfigError: there is no such mode; empty: what the configuration says."""
    if mode not in ("", KEYED, CONSISTENT):
        raise ConfigError(f'mode {mode!r}: expected "{KEYED}" or "{CONSISTENT}"')
