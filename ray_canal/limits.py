"""The most that one destination takes: memory of its processes, objects in Ray's store, disk.

One sum, worked out from the configuration; `status` shows it, docs/reference/limits.md explains it,
and tests/integration/test_memory.py holds it against a transaction that is much larger. Every term
has its limit in the code that is named next to it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ray_canal.binlog.chunk import ENTRY, EVENT
from ray_canal.config import InstanceConfig
from ray_canal.log.ring import index_bytes_max
from ray_canal.log.segment import SEGMENT_BYTES
from ray_canal.malloc import KEPT_BYTES

PROCESS_BYTES = 128 << 20
"""Memory of a process that does nothing yet: interpreter, libraries, compiled kernels (60 to 105
MiB measured, files that processes share not counted)."""

_DECODING_CHUNKS = 6
"""A process that cuts and decodes has one chunk being received, two being decoded, with their
columns (destination/fetcher_thread.py), and what their rows measure."""
_PASSING_CHUNKS = 3
"""A process that takes a chunk in and gives it out: its parts, pickled, read."""
_READING_CHUNKS = 2
"""Chunks of a message with parts on disk that a client holds: one, and the next while it comes."""

_INT_BYTES = np.dtype(np.int64).itemsize
_PLACED_BYTES = _INT_BYTES + 1  # LogChunk: which entries end transactions, which are visible
_VIEW_BYTES = 3 * _INT_BYTES  # View: of each subscriber, its entries and what they cost


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one destination, in bytes. `processes`: anonymous memory of the store, of its
    upstream and of the spiller. `objects`: in Ray's object store, referred to by them or by
    messages with parts on disk. `disk`: of the log."""

    processes: int
    objects: int
    disk: int

    def __add__(self, other: Limits) -> Limits:
        return Limits(
            self.processes + other.processes,
            self.objects + other.objects,
            self.disk + other.disk,
        )


def chunks_ahead(decoders: int) -> int:
    """Return how many chunks may be called for before the oldest of them is in the log
    (destination/pump.py)."""
    return 2 if decoders == 0 else 2 * decoders + 1


def chunks_in_flight(decoders: int) -> int:
    """Chunks of the pump that exist and are not in the log. Fused: called for, queued, being put.
    Split: queued and being put, each raw and decoded."""
    ahead = chunks_ahead(decoders)
    return 2 * ahead + 1 if decoders == 0 else 2 * (ahead + 1)


def limits(
    config: InstanceConfig, *, decoders: int, subscribers: int, logs: int = 1
) -> Limits | None:
    """Return the limits of a destination with so many subscribers and logs (one, and one more for
    each subscriber that has a stream of its own). None: its log counts entries (ITEMSIZE), so
    nothing limits its bytes."""
    if config.store.batch_mode != "MEMSIZE":
        return None
    total = Limits(PROCESS_BYTES, 0, 0)  # the store actor
    for _ in range(logs):
        total += _of_log(config, decoders, max(subscribers, 1))
    return total


def _of_log(config: InstanceConfig, decoders: int, subscribers: int) -> Limits:
    """Return the limits of one log and its upstream."""
    store, chunk = config.store, config.chunk_bytes
    log = store.buffer_size * store.memunit_bytes
    log += chunk  # the first chunk has room whatever its size
    of_entry = ENTRY.itemsize + _PLACED_BYTES + _VIEW_BYTES * subscribers
    # A chunk is charged what its columns take, and those have an EVENT for each entry; and its GTID
    # sets, however many ranges they have.
    index = log // EVENT.itemsize * of_entry
    # Small chunks lie in the store's process, others in the object store.
    processes = log + index + _upstream(chunk, decoders)
    disk = 0
    if store.spill_bytes:
        processes += index_bytes_max(store.spill_bytes)
        processes += PROCESS_BYTES + KEPT_BYTES + _PASSING_CHUNKS * chunk
        disk = store.spill_bytes + 2 * SEGMENT_BYTES
    # As long as a decoded chunk may be needed, Ray keeps the raw one to decode it again.
    kept = log if decoders == 0 else 2 * log
    objects = kept + chunks_in_flight(decoders) * chunk + subscribers * _READING_CHUNKS * chunk
    return Limits(processes, objects, disk)


def _upstream(chunk: int, decoders: int) -> int:
    """Return the memory of one upstream's processes. Decode tasks run in processes of Ray's that
    others use, too."""
    decoding = PROCESS_BYTES + KEPT_BYTES + _DECODING_CHUNKS * chunk
    if decoders == 0:
        return decoding
    passing = PROCESS_BYTES + KEPT_BYTES + _PASSING_CHUNKS * chunk
    return 3 * passing + decoders * decoding  # fetcher, parser, buffer; decode tasks
