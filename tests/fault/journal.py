"""The journal of a subscriber that may be killed at any moment: records, each on the disk before
the next thing happens; a torn one at the end counts as not written."""

from __future__ import annotations

import os
import pickle
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

_LENGTH = struct.Struct("<Q")


def write(out: IO[bytes], record: Any) -> None:
    body = pickle.dumps(record)
    out.write(_LENGTH.pack(len(body)) + body)
    out.flush()
    os.fsync(out.fileno())


def read(path: Path, offset: int) -> Iterator[tuple[int, Any]]:
    """Whole records from `offset` on, each with the offset behind it."""
    if not path.exists():
        return
    with path.open("rb") as journal:
        journal.seek(offset)
        while len(head := journal.read(_LENGTH.size)) == _LENGTH.size:
            (length,) = _LENGTH.unpack(head)
            body = journal.read(length)
            if len(body) < length:
                return
            offset += _LENGTH.size + length
            yield offset, pickle.loads(body)


def to_ipc(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def from_ipc(data: bytes) -> pa.RecordBatch:
    with pa.ipc.open_stream(data) as reader:
        return reader.read_next_batch()
