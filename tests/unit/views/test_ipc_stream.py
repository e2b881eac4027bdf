"""A batch as an Arrow IPC stream."""

from __future__ import annotations

import pyarrow as pa

from ray_canal.views.ipc_stream import ipc_stream


def test_a_part_of_a_batch_has_its_own_rows_alone() -> None:
    schema = pa.schema([("n", pa.int64()), ("t", pa.string())], {b"canal.table": b"t"})
    whole = pa.record_batch([list(range(10_000)), ["x" * 10] * 10_000], schema=schema)
    part = whole.slice(3, 2)
    stream = ipc_stream(part)
    assert len(stream) < 2000
    (found,) = pa.ipc.open_stream(stream)
    assert found.equals(part, check_metadata=True)
