"""The code point tables that kernels/rows/charset.py reads, made from Python's codecs and
charset_data.py when first wanted.

One array per process holds all tables made so far, so a column's plan needs only an offset in it.
"""

from __future__ import annotations

import threading
from functools import lru_cache

import numpy as np

from ray_canal.errors import UnsupportedEvent
from ray_canal.kernels.rows import charset as k
from ray_canal.model.arrays import Int32s
from ray_canal.types.charsets import CHARSETS, canonical, character

UTF8_CHARSETS = frozenset({"utf8mb4", "utf8mb3", "ascii"})
"""Character sets whose bytes are UTF-8 as they are."""

_WIDE = {
    "ucs2": k.UTF16_BE,
    "utf16": k.UTF16_BE,
    "utf16le": k.UTF16_LE,
    "utf32": k.UTF32_BE,
}
_lock = threading.Lock()
_offsets: dict[str, tuple[int, int]] = {}  # of each table: where it begins and ends
_tables: Int32s = np.full(256, k.UNDEFINED, np.int32)
_tables.flags.writeable = False  # as all later ones are: kernels compile for one kind of array


def tables() -> Int32s:
    """Return all tables of the plans made so far."""
    return _tables


def table_of(charset: str) -> tuple[int, int]:
    """Return (kind, offset of its table) of a character set that has to be transcoded. Raises
    UnsupportedEvent."""
    global _tables
    name = canonical(charset)
    if name in _WIDE:
        return _WIDE[name], 0
    codec = CHARSETS.get(name, ("", 1))[0]
    if not codec:
        raise UnsupportedEvent(f"character set {charset or 'unknown'} is not decoded")
    kind = {"euc-jp": k.EUC_JP, "gb18030": k.GB18030}.get(codec, k.SINGLE)
    with _lock:
        if name not in _offsets:
            made = _make(name, kind)
            grown = np.concatenate([_tables, made])
            grown.flags.writeable = False
            _offsets[name] = _tables.size, grown.size
            _tables = grown
        return kind, _offsets[name][0]


@lru_cache(maxsize=64)
def shared_characters(charset: str) -> frozenset[str]:
    """Return the characters that stand for more than one sequence of bytes of a character set:
    U+FFFD, of broken ones, and what the set has twice. Raises UnsupportedEvent."""
    name, broken = canonical(charset), frozenset({chr(k.UNDEFINED)})
    if name in UTF8_CHARSETS or name in _WIDE:
        return broken
    table_of(name)
    begin, end = _offsets[name]
    points, counts = np.unique(_tables[begin:end], return_counts=True)
    return broken | {chr(point) for point in points[(counts > 1) & (points >= 0)]}


def _make(name: str, kind: int) -> Int32s:
    first = np.array([_point(bytes((b,)), name) for b in range(256)], np.int32)
    if CHARSETS[name][1] == 1:
        return first
    parts = [first, np.full(65536, k.UNDEFINED, np.int32)]
    for lead in range(0x80, 256):
        if first[lead] == k.UNDEFINED:
            first[lead] = k.LEAD
            for second in range(0x30, 256):
                parts[1][lead << 8 | second] = _point(bytes((lead, second)), name)
    if kind == k.EUC_JP:
        three = np.full(65536, k.UNDEFINED, np.int32)
        for second in range(0xA1, 0xFF):
            for third in range(0xA1, 0xFF):
                three[second << 8 | third] = _point(bytes((0x8F, second, third)), name)
        parts.append(three)
    if kind == k.GB18030:
        four = [_point(_gb18030_bytes(n), name) for n in range(k.LINEAR_COUNT)]
        parts.append(np.array(four, np.int32))
    return np.concatenate(parts)


def _point(data: bytes, name: str) -> int:
    """The one code point that these bytes stand for, or UNDEFINED."""
    text = character(data, name)
    return ord(text) if len(text) == 1 else k.UNDEFINED


def _gb18030_bytes(linear: int) -> bytes:
    linear, fourth = divmod(linear, 10)
    linear, third = divmod(linear, 126)
    first, second = divmod(linear, 10)
    return bytes((first + 0x81, second + 0x30, third + 0x81, fourth + 0x30))
