"""Chunks that a server keeps in memory until Spark's executors have fetched them by name.

The third carrier next to those of spark/chunks.py: for a Spark that shares neither memory nor Ray
with us. A name is a secret of who asked for the rows.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Sequence

import pyarrow as pa

from ray_canal.errors import InstanceRestarted
from ray_canal.spark.chunks import OBJECT_BYTES_MAX, write_stream_list


class ServedChunks:
    """All chunks of a server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._chunks: dict[str, pa.Buffer] = {}

    def carrier(self) -> ServedCarrier:
        """A new carrier, whose chunks are here until it releases them."""
        return ServedCarrier(self)

    def get(self, name: str) -> pa.Buffer:
        """A chunk's streams. Raises InstanceRestarted: it is not here any more."""
        with self._lock:
            found = self._chunks.get(name)
        if found is None:
            raise InstanceRestarted(
                "these rows are not held any more: their query has ended, or this server has "
                "started since; the query's next try reads them again"
            )
        return found

    def put(self, data: pa.Buffer) -> str:
        name = secrets.token_hex(16)
        with self._lock:
            self._chunks[name] = data
        return name

    def remove(self, names: Sequence[str]) -> None:
        with self._lock:
            for name in names:
                self._chunks.pop(name, None)


class ServedCarrier:
    """See Carrier in spark/chunks.py."""

    bytes_max: int | None = OBJECT_BYTES_MAX

    def __init__(self, chunks: ServedChunks) -> None:
        self._chunks = chunks
        self._names: list[str] = []

    def put(self, streams: Sequence[Sequence[pa.RecordBatch]]) -> str:
        sink = pa.BufferOutputStream()
        write_stream_list(sink, streams)
        data = sink.getvalue()
        self._names.append(self._chunks.put(data))
        return f"flight:{self._names[-1]}:{data.size}"

    def release(self) -> None:
        names, self._names = self._names, []
        self._chunks.remove(names)
