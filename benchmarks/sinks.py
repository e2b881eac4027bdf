"""`python -m benchmarks.sinks`: rendering queue messages, one thread, against orjson.

FlatMessages and Debezium's change events of decoded chunks of the workloads, in rows a second of
CPU time, beside the plain way in the same run: the rows' texts as Python objects, a dict a message,
`orjson.dumps`. Decoding is not in it. W2 has messages of one row, W1 of a thousand.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import typer

from benchmarks import workloads as work
from benchmarks.command import console, machine
from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.malloc import keep_freed_memory
from ray_canal.offline import decode_chunks
from ray_canal.views.arrow import batches
from ray_canal.views.debezium import (
    DebeziumOptions,
    events_of_chunk,
    json_keys,
    json_values,
    placed,
)
from ray_canal.views.flat import FlatOptions, flat_messages
from ray_canal.views.routing import Routing

TS_MS = 1_700_000_000_000
GOALS = {"W1": 4.0, "W2": 4.0}
"""How many times orjson's rate is to be reached."""

_KINDS = ("INSERT", "UPDATE", "DELETE")
_BY_KEY = Routing(partitions=8, partition_hash=r".*\..*:$pk$")


def native(chunk: DecodedChunk, routing: Routing) -> tuple[int, int]:
    """(rows, bytes) of a chunk's messages."""
    options = FlatOptions(ts_ms=TS_MS, routing=routing)
    found = flat_messages(chunk, 0, chunk.layout.event_count, None, options)
    return int(found.rows.sum()), int(found.buffer.size)


def change_events(chunk: DecodedChunk) -> tuple[int, int]:
    """The same of Debezium's messages, without tombstones."""
    options = DebeziumOptions(prefix="bench", ts_us=1000 * TS_MS, tombstones=False)
    events = events_of_chunk(chunk, list(batches(chunk, 0, chunk.layout.event_count)), options)
    made = [json_values(each, options) for each in events]
    found = placed(events, made, [json_keys(each, options) for each in events])
    return int(found.rows.sum()), int(found.buffer.size)


def plain(chunk: DecodedChunk) -> tuple[int, int]:
    """The same by orjson, from the Arrow columns as text; a message for each row event."""
    rows = size = 0
    for batch in batches(chunk, 0, chunk.layout.event_count):
        meta = batch.schema.metadata
        before, after = (_texts(batch.column(name)) for name in ("before", "after"))
        names = [field.name for field in batch.schema.field("after").type]
        types = dict.fromkeys(names, "varchar(20)")
        numbers = dict.fromkeys(names, 12)
        kinds = batch.column("event_type").cast(pa.string()).to_pylist()
        times = batch.column("execute_time").cast(pa.int64()).to_pylist()
        positions = batch.column("position").to_pylist()
        head: dict[str, Any] = {
            "database": meta[b"canal.schema"].decode(), "gtid": "", "id": 1, "isDdl": False,
            "mysqlType": types, "pkNames": names[:1], "sql": "", "sqlType": numbers,
            "table": meta[b"canal.table"].decode(), "ts": TS_MS,
        }  # fmt: skip
        first = 0
        for at in range(1, len(kinds) + 1):
            if at < len(kinds) and positions[at] == positions[first]:
                continue
            kind = kinds[first].upper()
            old = None
            data = before[first:at] if kind == "DELETE" else after[first:at]
            if kind == "UPDATE":
                old = [
                    {name: b[name] for name in names if b[name] != a[name]}
                    for b, a in zip(before[first:at], data, strict=True)
                ]
            message = {**head, "data": data, "old": old, "type": kind, "es": times[first] // 1000}
            size += len(orjson.dumps(message))
            rows += at - first
            first = at
    return rows, size


def _texts(column: Any) -> list[Any]:
    """A struct column's rows as dicts of texts."""
    arrays = [column.field(k).cast(pa.string()) for k in range(column.type.num_fields)]
    names = [field.name for field in column.type]
    absent = pc.invert(column.is_valid())
    rows: list[Any] = pa.StructArray.from_arrays(arrays, names=names, mask=absent).to_pylist()
    return rows


def rate(chunks: list[DecodedChunk], render: Callable[[DecodedChunk], tuple[int, int]]) -> float:
    """Rows a second of CPU time."""
    began = time.process_time()
    rows = sum(render(chunk)[0] for chunk in chunks)
    return rows / (time.process_time() - began)


def main(
    scale: Annotated[float, typer.Option(min=0.0001, help="Part of the full rows.")] = 0.02,
    runs: Annotated[int, typer.Option(min=1, help="Runs of each; the median counts.")] = 3,
    out: Annotated[Path | None, typer.Option(help="Write the figures here, as JSON.")] = None,
) -> None:
    """Measure, and print the rates and their ratio to orjson's."""
    keep_freed_memory()  # as processes of sinks do
    ways: dict[str, Callable[[DecodedChunk], tuple[int, int]]] = {
        "one partition": lambda chunk: native(chunk, Routing()),
        "by key to 8 partitions": lambda chunk: native(chunk, _BY_KEY),
        "change events": change_events,
        "orjson": plain,
    }
    figures: dict[str, dict[str, float]] = {}
    for name in ("W2", "W1"):
        made = work.make(work.WORKLOADS[name], scale, lambda text: None)
        chunks = [chunk for _, chunk in decode_chunks(list(made.files))]
        for way in ways.values():
            way(chunks[0])
        found = {
            label: statistics.median(rate(chunks, way) for _ in range(runs))
            for label, way in ways.items()
        }
        figures[name] = found
        for label, value in found.items():
            console.print(f"{name} {label}: {value:,.0f} rows/s, {value / found['orjson']:.1f} x")
        ratio = found["one partition"] / found["orjson"]
        console.print(f"{name}: {ratio:.1f} x orjson (goal {GOALS[name]:.0f} x)")
    if out is not None:
        out.write_text(json.dumps({"machine": machine(), "flat": figures}, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
