"""Which sender has which rows: a hash of the primary key, the same in every run and for every type
that a key's column gets in a table's life but for a DDL, at which all senders are at one place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ray_canal.model.arrays import Bools, UInt64s
from ray_canal.sinks.net_change import plain

_FACTOR = 0x100000001B3
_MIX = 0xFF51AFD7ED558CCD


def shared_out(rows: pa.Table, key: Sequence[str], count: int) -> list[pa.Table]:
    """Return the rows of each of `count` senders."""
    if not rows.num_rows:
        return [rows] * count
    owners = key_hash([plain(rows[name]) for name in key]) % np.uint64(count)
    return [rows.take(np.flatnonzero(owners == number)) for number in range(count)]


def key_hash(columns: Sequence[pa.Array]) -> UInt64s:
    """Return a hash of each row's values. Spaces at a text's end do not count: some collations have
    none of them."""
    found: UInt64s = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        found = _mixed(found * np.uint64(_FACTOR) ^ _text_hash(_texts(column)))
    return found


def _mixed(numbers: UInt64s) -> UInt64s:
    numbers = (numbers ^ (numbers >> np.uint64(33))) * np.uint64(_MIX)
    return numbers ^ (numbers >> np.uint64(33))


def _texts(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_duration(kind):
        column = column.cast(pa.int64())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return column.cast(pa.large_binary())
    if pa.types.is_fixed_size_binary(kind):
        return column.cast(pa.binary()).cast(pa.large_binary())
    texts = column.cast(pa.large_string())
    return pc.ascii_rtrim(texts, " ").cast(pa.large_binary())


def _text_hash(texts: pa.Array) -> UInt64s:
    """A polynomial of each text's bytes."""
    found: UInt64s = np.zeros(len(texts), np.uint64)
    _, places, data = texts.buffers()
    offsets = np.frombuffer(places, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    sizes = np.diff(offsets)
    if data is None or not sizes.any():
        return found
    low, high = int(offsets[0]), int(offsets[-1])
    octets = np.frombuffer(data, np.uint8)[low:high].astype(np.uint64) + np.uint64(1)
    powers: UInt64s = np.full(int(sizes.max()), _FACTOR, np.uint64).cumprod(dtype=np.uint64)
    within = np.arange(len(octets)) - np.repeat(offsets[:-1] - low, sizes)
    filled: Bools = sizes > 0
    found[filled] = np.add.reduceat(octets * powers[within], (offsets[:-1] - low)[filled])
    return found
