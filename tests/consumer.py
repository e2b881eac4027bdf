"""A subscriber in its own process, for tests that kill it: starts the pipeline and journals all it
receives.

    python -m tests.consumer CONFIG DESTINATION JOURNAL RAY_TEMP

Every message is written and fsync'd before its ack, every ack after it. Runs until it is killed.
"""

from __future__ import annotations

import os
import pickle
import struct
import sys
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


def read_journal(path: Path) -> Iterator[tuple[str, Any]]:
    """Records of a journal, in order; a torn tail (the process was killed) ends it."""
    data = path.read_bytes()
    offset = 0
    while offset + _LENGTH.size <= len(data):
        (length,) = _LENGTH.unpack_from(data, offset)
        offset += _LENGTH.size
        if offset + length > len(data):
            return
        kind, value = pickle.loads(data[offset : offset + length])
        offset += length
        yield kind, [[from_ipc(b) for b in part] for part in value] if kind == "message" else value


def to_ipc(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def from_ipc(data: bytes) -> pa.RecordBatch:
    with pa.ipc.open_stream(data) as reader:
        return reader.read_next_batch()


def main(config: str, destination: str, journal: str, ray_temp: str) -> None:
    import ray

    import ray_canal as canal

    ray.init(num_cpus=2, include_dashboard=False, _temp_dir=ray_temp, object_store_memory=400 << 20)
    with Path(journal).open("ab") as out:
        write(out, ("start", None))
        canal.start(config)
        with canal.connect(destination, client_id=7) as connector:
            connector.subscribe()
            write(out, ("running", None))
            while True:
                message = connector.get_without_ack(batch_size=512, timeout=0.2)
                if not message:
                    continue
                parts = [[to_ipc(b) for b in part] for part in message.batches_by_part()]
                write(out, ("message", parts))
                connector.ack(message.id)
                write(out, ("ack", message.id))


if __name__ == "__main__":
    main(*sys.argv[1:])
