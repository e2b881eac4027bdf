"""A batch as bytes of its own, for those who keep or send it."""

from __future__ import annotations

import pyarrow as pa


def ipc_stream(batch: pa.RecordBatch) -> bytes:
    """Return a batch as an Arrow IPC stream (Arrow's "Serialization and Interprocess
    Communication")."""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(out.getvalue())
