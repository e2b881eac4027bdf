"""Batches of changes as views/arrow.py makes them, of given rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

Row = Mapping[str, Any]
KINDS = {(False, True): "INSERT", (True, True): "UPDATE", (True, False): "DELETE"}


def batch_of(
    columns: Mapping[str, pa.DataType],
    rows: Sequence[tuple[Row | None, Row | None]],
    name: str = "shop.orders",
    keys: Sequence[str] = (),
) -> pa.RecordBatch:
    """(before, after) images as one batch; None: the row has no such image."""
    image = pa.struct([pa.field(column, kind) for column, kind in columns.items()])
    count = len(rows)
    kinds = [KINDS[before is not None, after is not None] for before, after in rows]
    schema, _, table = name.partition(".")
    arrays = {
        "event_type": pa.array(kinds, pa.dictionary(pa.int8(), pa.string())),
        "journal_name": pa.array(["bin.000001"] * count, pa.dictionary(pa.int8(), pa.string())),
        "position": pa.array(range(count), pa.int64()),
        "row": pa.array([0] * count, pa.int64()),
        "execute_time": pa.array([1_700_000_000_000_000] * count, pa.timestamp("us", "UTC")),
        "gtid": pa.nulls(count, pa.dictionary(pa.int32(), pa.string())),
        "before": pa.array([before for before, _ in rows], image),
        "after": pa.array([after for _, after in rows], image),
    }
    metadata = {"canal.schema": schema, "canal.table": table, "canal.key": json.dumps(list(keys))}
    fields = [pa.field(column, array.type) for column, array in arrays.items()]
    return pa.RecordBatch.from_arrays(list(arrays.values()), schema=pa.schema(fields, metadata))
