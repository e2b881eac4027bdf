"""The rows of a table's batches divided by key: all changes of a key in one part, in log order.

A change of the key from one to another is in one part with both, and so are all changes of either.
"""

from __future__ import annotations

import json
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ray_canal.model.arrays import Int64s
from ray_canal.spark.schema import merged_type, readable_array, readable_type
from ray_canal.views.mysql_texts import fraction_digits


def key_of(schema: pa.Schema) -> tuple[str, ...]:
    """The names of the table's key columns; empty: it has none."""
    names: list[str] = json.loads((schema.metadata or {}).get(b"canal.key", b"[]"))
    return tuple(names)


def by_key(
    batches: list[pa.RecordBatch], key: tuple[str, ...], parts: int
) -> list[list[pa.RecordBatch]]:
    """At most `parts` lists of batches. One list, if there is no key, or if a change concerns the
    table as a whole: then it has to be in order with all others."""
    if parts < 2 or not key or not all(_has_key(batch, key) for batch in batches):
        return [batches]
    groups = _grouped(_numbered(batches, key)) % parts
    found: list[list[pa.RecordBatch]] = [[] for _ in range(parts)]
    begin = 0
    for batch in batches:
        mine = groups[begin : begin + batch.num_rows]
        begin += batch.num_rows
        for number, part in enumerate(found):
            rows = np.flatnonzero(mine == number)
            if len(rows):
                part.append(batch.take(pa.array(rows)))
    return [part for part in found if part]


def _has_key(batch: pa.RecordBatch, key: tuple[str, ...]) -> bool:
    """Return whether each row has an image with the key's columns."""
    images = [batch.schema.field(side).type for side in ("before", "after")]
    if not all(name in {field.name for field in image} for image in images for name in key):
        return False
    no_image = pc.and_(batch.column("before").is_null(), batch.column("after").is_null())
    return not pc.any(no_image).as_py()


def _numbered(batches: list[pa.RecordBatch], key: tuple[str, ...]) -> tuple[Int64s, Int64s]:
    """Numbers of the rows' keys before and after; where an image is missing, that of the other."""
    numbers: Int64s = np.zeros(2 * sum(batch.num_rows for batch in batches), np.int64)
    for name in key:
        before = [_values(batch.column("before"), name) for batch in batches]
        after = [_values(batch.column("after"), name) for batch in batches]
        values = _chunked(
            [pc.coalesce(b, a) for b, a in zip(before, after, strict=True)]
            + [pc.coalesce(a, b) for b, a in zip(before, after, strict=True)],
            2 * [fraction_digits(b.schema.field("after").type.field(name)) for b in batches],
        )
        encoded = values.dictionary_encode().combine_chunks()
        column: Int64s = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        pairs = numbers * (len(encoded.dictionary) + 1) + column + 1
        numbers = np.unique(pairs, return_inverse=True)[1].astype(np.int64)
    half = len(numbers) // 2
    return numbers[:half], numbers[half:]


def _values(image: pa.StructArray, name: str) -> pa.Array:
    values = pc.struct_field(image, name)
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def _chunked(arrays: list[pa.Array], digits: list[int | None]) -> pa.ChunkedArray:
    """Return arrays as one, whose equal values are equal keys. Two versions of a table may differ
    in a key column's type: then values count as Spark shows both. `digits`: declared fractional
    digits of times."""
    if any(array.type != arrays[0].type for array in arrays):
        shown = reduce(merged_type, [readable_type(array.type) for array in arrays])
        arrays = [readable_array(a, shown, n) for a, n in zip(arrays, digits, strict=True)]
    if pa.types.is_list(arrays[0].type):  # a SET, whose members have one order
        arrays = [readable_array(array, pa.string()) for array in arrays]
    return pa.chunked_array(arrays)


def _grouped(numbers: tuple[Int64s, Int64s]) -> Int64s:
    """One number for each row; keys that a row changed into one another share it."""
    before, after = numbers
    joined: dict[int, int] = {}

    def root(key: int) -> int:
        while joined.get(key, key) != key:
            key = joined[key]
        return key

    moved = np.flatnonzero(before != after)
    for row in moved:
        first, second = root(int(before[row])), root(int(after[row]))
        joined[max(first, second)] = min(first, second)
    if not joined:
        return after
    to_root: Int64s = np.arange(int(max(before.max(), after.max())) + 1)
    for key in joined:
        to_root[key] = root(key)
    return to_root[after]
