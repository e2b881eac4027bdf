"""Write MariaDB's UUID, INET4 and INET6 as SELECT prints them.

In rows they are 16, 4 and 16 bytes, most significant first, without the zero bytes at their end.
INET6 prints the longest run of zero groups (the first of equals, even of one group) as `::`, and
the last four bytes as an IPv4 address where all before them is zero, or zero and ffff.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ray_canal.kernels.base.jit import without_refcounts
from ray_canal.kernels.rows import wire as w

UUID_BYTES: Final = 16
INET4_BYTES: Final = 4
INET6_BYTES: Final = 16
UUID_TEXT_BYTES: Final = 36
INET4_TEXT_BYTES_MAX: Final = 15
INET6_TEXT_BYTES_MAX: Final = 45

_GROUPS: Final = 8
_COLON: Final = 58
_DOT: Final = 46
_DASH: Final = 45


@without_refcounts
def _byte(source, at, count, k):
    return np.int64(source[at + k]) if k < count else np.int64(0)


@without_refcounts
def _digit(value):
    return value + 48 if value < 10 else value + 87


@without_refcounts
def _uuid(source, at, count, target, to):
    for k in range(UUID_BYTES):
        if k == 4 or k == 6 or k == 8 or k == 10:
            target[to] = _DASH
            to += 1
        value = _byte(source, at, count, k)
        target[to] = _digit(value >> 4)
        target[to + 1] = _digit(value & 15)
        to += 2
    return to


@without_refcounts
def _inet4(source, at, count, first, target, to):
    for k in range(4):
        if k:
            target[to] = _DOT
            to += 1
        value = _byte(source, at, count, first + k)
        if value >= 100:
            target[to] = 48 + value // 100
            to += 1
        if value >= 10:
            target[to] = 48 + value // 10 % 10
            to += 1
        target[to] = 48 + value % 10
        to += 1
    return to


@without_refcounts
def _group(source, at, count, k):
    return _byte(source, at, count, 2 * k) << 8 | _byte(source, at, count, 2 * k + 1)


@without_refcounts
def _longest_gap(source, at, count):
    """Return (first group, groups) of the longest run of zeros; (-1, 0): none."""
    best, best_size = -1, 0
    size = 0
    for k in range(_GROUPS):
        size = size + 1 if _group(source, at, count, k) == 0 else 0
        if size > best_size:
            best, best_size = k - size + 1, size
    return best, best_size


@without_refcounts
def _inet6(source, at, count, target, to):
    gap, gap_size = _longest_gap(source, at, count)
    mapped = gap_size == 5 and _group(source, at, count, 5) == 0xFFFF
    dotted = gap == 0 and (gap_size == 6 or mapped)
    k = 0
    while k < _GROUPS:
        if k == gap:
            target[to] = _COLON
            target[to + 1] = _COLON
            to += 2
            k += gap_size
            continue
        if k > 0 and (gap < 0 or k != gap + gap_size):
            target[to] = _COLON
            to += 1
        if dotted and k == 6:
            return _inet4(source, at, count, 12, target, to)
        value = _group(source, at, count, k)
        shown = False
        for shift in range(12, -1, -4):
            digit = value >> shift & 15
            if digit or shown or shift == 0:
                target[to] = _digit(digit)
                to += 1
                shown = True
        k += 1
    return to


@without_refcounts
def address_bytes(read, count):
    """Return the most bytes of the text, or BAD_PACKED if the value is too long."""
    if read == w.READ_UUID:
        return UUID_TEXT_BYTES if count <= UUID_BYTES else w.BAD_PACKED
    if read == w.READ_INET4:
        return INET4_TEXT_BYTES_MAX if count <= INET4_BYTES else w.BAD_PACKED
    return INET6_TEXT_BYTES_MAX if count <= INET6_BYTES else w.BAD_PACKED


@without_refcounts
def address_text(source, at, count, read, target, to):
    """Write the text to target[to :]; return the offset after it."""
    if read == w.READ_UUID:
        return _uuid(source, at, count, target, to)
    if read == w.READ_INET4:
        return _inet4(source, at, count, 0, target, to)
    return _inet6(source, at, count, target, to)
