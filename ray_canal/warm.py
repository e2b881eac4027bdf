"""Compile every kernel once, into the cache that all processes of this machine share.

    python -m ray_canal.warm

Decodes a bundled binlog file and renders every view, with writable and with read-only input: bytes
from a socket are writable, bytes from Ray's object store are not, and numba compiles for each. What
only a server's stream needs comes last. Where nothing is compiled yet, a second process begins with
the views, of a chunk that a third one has decoded without the compiler.
"""

from __future__ import annotations

import dataclasses
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.binlog.decode import decode
from ray_canal.binlog.walked import digest_pieces, walk
from ray_canal.config import InstanceConfig
from ray_canal.demo import binlog_files
from ray_canal.kernels.base.jit import cache_directory
from ray_canal.model.log_context import NO_CONTEXT
from ray_canal.schema.event_parser import EventParser
from ray_canal.schema.registry import SchemaRegistry
from ray_canal.snapshot.chunks import load_kernels as load_result_kernels
from ray_canal.source.dump import load_kernels
from ray_canal.source.open_source import open_source
from ray_canal.views.arrow import batches
from ray_canal.views.entries import render_entries
from ray_canal.views.entry_messages import entry_messages
from ray_canal.views.flat import FlatOptions, flat_messages
from ray_canal.views.masking import Hashing
from ray_canal.views.presence import with_presence
from ray_canal.views.routing import Routing
from ray_canal.views.transactions import ended_transactions

_CHUNK, _VIEWS = "chunk", "views"


def warm() -> float:
    """Compile (or load) the kernels; returns the seconds that it took."""
    began = time.perf_counter()
    views = None
    if not _is_anything_compiled() and (os.cpu_count() or 1) > 1:
        views = subprocess.Popen([sys.executable, "-m", __spec__.name, _VIEWS])
    chunks = list(_decoded((True, False)))
    load_kernels()
    load_result_kernels()
    if views is not None:
        views.wait()  # what it could not do is done below
    for chunk in chunks:
        _render(chunk)
    return time.perf_counter() - began


def _is_anything_compiled() -> bool:
    """Return whether the cache has machine code. The folder itself numba makes on import."""
    return any(cache_directory().glob("*.nbc"))


def _decoded(writable: tuple[bool, ...]) -> Iterator[DecodedChunk]:
    """Yield each chunk of the file, once for each kind of input."""
    parser = EventParser(SchemaRegistry())
    source = open_source(
        InstanceConfig.model_validate(
            {"destination": "warm", "source": {"files": [str(binlog_files()[0])]}}
        )
    )
    try:
        source.open(None)
        while (raw := source.read(0.0, 0.0)) is not None:
            for is_writable in writable:
                data = raw.data.copy()
                data.flags.writeable = is_writable
                chunk = dataclasses.replace(raw, data=data)
                _, decoded = decode(chunk, parser.parse(chunk))
                digest_pieces(chunk, walk(chunk))  # servers without GTIDs
                yield decoded
    finally:
        source.close()


def _views() -> None:
    """Compile what renders chunks, meanwhile."""
    command = [sys.executable, "-m", __spec__.name, _CHUNK]
    plain = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(command, env=plain, stdout=subprocess.PIPE, check=True)
    for chunk in pickle.loads(done.stdout):
        _render(chunk)


def _render(chunk: DecodedChunk) -> None:
    count = chunk.layout.event_count
    tables = [table for table in chunk.layout.tables if table.rows]
    ended_transactions(chunk, (0, count), None, None, NO_CONTEXT)
    for batch, table in zip(batches(chunk, 0, count), tables, strict=True):
        with_presence(batch.slice(0, 0), chunk, table, np.zeros(0, np.int32), 0)
    Hashing(b"key").hashed(pa.array(["value"]), "value")
    render_entries(chunk, 0, count)
    by_key = FlatOptions(routing=Routing(partitions=2, partition_hash=r".*\..*:$pk$"))
    flat_messages(chunk, 0, count, None, by_key)
    entry_messages(chunk, 0, count, None, by_key)


if __name__ == "__main__":
    if sys.argv[1:] == [_CHUNK]:
        sys.stdout.buffer.write(pickle.dumps(list(_decoded((True,))), protocol=5))
    elif sys.argv[1:] == [_VIEWS]:
        _views()
    else:
        sys.stdout.write(f"kernels ready after {warm():.1f} s\n")
