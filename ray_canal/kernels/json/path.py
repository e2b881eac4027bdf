"""Read paths of MySQL's JSON functions, leg by leg: `.name`, `."any \\"text\\""`, `[3]`,
`[last-1]`.

No wildcards and no ranges: what changes a document names one place in it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ray_canal.kernels.base.jit import kernel

# Kinds of a leg.
BAD: Final = -1
MEMBER: Final = 0
CELL: Final = 1  # [n]
LAST: Final = 2  # [last-n]

_INDEX_MAX = (1 << 32) - 1
_WORD_LAST = np.frombuffer(b"last", np.uint8)


@kernel
def _hex4(doc, at, end):
    """Return the number of four hexadecimal digits; -1 if they are none."""
    if end - at < 4:
        return -1
    value = 0
    for i in range(4):
        byte = np.int64(doc[at + i])
        if 48 <= byte <= 57:
            value = value << 4 | (byte - 48)
        elif 65 <= (byte & 0xDF) <= 70:
            value = value << 4 | ((byte & 0xDF) - 55)
        else:
            return -1
    return value


@kernel
def _put_utf8(doc, to, point):
    """Write a code point, in at most as many bytes as its escape; return the offset after it."""
    if point < 0x80:
        doc[to] = point
        return to + 1
    if point < 0x800:
        doc[to] = 0xC0 | point >> 6
        doc[to + 1] = 0x80 | (point & 63)
        return to + 2
    if point < 0x10000:
        doc[to] = 0xE0 | point >> 12
        doc[to + 1] = 0x80 | (point >> 6 & 63)
        doc[to + 2] = 0x80 | (point & 63)
        return to + 3
    doc[to] = 0xF0 | point >> 18
    doc[to + 1] = 0x80 | (point >> 12 & 63)
    doc[to + 2] = 0x80 | (point >> 6 & 63)
    doc[to + 3] = 0x80 | (point & 63)
    return to + 4


@kernel
def _quoted_key(doc, at, end, to):
    """Write the JSON string whose content begins at `at` to `to`; return (bytes, offset after the
    closing quote), or (-1, 0) if it is none."""
    start = to
    while at < end:
        byte = np.int64(doc[at])
        at += 1
        if byte == 34:
            return np.int64(to - start), np.int64(at)
        if byte != 92:
            doc[to] = byte
            to += 1
            continue
        if at >= end:
            break
        byte = np.int64(doc[at])
        at += 1
        if byte == 117:
            point = _hex4(doc, at, end)
            at += 4
            if 0xD800 <= point < 0xDC00 and end - at >= 6 and doc[at] == 92 and doc[at + 1] == 117:
                low = _hex4(doc, at + 2, end)
                if 0xDC00 <= low < 0xE000:
                    point = 0x10000 + ((point - 0xD800) << 10 | (low - 0xDC00))
                    at += 6
            if point < 0:
                break
            to = _put_utf8(doc, to, point)
            continue
        if byte == 98:
            byte = 8
        elif byte == 116:
            byte = 9
        elif byte == 110:
            byte = 10
        elif byte == 102:
            byte = 12
        elif byte == 114:
            byte = 13
        doc[to] = byte
        to += 1
    return np.int64(-1), np.int64(0)


@kernel
def _cell(doc, at, end):
    """Read the leg after `[`; return (kind, index, offset after it)."""
    bad = np.int64(BAD), np.int64(0), np.int64(0)
    kind = CELL
    if end - at > 4 and doc[at] == _WORD_LAST[0]:
        for i in range(4):
            if doc[at + i] != _WORD_LAST[i]:
                return bad
        kind = LAST
        at += 4
        if doc[at] == 93:
            return np.int64(kind), np.int64(0), np.int64(at + 1)
        if doc[at] != 45:
            return bad
        at += 1
    index = np.int64(0)
    digits = 0
    while at < end and 48 <= doc[at] <= 57:
        index = index * 10 + np.int64(doc[at]) - 48
        at += 1
        digits += 1
        if index > _INDEX_MAX:
            return bad
    if not digits or at >= end or doc[at] != 93:
        return bad
    return np.int64(kind), index, np.int64(at + 1)


@kernel
def leg(doc, at, end, keys):
    """Read the path's leg at `at`; return (kind, key's offset or index, key's bytes, offset after
    it).

    A key with escapes is written to offset `keys` on from where it stands.
    """
    bad = np.int64(BAD), np.int64(0), np.int64(0), np.int64(0)
    byte = doc[at]
    at += 1
    if byte == 91:
        kind, index, leg_end = _cell(doc, at, end)
        return kind, index, np.int64(0), leg_end
    if byte != 46 or at >= end:
        return bad
    if doc[at] == 34:
        to = at + 1 + keys
        size, key_end = _quoted_key(doc, at + 1, end, to)
        return (np.int64(MEMBER), np.int64(to), size, key_end) if size >= 0 else bad
    start = at
    while at < end and doc[at] != 46 and doc[at] != 91:
        at += 1
    if at == start:
        return bad
    return np.int64(MEMBER), np.int64(start), np.int64(at - start), np.int64(at)
