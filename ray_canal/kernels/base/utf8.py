"""Check if bytes are UTF-8, for text that is copied; and decode broken text.

Well-formed: no overlong forms, no surrogates, nothing above U+10FFFF (RFC 3629).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ray_canal.kernels.base.jit import inlined, without_refcounts
from ray_canal.kernels.base.memory import load32, load64, next_bit

UNDEFINED: Final = 0xFFFD
_HIGH_BITS: Final = -0x7F7F7F7F7F7F7F80  # the top bit of each of eight bytes


@inlined
def utf8_char(source, at, end):
    """Return (code point, next offset); (-1, next) for a broken character, whose well-formed part
    is one."""
    first = np.int64(source[at])
    if first < 0x80:
        return first, at + 1
    if first < 0xC2 or first > 0xF4:
        return np.int64(-1), at + 1
    more = 1 if first < 0xE0 else (2 if first < 0xF0 else 3)
    # The second byte's range depends on the first one.
    low = 0xA0 if first == 0xE0 else (0x90 if first == 0xF0 else 0x80)
    high = 0x9F if first == 0xED else (0x8F if first == 0xF4 else 0xBF)
    point = first & (0x3F >> more)
    for k in range(more):
        if at + 1 + k >= end:
            return np.int64(-1), at + 1 + k
        byte = np.int64(source[at + 1 + k])
        if byte < low or byte > high:
            return np.int64(-1), at + 1 + k
        point = point << 6 | byte & 0x3F
        low, high = 0x80, 0xBF
    return point, at + 1 + more


@inlined
def _ascii_end(source, at, end):
    """Return the offset of the first byte that is no ASCII, or of one of the last seven."""
    while end - at >= 32:
        low, high = load64(source, at) | load64(source, at + 8), load64(source, at + 16)
        if (low | high | load64(source, at + 24)) & _HIGH_BITS:
            break
        at += 32
    while end - at >= 8:
        marks = load64(source, at) & _HIGH_BITS
        if marks:
            return at + (next_bit(marks)[0] >> 3)
        at += 8
    return at


@without_refcounts
def meaning_of(source, at, end):
    """Classify bytes: 0 ASCII alone, 1 UTF-8, -1 neither."""
    found = 0
    while at < end:
        at = _ascii_end(source, at, end)
        if at < end:
            point, at = utf8_char(source, at, end)
            if point < 0:
                return -1
            if point >= 0x80:
                found = 1
    return found


@without_refcounts
def first_broken_row(arena, data, used, offsets, rows):
    """Return the first row of a column (its data area, its int32 offsets) that is not UTF-8; -1 if
    none."""
    found = meaning_of(arena, data, data + used)
    if found == 0:
        return -1
    for row in range(rows):
        start, stop = load32(arena, offsets + 4 * row), load32(arena, offsets + 4 * row + 4)
        # Where all of it is UTF-8, a row may still end inside a character.
        inside = 0 < stop < used and arena[data + stop] & 0xC0 == 0x80
        if (found < 0 or inside) and meaning_of(arena, data + start, data + stop) < 0:
            return row
    return -1
