"""RecordBatches of one table as chunks: Arrow IPC streams where Spark's JVMs read them in place.

A chunk becomes one partition. On one node, chunks are ranges of a memory file of this process; over
several nodes, objects in Ray's object store. Types that Spark has under another name or width
(unsigned integers, dictionaries) are written as they are; `java/Vector.java` reads them. The rest
is cast (spark/schema.py).
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.types as kind
import ray
from ray._private import worker as ray_worker

from ray_canal.spark.schema import in_letters_of, readable_array
from ray_canal.views.mysql_texts import fraction_digits

PARTITION_BYTES = 2 << 20
"""A table's batches are divided among all cores, but not into partitions much smaller than this."""

OBJECT_BYTES_MAX = 64 << 20
"""A larger object takes Ray several times as long to store."""
MAPPED_BYTES_MAX = 1 << 30
"""A JVM maps less than 2 GiB at once; parts are of as many rows, not of as many bytes."""


class Carrier(Protocol):
    """Where chunks are. `release` frees them; reading them after that fails in Spark."""

    bytes_max: int | None

    def put(self, streams: Sequence[Sequence[pa.RecordBatch]]) -> str:
        """The place of a new chunk of these streams, for `java/Bytes.java`."""
        ...

    def release(self) -> None: ...


@dataclass
class ChunkOwner:
    """The stream or batch read (`is_read`) that chunks are of. `used_s` (time.monotonic): when it
    was last asked for anything, or its chunks were fetched."""

    is_read: bool = False
    used_s: float = field(default_factory=time.monotonic)

    def use(self) -> None:
        self.used_s = time.monotonic()


class MemoryFile:
    """Chunks in one memory file, which JVMs of this node map; it goes with this process.

    The name is part of each place: after `release` the descriptor's number may be another file's.
    `folder`: in a file there that no folder names any more, for what is larger than the memory.
    """

    bytes_max: int | None = MAPPED_BYTES_MAX

    def __init__(self, folder: str | None = None) -> None:
        self._folder = folder
        self._name = f"ray-canal-{uuid.uuid4().hex}"
        self._handle: int | None = None
        self._sink: Any = None

    def put(self, streams: Sequence[Sequence[pa.RecordBatch]]) -> str:
        return self._place(lambda sink: write_stream_list(sink, streams))

    def put_bytes(self, streams: bytes) -> str:
        """The place of a new chunk of streams that are written already."""
        return self._place(lambda sink: sink.write(streams))

    def _place(self, write: Callable[[Any], object]) -> str:
        if self._handle is None:
            self._handle = self._opened()
            self._sink = pa.OSFile(f"/proc/self/fd/{self._handle}", "wb")
        begin = self._sink.tell()
        write(self._sink)
        length = self._sink.tell() - begin
        return f"memory:/proc/{os.getpid()}/fd/{self._handle}:{self._name}:{begin}:{length}"

    def _opened(self) -> int:
        if self._folder is None:
            return os.memfd_create(self._name)
        path = os.path.join(self._folder, self._name)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.unlink(path)
        return handle

    def release(self) -> None:
        if self._handle is not None:
            self._sink.close()
            os.close(self._handle)
            self._handle = None


class StoreObjects:
    """Chunks as objects in Ray's object store, which this process owns."""

    bytes_max: int | None = OBJECT_BYTES_MAX

    def __init__(self) -> None:
        self._references: list[Any] = []

    def put(self, streams: Sequence[Sequence[pa.RecordBatch]]) -> str:
        sink = pa.BufferOutputStream()
        write_stream_list(sink, streams)
        # `bytes` on purpose: Ray stores them raw, so that a JVM can read them.
        reference, owner = stored(sink.getvalue().to_pybytes())
        self._references.append(reference)
        return f"ray:{reference.hex()}:{owner.hex()}"

    def release(self) -> None:
        self._references.clear()


def stored(data: bytes) -> tuple[Any, bytes]:
    """The reference of a new object of Ray's, and the address of its owner, this process."""
    reference = ray.put(data)
    return reference, owner_of(reference)


def owner_of(reference: Any) -> bytes:
    """The address of the process that owns an object of Ray's."""
    this_process: Any = ray_worker.global_worker
    owner: bytes = this_process.core_worker.get_owner_address(reference)
    return owner


def write_chunks(
    batches: list[pa.RecordBatch], schema: pa.Schema, carrier: Carrier, partitions: int
) -> list[str]:
    """Places of the batches' chunks, rows in order; `schema` is what Spark reads them as."""
    ready = [shipped(batch, schema) for batch in batches]
    return [
        carrier.put(_streams(part)) for part in divided(ready, partitions, carrier.bytes_max)
    ]


def write_parts(
    parts: Sequence[Sequence[pa.RecordBatch]], schema: pa.Schema, carrier: Carrier
) -> list[str]:
    """Places of the parts' chunks, one each however large it is: a key's changes are in one."""
    return [carrier.put(_streams([shipped(batch, schema) for batch in part])) for part in parts]


def divided(
    batches: list[pa.RecordBatch], partitions: int, bytes_max: int | None = None
) -> list[list[pa.RecordBatch]]:
    """The batches in parts of about as many rows, at most `partitions` where they are not too large
    for that."""
    size_bytes = sum(batch.nbytes for batch in batches)
    rows = sum(batch.num_rows for batch in batches)
    count = max(1, min(partitions, size_bytes // PARTITION_BYTES))
    if bytes_max is not None:
        count = max(count, -(-size_bytes // bytes_max))
    each = max(1, -(-rows // count))
    parts: list[list[pa.RecordBatch]] = [[]]
    free = each
    for batch in batches:
        begin = 0
        while begin < batch.num_rows:
            if not free:
                parts.append([])
                free = each
            taken = min(free, batch.num_rows - begin)
            parts[-1].append(batch.slice(begin, taken))
            begin, free = begin + taken, free - taken
    return parts


def _streams(batches: Sequence[pa.RecordBatch]) -> list[list[pa.RecordBatch]]:
    """Batches with the same columns in the same types share a stream."""
    found: list[list[pa.RecordBatch]] = []
    for batch in batches:
        if found and batch.schema.equals(found[-1][0].schema):
            found[-1].append(batch)
        else:
            found.append([batch])
    return found


def write_streams(sink: Any, batches: Sequence[pa.RecordBatch]) -> None:
    """Append batches, which `shipped` has made, as Arrow IPC streams."""
    write_stream_list(sink, _streams(batches))


def write_stream_list(sink: Any, streams: Sequence[Sequence[pa.RecordBatch]]) -> None:
    """Append each list of batches, which share a schema, as an Arrow IPC stream."""
    for batches in streams:
        with pa.ipc.new_stream(sink, batches[0].schema) as writer:
            for batch in batches:
                writer.write_batch(batch)


def shipped(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch whose columns the Java reader has as `schema`, a readable one. Columns and fields
    that a batch lacks are not made: the reader shows NULL."""
    batch = in_letters_of(batch, schema)
    if all(_in_place(field.type, schema.field(field.name).type) for field in batch.schema):
        return batch.replace_schema_metadata(None)
    names = batch.schema.names
    columns = [
        _shipped_array(column, schema.field(name).type)
        for name, column in zip(names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=names)


@lru_cache(maxsize=4096)
def _in_place(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether the Java reader shows an array of type `given` as `wanted`."""
    if kind.is_struct(given) and kind.is_struct(wanted):
        return all(_in_place(field.type, wanted.field(field.name).type) for field in given)
    if kind.is_list(given) and kind.is_list(wanted):
        return _in_place(given.value_type, wanted.value_type)
    if kind.is_dictionary(given):
        return bool(given.value_type == pa.string() and wanted == pa.string())
    if kind.is_integer(given) and kind.is_integer(wanted):
        if kind.is_signed_integer(given):
            return bool(given.bit_width <= wanted.bit_width)
        return bool(given.bit_width < wanted.bit_width)
    if given == pa.uint64():
        return bool(wanted == pa.decimal128(20, 0))
    return bool(given == wanted) and not kind.is_null(given)


def _shipped_array(array: pa.Array, wanted: pa.DataType, digits: int | None = None) -> pa.Array:
    if _in_place(array.type, wanted):
        return array
    if not kind.is_struct(array.type) or not kind.is_struct(wanted):
        return readable_array(array, wanted, digits)
    children = [
        _shipped_array(array.field(index), wanted.field(field.name).type, fraction_digits(field))
        for index, field in enumerate(array.type)
    ]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(
        children, names=[field.name for field in array.type], mask=mask
    )
