"""Inflate MariaDB's compressed columns: DEFLATE (RFC 1951), raw or in zlib's frame (RFC 1950).

A value begins with one byte. 0: what follows is not compressed. Else its high half is the method
(8: DEFLATE), bit 3 says that zlib's frame is left out, and its low three bits how many bytes of the
inflated length follow, big-endian. So lengths are known before anything is inflated, and every
write is checked against them. Zlib's checksum is passed over: the event has its own.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from ray_canal.kernels.base.jit import kernel, without_refcounts
from ray_canal.kernels.base.memory import copy, load_be, store32
from ray_canal.kernels.rows import wire as w
from ray_canal.kernels.rows.arrays import ColumnArrays
from ray_canal.kernels.rows.charset import to_utf8

RATIO_MAX: Final = 1032
"""DEFLATE makes no more bytes of one."""

_METHOD: Final = 8
_BARE: Final = 8
_LENGTH_BYTES_MAX: Final = 4
_BROKEN: Final = -1

# Fields of the reader's state.
_AT: Final = 0
_HOLD: Final = 1
_COUNT: Final = 2

_CODE_BITS_MAX: Final = 15
_LITERALS: Final = 288
_DISTANCES: Final = 30
_END: Final = 256
_LENGTH_BASE = np.array(
    [3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131,
     163, 195, 227, 258], np.int64,
)  # fmt: skip
_LENGTH_EXTRA = np.array(
    [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0],
    np.int64,
)
_DISTANCE_BASE = np.array(
    [1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537,
     2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577], np.int64,
)  # fmt: skip
_DISTANCE_EXTRA = np.array(
    [0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13,
     13], np.int64,
)  # fmt: skip
_ORDER = np.array(
    [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15], np.int64
)  # fmt: skip


@without_refcounts
def inflated_bytes(source, at, count):
    """Return the length of a compressed column's value once inflated, or BAD_PACKED."""
    if count == 0:
        return 0
    head = np.int64(source[at])
    if head == 0:
        return count - 1
    width = head & 7
    if head >> 4 != _METHOD or width < 1 or width > _LENGTH_BYTES_MAX or count <= width:
        return w.BAD_PACKED
    size = load_be(source, at + 1, width)
    return size if size <= RATIO_MAX * count else w.BAD_PACKED


class _Code(NamedTuple):
    """Tables of a canonical Huffman code: codes of each length, symbols in order of their codes."""

    counts: Any
    symbols: Any


@without_refcounts
def _bits(source, end, state, need):
    """Return the next `need` (at most 16) bits, or _BROKEN."""
    while state[_COUNT] < need:
        if state[_AT] >= end:
            return _BROKEN
        state[_HOLD] |= np.int64(source[state[_AT]]) << state[_COUNT]
        state[_AT] += 1
        state[_COUNT] += 8
    value = state[_HOLD] & ((1 << need) - 1)
    state[_HOLD] >>= need
    state[_COUNT] -= need
    return value


@without_refcounts
def _symbol(source, end, state, table):
    """Return the next symbol of a code, or _BROKEN."""
    code = first = index = np.int64(0)
    for length in range(1, _CODE_BITS_MAX + 1):
        bit = _bits(source, end, state, 1)
        if bit < 0:
            return _BROKEN
        code |= bit
        count = table.counts[length]
        if code - first < count:
            return table.symbols[index + code - first]
        index += count
        first = (first + count) << 1
        code <<= 1
    return _BROKEN


@without_refcounts
def _build(lengths, start, count, table):
    """Make a code's tables from its lengths; return False if there are more codes than can be."""
    counts, symbols = table.counts, table.symbols
    for k in range(_CODE_BITS_MAX + 1):
        counts[k] = 0
    for k in range(count):
        counts[lengths[start + k]] += 1
    left = np.int64(1)
    for length in range(1, _CODE_BITS_MAX + 1):
        left = (left << 1) - counts[length]
        if left < 0:
            return False
    at = np.int64(0)
    for length in range(1, _CODE_BITS_MAX + 1):
        for k in range(count):
            if lengths[start + k] == length:
                symbols[at] = k
                at += 1
    counts[0] = 0
    return True


@without_refcounts
def _dynamic(source, end, state, lengths, table):
    """Read a block's code lengths, with `table` for the code that they are in; return (literals or
    _BROKEN, distances)."""
    literals = _bits(source, end, state, 5) + 257
    distances = _bits(source, end, state, 5) + 1
    number = _bits(source, end, state, 4) + 4
    if literals < 257 or literals > 286 or distances < 1 or distances > 30 or number < 4:
        return _BROKEN, 0
    for k in range(19):
        lengths[k] = 0
    for k in range(number):
        size = _bits(source, end, state, 3)
        if size < 0:
            return _BROKEN, 0
        lengths[_ORDER[k]] = size
    if not _build(lengths, 0, 19, table):
        return _BROKEN, 0
    k = 0
    while k < literals + distances:
        symbol = _symbol(source, end, state, table)
        if symbol < 0:
            return _BROKEN, 0
        if symbol < 16:
            lengths[k] = symbol
            k += 1
            continue
        if symbol == 16 and k == 0:
            return _BROKEN, 0
        value = lengths[k - 1] if symbol == 16 else 0
        extra = 2 if symbol == 16 else (3 if symbol == 17 else 7)
        repeat = _bits(source, end, state, extra)
        if repeat < 0:
            return _BROKEN, 0
        repeat += 11 if symbol == 18 else 3
        if k + repeat > literals + distances:
            return _BROKEN, 0
        for _ in range(repeat):
            lengths[k] = value
            k += 1
    return literals, distances


@without_refcounts
def _stored(source, end, state, out, to, limit):
    """Copy a block that is not compressed; return the offset after it in `out`, or _BROKEN."""
    state[_AT] -= state[_COUNT] >> 3
    state[_HOLD] = state[_COUNT] = 0
    at = state[_AT]
    if end - at < 4:
        return _BROKEN
    count = np.int64(source[at]) | np.int64(source[at + 1]) << 8
    check = np.int64(source[at + 2]) | np.int64(source[at + 3]) << 8
    at += 4
    if count ^ check != 0xFFFF or count > end - at or count > limit - to:
        return _BROKEN
    copy(out, to, source, at, count)
    state[_AT] = at + count
    return to + count


@without_refcounts
def _block(source, end, state, out, bounds, to, literals, distances):
    """Inflate one compressed block to `out` from `to` on; return the offset after it, or _BROKEN.

    `bounds`: where the value begins in `out`, and where its room ends. `literals` and `distances`
    are codes."""
    start, limit = bounds
    while True:
        symbol = _symbol(source, end, state, literals)
        if symbol < 0:
            return _BROKEN
        if symbol < _END:
            if to >= limit:
                return _BROKEN
            out[to] = symbol
            to += 1
            continue
        if symbol == _END:
            return to
        symbol -= _END + 1
        if symbol >= _LENGTH_BASE.size:
            return _BROKEN
        extra = _bits(source, end, state, _LENGTH_EXTRA[symbol])
        far = _symbol(source, end, state, distances)
        if extra < 0 or far < 0 or far >= _DISTANCES:
            return _BROKEN
        length = _LENGTH_BASE[symbol] + extra
        extra = _bits(source, end, state, _DISTANCE_EXTRA[far])
        distance = _DISTANCE_BASE[far] + extra
        if extra < 0 or distance > to - start or length > limit - to:
            return _BROKEN
        for _ in range(length):
            out[to] = out[to - distance]
            to += 1


@kernel
def inflate(source, at, end, out, start, limit):
    """Inflate source[at:end] to out[start:limit]; tell if it is whole and fills that exactly."""
    state = np.zeros(3, np.int64)
    lengths = np.zeros(_LITERALS + _DISTANCES + 2, np.int64)
    literal_code = _Code(np.zeros(16, np.int64), np.zeros(_LITERALS, np.int64))
    distance_code = _Code(np.zeros(16, np.int64), np.zeros(_LITERALS, np.int64))
    state[_AT] = at
    to = np.int64(start)
    last = np.int64(0)
    while last == 0:
        last = _bits(source, end, state, 1)
        kind = _bits(source, end, state, 2)
        if last < 0 or kind < 0 or kind == 3:
            return False
        if kind == 0:
            to = _stored(source, end, state, out, to, limit)
            if to < 0:
                return False
            continue
        literals, distances = np.int64(_LITERALS), np.int64(_DISTANCES)
        if kind == 1:
            for k in range(_LITERALS):
                lengths[k] = 8 if k < 144 else (9 if k < 256 else (7 if k < 280 else 8))
            for k in range(_DISTANCES):
                lengths[_LITERALS + k] = 5
        else:
            literals, distances = _dynamic(source, end, state, lengths, literal_code)
            if literals < 0:
                return False
        if not _build(lengths, 0, literals, literal_code):
            return False
        if not _build(lengths, literals, distances, distance_code):
            return False
        bounds = np.int64(start), np.int64(limit)
        to = _block(source, end, state, out, bounds, to, literal_code, distance_code)
        if to < 0:
            return False
    return to == limit


@kernel
def fill_inflated(column_arrays, p, base, rows):
    """Write a compressed column's values and offsets; return (0 or BAD_PACKED, row).

    The first argument is the fields of ColumnArrays; the places of the values are in `deferred`.
    `p` is the column's line in the plan, `base` its side's first field. Text of other character
    sets than UTF-8 takes at most three bytes for one.
    """
    arrays = ColumnArrays(*column_arrays)
    source, plan, arena = arrays.source, arrays.plan, arrays.arena
    dest, deferred = arrays.dest, arrays.deferred
    line, slot = p * w.PLAN_FIELDS, p * w.COLUMN_DEST + base
    values, data = dest[slot + w.VALUES], dest[slot + w.DATA]
    note = 2 * dest[slot + w.DEFERRED]
    most = 1
    for row in range(rows):
        if deferred[note + 2 * row + 1] > 0:
            at, count = deferred[note + 2 * row], deferred[note + 2 * row + 1]
            most = max(most, inflated_bytes(source, at, count))
    scratch = np.zeros(most, np.uint8)
    to = data
    for row in range(rows):
        at, count = deferred[note + 2 * row], deferred[note + 2 * row + 1]
        if count > 0:
            size = inflated_bytes(source, at, count)
            head = np.int64(source[at])
            if head == 0:
                copy(scratch, 0, source, at + 1, size)
            else:
                start = at + 1 + (head & 7)
                if not head & _BARE:
                    start += 2
                if not inflate(source, start, at + count, scratch, 0, size):
                    return w.BAD_PACKED, row
            kind = plan[line + w.CHARSET]
            if kind:
                table = plan[line + w.TABLE]
                to = to_utf8(scratch, 0, size, kind, arrays.tables, table, arena, to)
            else:
                copy(arena, to, scratch, 0, size)
                to += size
        store32(arena, values + 4 * row + 4, to - data)
    dest[slot + w.USED] = to - data
    return 0, 0
