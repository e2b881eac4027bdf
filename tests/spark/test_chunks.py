"""Chunks as they are written: parts, streams, memory files; without Spark."""

from __future__ import annotations

import os
from decimal import Decimal

import pyarrow as pa
import pytest

from ray_canal.spark import chunks
from ray_canal.spark.frames import common_schema
from tests.spark.conftest import ITEM, change_batch, inserts


def read(place: str) -> list[pa.RecordBatch]:
    """The batches of a place in a memory file, as Arrow reads them."""
    kind, path, name, begin, length = place.split(":")
    assert kind == "memory"
    assert name in os.readlink(path)
    with open(path, "rb") as file:
        file.seek(int(begin))
        source = pa.BufferReader(file.read(int(length)))
    found: list[pa.RecordBatch] = []
    while source.tell() < source.size():
        found += list(pa.ipc.open_stream(source))
    return found


def test_what_java_reads_is_written_as_it_is() -> None:
    batch = inserts(0, 3)
    written = chunks.shipped(batch, common_schema([batch]))
    assert written.schema.field("event_type").type == batch.schema.field("event_type").type
    assert written.column("after").type == ITEM
    assert written.schema.metadata is None


def test_the_rest_is_cast() -> None:
    kinds = pa.struct([("id", pa.uint32()), ("long", pa.decimal256(50, 2)), ("no", pa.null())])
    image = {"id": 7, "long": "1.50", "no": None}
    after = pa.array([None, {**image, "long": Decimal("1.50")}], kinds)
    batch = pa.record_batch({"after": after})
    written = chunks.shipped(batch, common_schema([batch]))
    assert written.column("after").to_pylist() == [None, image]
    assert written.schema.field("after").type == pa.struct(
        [("id", pa.uint32()), ("long", pa.string()), ("no", pa.string())]
    )


def test_versions_have_streams_of_their_own() -> None:
    wider = pa.struct([("id", pa.uint64()), ("price", pa.int8())])
    newer = change_batch([("INSERT", None, {"id": 7, "price": 1})], wider)
    batches = [inserts(0, 2), inserts(2, 2), newer]
    carrier = chunks.MemoryFile()
    try:
        (place,) = chunks.write_chunks(batches, common_schema(batches), carrier, 4)
        found = read(place)
    finally:
        carrier.release()
    assert [batch.num_rows for batch in found] == [2, 2, 1]
    # Two types have nothing in common in Java: the older ones are cast to what both are read as.
    assert found[0].schema.field("after").type.field("name").type == pa.string()
    assert found[2].column("after").to_pylist()[0]["price"] == 1


@pytest.mark.parametrize("partitions", [1, 2, 3, 7])
def test_batches_are_divided_in_order(monkeypatch: pytest.MonkeyPatch, partitions: int) -> None:
    monkeypatch.setattr(chunks, "PARTITION_BYTES", 1)
    parts = chunks.divided([inserts(0, 10), inserts(10, 1), inserts(11, 9)], partitions)
    assert len(parts) == partitions
    ids = [row["after"]["id"] for part in parts for batch in part for row in batch.to_pylist()]
    assert ids == list(range(20))
    sizes = [sum(batch.num_rows for batch in part) for part in parts]
    assert max(sizes) - min(sizes) <= partitions


def test_small_batches_stay_together_and_large_ones_do_not() -> None:
    batches = [inserts(0, 100)]
    assert len(chunks.divided(batches, 8)) == 1
    assert len(chunks.divided(batches, 1, bytes_max=batches[0].nbytes // 3)) == 4


def test_a_key_is_in_one_chunk_however_large() -> None:
    class Carrier(chunks.MemoryFile):
        bytes_max = 64

    carrier = Carrier()
    batches = [inserts(0, 50)]
    schema = common_schema(batches)
    try:
        assert len(chunks.write_chunks(batches, schema, carrier, 1)) > 1
        (one, other) = chunks.write_parts([batches, [inserts(50, 60)]], schema, carrier)
        assert [sum(batch.num_rows for batch in read(place)) for place in (one, other)] == [50, 60]
    finally:
        carrier.release()


def test_a_released_memory_file_is_gone() -> None:
    carrier = chunks.MemoryFile()
    carrier.release()  # nothing was written
    batch = inserts(0, 3)
    (place,) = chunks.write_chunks([batch], common_schema([batch]), carrier, 1)
    carrier.release()
    carrier.release()
    _, path, name, *_ = place.split(":")
    assert not os.path.exists(path) or name not in os.readlink(path)
