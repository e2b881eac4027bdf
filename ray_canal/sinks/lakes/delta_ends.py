"""The least and greatest value of a column: files of a Delta table tell them, and readers and
merges leave files out by them. delta-rs tells those of long decimals wrongly, as doubles. In tables
that are made here files tell none of such columns, and a merge does not ask for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

_DOUBLE_DIGITS = 15


def has_rounded_ends(kind: pa.DataType) -> bool:
    """Return whether files tell it wrongly. (An instant's microseconds are cut off, which delta-rs
    takes into account itself.)"""
    return bool(pa.types.is_decimal(kind)) and kind.precision > _DOUBLE_DIGITS


def same(name: str, kind: pa.DataType) -> str:
    """Return the condition that a column of the source `s` of a merge equals the table's, `t`; of
    an expression no file is left out."""
    quoted = '"' + name.replace('"', '""') + '"'
    if has_rounded_ends(kind):
        return f"CAST(t.{quoted} AS string) = CAST(s.{quoted} AS string)"
    return f"t.{quoted} = s.{quoted}"


def told_ends(schema: pa.Schema) -> dict[str, str]:
    """Return the table's property that names the columns whose ends files tell, if not all may."""
    leaves = [*_leaves(schema, "")]
    if not any(has_rounded_ends(kind) for _, kind in leaves):
        return {}
    told = [name for name, kind in leaves if not has_rounded_ends(kind)]
    if not told:
        return {"delta.dataSkippingNumIndexedCols": "0"}
    return {"delta.dataSkippingStatsColumns": ",".join(told)}


def _leaves(fields: Iterable[pa.Field], above: str) -> Iterator[tuple[str, pa.DataType]]:
    for field in fields:
        name = above + "`" + field.name.replace("`", "``") + "`"
        if pa.types.is_struct(field.type):
            yield from _leaves(field.type, f"{name}.")
        else:
            yield name, field.type
