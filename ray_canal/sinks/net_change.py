"""The net change of a run of rows per primary key, by Arrow: the last one wins.

An update that changes the key removes the old key and writes the new one. What is left has each key
once, so deletes may be made before writes, in any order.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ray_canal.sinks.port import SinkError
from ray_canal.views.presence import IMAGES, lacks


@dataclass(frozen=True)
class NetChange:
    """`deletes` has the key columns alone, `upserts` all columns; no key is in both."""

    deletes: pa.Table
    upserts: pa.Table


def plain(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return an array with ENUM and SET values as the text that MySQL shows."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if pa.types.is_dictionary(array.type):
        return array.cast(array.type.value_type)
    if pa.types.is_list(array.type) and pa.types.is_string(array.type.value_type):
        return pc.binary_join(array, ",")
    return array


def of_one_schema(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """Return batches of one table version as a table. Raises SinkError: rows of a source whose
    binlog_row_image leaves columns out, or of which a transform did."""
    table = pa.Table.from_batches(batches)
    needed = ("event_type", "before", "after")
    if gone := [name for name in needed if name not in table.column_names]:
        raise SinkError(
            f"table {(table.schema.metadata or {})[b'canal.table'].decode()}: `transform` has left "
            f"out {', '.join(gone)}; keep these columns"
        )
    if "before_present" in table.column_names:
        raise SinkError(_absent(table))
    return table


def _absent(table: pa.Table) -> str:
    """Return which columns rows lack, and what to do."""
    metadata = table.schema.metadata or {}
    names = [field.name for field in table.schema.field("after").type]
    batches = table.combine_chunks().to_batches()
    gone = [c for c in names if any(lacks(each, side, c) for each in batches for side in IMAGES)]
    of_table = f"{metadata[b'canal.schema'].decode()}.{metadata[b'canal.table'].decode()}"
    needed = (
        f"rows of {of_table} lack columns ({', '.join(gone)}): a mirror needs "
        "binlog_row_image=FULL on the source"
    )
    if set(gone) & set(json.loads(metadata.get(b"canal.key", b"[]"))):
        return needed  # it is not FULL, which has the key
    return (
        f"{needed}. MariaDB 11.8 leaves generated columns out even then: "
        f"leave them out of the mirror, too, with filter.black_fields = '{of_table}:"
        f"{'/'.join(gone)}' of the destination"
    )


def image(table: pa.Table, side: str, names: Iterable[str]) -> pa.Table:
    """Return columns of `before` or `after`."""
    column = table[side].combine_chunks()
    if isinstance(column, pa.ChunkedArray):  # no rows
        column = pa.array([], table.schema.field(side).type)
    return pa.table({name: plain(pc.struct_field(column, [name])) for name in names})


def as_in_target(rows: pa.Table, named: Mapping[str, str]) -> pa.Table:
    """Return rows under the names that their columns have in the target."""
    return rows.rename_columns([named.get(name, name) for name in rows.column_names])


def _refuse_null_keys(table: pa.Table, **sides: pa.Table) -> None:
    """Raises SinkError: a date in a primary key is one that no calendar has, which is null in
    Arrow, so that such rows cannot be told from each other, nor found by their key."""
    for side, values in sides.items():
        for name in values.column_names:
            if values[name].null_count > table[side].null_count:
                of_table = (table.schema.metadata or {})[b"canal.table"].decode()
                raise SinkError(
                    f"the primary key of a row of {of_table} has no value in {name}: a date that "
                    "no calendar has (0000-00-00) finds no row in a mirror",
                    "poison",
                )


def _in_bits(keys: pa.Table) -> pa.Table:
    """Return keys with their floating-point numbers as integers of the same bits: 0 and -0 are one
    number, and two keys for a target that compares bits. So an UPDATE that makes one of the other
    removes the one and writes the other, which is right wherever they are one, too."""
    bits = {pa.float64(): pa.int64(), pa.float32(): pa.int32()}
    return _viewed(keys, [bits.get(kind, kind) for kind in keys.schema.types])


def _viewed(keys: pa.Table, kinds: Sequence[pa.DataType]) -> pa.Table:
    """Return the bytes of keys as values of other types of the same width."""
    for at, (field, kind) in enumerate(zip(keys.schema, kinds, strict=True)):
        if field.type != kind:
            chunks = [chunk.view(kind) for chunk in keys[field.name].chunks]
            keys = keys.set_column(at, field.name, pa.chunked_array(chunks, kind))
    return keys


def net_change(
    batches: Sequence[pa.RecordBatch], key: Sequence[str], columns: Iterable[str]
) -> NetChange:
    """Return what a run of changes of one table version comes to. Raises SinkError: rows lack
    columns, or a value in their key."""
    table = of_one_schema(batches)
    rows = table.num_rows
    kinds = plain(table["event_type"])
    is_delete = pc.equal(kinds, "DELETE")
    before, after = image(table, "before", key), image(table, "after", key)
    _refuse_null_keys(table, before=before, after=after)
    kinds_of_key = before.schema.types
    before, after = _in_bits(before), _in_bits(after)
    differs = [
        pc.fill_null(pc.not_equal(before[name], after[name]), False) for name in key
    ]
    moved = pc.and_(pc.equal(kinds, "UPDATE"), reduce(pc.or_, differs))
    left = np.flatnonzero(np.asarray(moved))
    own = {
        name: pc.if_else(is_delete, before[name], after[name]).combine_chunks() for name in key
    }
    gone = {name: before[name].take(left).combine_chunks() for name in key}
    order = np.concatenate([2 * np.arange(rows, dtype=np.int64) + 1, 2 * left.astype(np.int64)])
    steps = pa.table(
        {**{f"k{n}": pa.concat_arrays([own[name], gone[name]]) for n, name in enumerate(key)},
         "order": order}
    )  # fmt: skip
    last = steps.group_by([f"k{n}" for n in range(len(key))]).aggregate([("order", "max")])
    found = last["order_max"].to_numpy()
    writes = (found % 2 == 1) & ~np.asarray(is_delete)[found // 2]
    deletes = last.filter(pa.array(~writes)).select([f"k{n}" for n in range(len(key))])
    kept = np.sort(found[writes] // 2)
    return NetChange(
        _viewed(deletes.rename_columns(list(key)).combine_chunks(), kinds_of_key),
        image(table.select(["after"]).take(kept), "after", columns),
    )
