"""Columns of another type than the source's, to which a target may round values without a word."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from ray_canal.client.message import TableChange
from ray_canal.config.sink import TablePolicy
from ray_canal.sinks.column_specs import ColumnSpec
from ray_canal.sinks.port import SinkError

logger = logging.getLogger(__name__)

_ROUNDED = (pa.types.is_floating, pa.types.is_decimal, pa.types.is_temporal)
"""Kinds of values that a target rounds. Others are refused where they do not fit."""


def of_rounded_kind(columns: Sequence[ColumnSpec]) -> list[ColumnSpec]:
    """Return the columns whose values a target may round."""
    return [column for column in columns if any(is_one(column.kind) for is_one in _ROUNDED)]


def refuse_rounding(
    policy: TablePolicy, name: object, differing: Sequence[ColumnSpec], change: TableChange
) -> None:
    """Raise SinkError if a statement gave columns a type that the target's (`differing`) have
    not."""
    for column in differing:
        raise SinkError(
            f"at {change.journal_name}:{change.position} column {column.name} of "
            f"{change.schema}.{change.table} became {column.declared or column.kind}, and in "
            f"{name} it has another type, to which values might be rounded: change it there, "
            f'or set {policy.setting("schema_change")} = "evolve", and start again',
            "schema",
        )


def tell_rounding(
    name: object,
    columns: Sequence[ColumnSpec],
    named: Mapping[str, str],
    differing: Callable[[list[ColumnSpec]], list[ColumnSpec]],
) -> None:
    """Log which columns of a table, which may be made by hand, may round values. `named`: those
    that are written, with their names there; `differing`: those of another type there."""
    written = [each for each in of_rounded_kind(columns) if each.name in named]
    there = [each._replace(name=named[each.name]) for each in written]
    if there and (found := differing(there)):
        logger.warning(
            "%s has other types than the source in %s: the target may round their values; give "
            "them the source's types if they are to be equal",
            name, ", ".join(f"{each.name} ({each.declared or each.kind})" for each in found),
        )  # fmt: skip
