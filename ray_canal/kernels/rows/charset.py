"""Convert text of any character set to UTF-8, by tables (types/charset_tables.py makes them).

A table starts with 256 code points by first byte; LEAD there means that a second byte decides:
65,536 code points by both bytes follow. Behind these lie EUC-JP's three-byte characters (65,536, by
the last two bytes) or GB 18030's four-byte ones (LINEAR_COUNT, in order). What the character set
leaves undefined becomes U+FFFD.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ray_canal.kernels.base.jit import without_refcounts
from ray_canal.kernels.base.utf8 import utf8_char

SINGLE: Final = 1  # tables: at most two bytes per character
EUC_JP: Final = 2
GB18030: Final = 3
UTF16_BE: Final = 4
UTF16_LE: Final = 5
UTF32_BE: Final = 6
UTF8: Final = 7  # what is broken of it becomes U+FFFD

LEAD: Final = -2
UNDEFINED: Final = 0xFFFD
PAIRS: Final = 256
EXTRA: Final = 256 + 65536
LINEAR_COUNT: Final = 39420
_LINEAR_SUPPLEMENTARY: Final = 189_000
_THREE_BYTE_LEAD: Final = 0x8F


@without_refcounts
def _unit(source, at, kind):
    if kind == UTF16_BE:
        return np.int64(source[at]) << 8 | np.int64(source[at + 1])
    return np.int64(source[at + 1]) << 8 | np.int64(source[at])


@without_refcounts
def _wide_char(source, at, end, kind):
    """Return (code point, next offset) of UTF-16 and UTF-32."""
    if kind == UTF32_BE:
        if end - at < 4:
            return UNDEFINED, end
        point = np.int64(source[at]) << 24 | np.int64(source[at + 1]) << 16
        point |= np.int64(source[at + 2]) << 8 | np.int64(source[at + 3])
        if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
            point = UNDEFINED
        return point, at + 4
    if end - at < 2:
        return UNDEFINED, end
    point = _unit(source, at, kind)
    if not 0xD800 <= point <= 0xDFFF:
        return point, at + 2
    if point <= 0xDBFF and end - at >= 4:
        low = _unit(source, at + 2, kind)
        if 0xDC00 <= low <= 0xDFFF:
            return 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00), at + 4
    return UNDEFINED, at + 2


@without_refcounts
def _four_byte(source, at, tables, base):
    """Return the code point of a four-byte GB 18030 character."""
    linear = (np.int64(source[at]) - 0x81) * 10 + np.int64(source[at + 1]) - 0x30
    linear = (linear * 126 + np.int64(source[at + 2]) - 0x81) * 10 + np.int64(source[at + 3]) - 0x30
    if 0 <= linear < LINEAR_COUNT:
        return np.int64(tables[base + EXTRA + linear])
    point = linear - _LINEAR_SUPPLEMENTARY + 0x10000
    return point if 0x10000 <= point <= 0x10FFFF else UNDEFINED


@without_refcounts
def _table_char(source, at, end, kind, tables, base):
    """Return (code point, next offset) by tables."""
    first = np.int64(source[at])
    point = np.int64(tables[base + first])
    if point != LEAD:
        return point, at + 1
    if end - at < 2:
        return UNDEFINED, end
    second = np.int64(source[at + 1])
    if kind == EUC_JP and first == _THREE_BYTE_LEAD:
        if end - at < 3:
            return UNDEFINED, end
        return np.int64(tables[base + EXTRA + (second << 8 | np.int64(source[at + 2]))]), at + 3
    if kind == GB18030 and 0x30 <= second <= 0x39:
        if end - at < 4:
            return UNDEFINED, end
        return _four_byte(source, at, tables, base), at + 4
    point = np.int64(tables[base + PAIRS + (first << 8 | second)])
    # A broken pair costs its first byte only, if the second could stand alone.
    return point, at + (1 if point == UNDEFINED and second < 128 else 2)


@without_refcounts
def _next_char(source, at, end, kind, tables, base):
    if kind == UTF8:
        point, after = utf8_char(source, at, end)
        return point if point >= 0 else UNDEFINED, after
    if kind >= UTF16_BE:
        return _wide_char(source, at, end, kind)
    return _table_char(source, at, end, kind, tables, base)


@without_refcounts
def utf8_bytes(source, at, end, kind, tables, base):
    """Return the bytes that source[at:end] takes in UTF-8."""
    count = 0
    while at < end:
        point, at = _next_char(source, at, end, kind, tables, base)
        count += 1 + (point >= 0x80) + (point >= 0x800) + (point >= 0x10000)
    return count


@without_refcounts
def to_utf8(source, at, end, kind, tables, base, target, to):
    """Write source[at:end] in UTF-8 to target[to :]; return the offset after it."""
    while at < end:
        point, at = _next_char(source, at, end, kind, tables, base)
        if point < 0x80:
            target[to] = point
            to += 1
        elif point < 0x800:
            target[to] = 0xC0 | point >> 6
            target[to + 1] = 0x80 | (point & 63)
            to += 2
        elif point < 0x10000:
            target[to] = 0xE0 | point >> 12
            target[to + 1] = 0x80 | (point >> 6 & 63)
            target[to + 2] = 0x80 | (point & 63)
            to += 3
        else:
            target[to] = 0xF0 | point >> 18
            target[to + 1] = 0x80 | (point >> 12 & 63)
            target[to + 2] = 0x80 | (point >> 6 & 63)
            target[to + 3] = 0x80 | (point & 63)
            to += 4
    return to
