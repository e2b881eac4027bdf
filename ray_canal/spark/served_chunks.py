"""Chunks that a server keeps in memory until Spark's executors have fetched them by name.

The third carrier next to those of spark/chunks.py: for a Spark that shares neither memory nor Ray
with us. A name is a secret of who asked for the rows.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Sequence

import pyarrow as pa

from ray_canal.errors import CanalError, InstanceRestarted
from ray_canal.spark.chunks import OBJECT_BYTES_MAX, ChunkOwner, write_stream_list


class ServedChunks:
    """All chunks of a server. `read_bytes_max`: so much may be held for batch reads together, whose
    size is that of a log."""

    def __init__(self, read_bytes_max: int) -> None:
        self._read_bytes_max = read_bytes_max
        self._read_bytes = 0
        self._lock = threading.Lock()
        self._chunks: dict[str, tuple[pa.Buffer, ChunkOwner]] = {}

    def carrier(self, owner: ChunkOwner) -> ServedCarrier:
        """A new carrier, whose chunks are here until it releases them."""
        return ServedCarrier(self, owner)

    @property
    def is_half_full(self) -> bool:
        """Return whether batch reads hold more than half of what they may."""
        return self._read_bytes > self._read_bytes_max // 2

    def get(self, name: str) -> pa.Buffer:
        """A chunk's streams. Raises InstanceRestarted: it is not here any more."""
        with self._lock:
            found = self._chunks.get(name)
        if found is None:
            raise InstanceRestarted(
                "these rows are not held any more: their query has ended, or this server has "
                "started since; the query's next try reads them again"
            )
        data, owner = found
        owner.use()
        return data

    def put(self, data: pa.Buffer, owner: ChunkOwner) -> str:
        """The chunk's name. Raises CanalError: batch reads hold too much."""
        name = secrets.token_hex(16)
        with self._lock:
            if owner.is_read:
                if self._read_bytes + data.size > self._read_bytes_max:
                    raise CanalError(
                        f"the Flight server holds {self._read_bytes} bytes for batch reads, and "
                        f"at most {self._read_bytes_max} (flight.read_bytes_max): read the log by "
                        "readStream with a Trigger.AvailableNow, or with fewer reads at once"
                    )
                self._read_bytes += data.size
            self._chunks[name] = data, owner
        return name

    def remove(self, names: Sequence[str]) -> None:
        with self._lock:
            for name in names:
                found = self._chunks.pop(name, None)
                if found is not None and found[1].is_read:
                    self._read_bytes -= found[0].size


class ServedCarrier:
    """See Carrier in spark/chunks.py."""

    bytes_max: int | None = OBJECT_BYTES_MAX

    def __init__(self, chunks: ServedChunks, owner: ChunkOwner) -> None:
        self._chunks = chunks
        self._owner = owner
        self._names: list[str] = []

    def put(self, streams: Sequence[Sequence[pa.RecordBatch]]) -> str:
        sink = pa.BufferOutputStream()
        write_stream_list(sink, streams)
        data = sink.getvalue()
        self._names.append(self._chunks.put(data, self._owner))
        return f"flight:{self._names[-1]}:{data.size}"

    def release(self) -> None:
        names, self._names = self._names, []
        self._chunks.remove(names)
