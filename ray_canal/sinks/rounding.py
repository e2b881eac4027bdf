"""Columns of another type than the source's, to which a target may round values without a word."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from ray_canal.client.message import TableChange
from ray_canal.config.sink import TablePolicy
from ray_canal.sinks.column_specs import ColumnSpec
from ray_canal.sinks.port import SinkError

logger = logging.getLogger(__name__)

_ROUNDED = (pa.types.is_floating, pa.types.is_decimal, pa.types.is_temporal)
"""Kinds of values that a target rounds. Others are refused where they do not fit."""


class _Typed(Protocol):
    """See schema_follower.TargetTables."""

    def differing(self, name: Any, columns: Sequence[ColumnSpec]) -> list[ColumnSpec]: ...
    def types(self, name: Any) -> dict[str, str]: ...


def rounding(tables: _Typed, name: object, columns: Sequence[ColumnSpec]) -> list[ColumnSpec]:
    """Return the columns whose values a table may round."""
    found = [column for column in columns if any(is_one(column.kind) for is_one in _ROUNDED)]
    found = tables.differing(name, found) if found else []
    types = tables.types(name) if found else {}
    return [column for column in found if not _keeps(types[column.name].lower(), column.kind)]


def _keeps(there: str, kind: pa.DataType) -> bool:
    """Return whether a type, as a target shows it, has all digits that values may have."""
    is_one = pa.types
    word = re.match("[a-z]*", there)
    base, digits = word[0] if word else "", re.search(r"\((?:\d+, *)?(\d+)\)", there)
    scale = None if digits is None else int(digits[1])
    if is_one.is_decimal(kind):
        return base in ("decimal", "numeric") and (scale is None or scale >= kind.scale)
    if is_one.is_floating(kind):
        return base == "double" and scale is None
    if is_one.is_date(kind):
        return base in ("datetime", "timestamp")
    # Those of PostgreSQL without a number have six digits, those of MySQL none.
    fits = base in (("time", "interval") if is_one.is_duration(kind) else ("datetime", "timestamp"))
    return fits and (scale == 6 or (scale is None and ("zone" in there or base == "interval")))


def refuse_rounding(
    policy: TablePolicy,
    tables: _Typed,
    name: object,
    columns: Sequence[ColumnSpec],
    change: TableChange,
) -> None:
    """Raise SinkError if a statement gave a column a type whose values a target may round without a
    word to fit the type that it has there. (Others are refused when they come.)"""
    names = {each.lower() for each in change.retyped}
    retyped = [column for column in columns if column.name.lower() in names]
    for column in rounding(tables, name, retyped):
        raise SinkError(
            f"at {change.journal_name}:{change.position} column {column.name} of "
            f"{change.schema}.{change.table} became {column.declared or column.kind}, and in "
            f"{name} it has another type, to which values might be rounded: change it there, "
            f'or set {policy.setting("schema_change")} = "evolve", and start again',
            "schema",
        )


def tell_rounding(
    tables: _Typed, name: object, columns: Sequence[ColumnSpec], named: Mapping[str, str]
) -> None:
    """Log which columns of a table, which may be made by hand, may round values. `named`: those
    that are written, with their names there."""
    there = [each._replace(name=named[each.name]) for each in columns if each.name in named]
    if found := rounding(tables, name, there):
        logger.warning(
            "%s has other types than the source in %s: the target may round their values; give "
            "them the source's types if they are to be equal",
            name, ", ".join(f"{each.name} ({each.declared or each.kind})" for each in found),
        )  # fmt: skip
