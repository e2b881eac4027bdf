"""Write text inside JSON, backwards (entry_bytes.py says why), and compute Java's hash of a text.

Escapes are those of Canal's JSON library: `\\"`, `\\\\`, `\\b`, `\\f`, `\\n`, `\\r`, `\\t`, other
control characters as `\\u00xx`; everything else as it is, in UTF-8.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ray_canal.kernels.base.jit import inlined, without_refcounts
from ray_canal.kernels.base.memory import load64, store16, store64
from ray_canal.kernels.base.utf8 import utf8_char

ESCAPED_MAX: Final = 6
"""Most bytes that one byte becomes."""

_TOPS, _LOWS = np.uint64(0x8080808080808080), np.uint64(0x7F7F7F7F7F7F7F7F)
_TO_BLANKS, _QUOTES = np.uint64(0x6060606060606060), np.uint64(0x2222222222222222)
_BACKSLASHES, _LETTERS = np.uint64(0x5C5C5C5C5C5C5C5C), np.uint64(0x4141414141414141)
_NONE, _ALL = np.uint64(0), np.uint64(0xFFFFFFFFFFFFFFFF)
_QUOTE, _BACKSLASH, _BLANK = 34, 92, 32
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_SHORT = np.zeros(32, np.uint8)
"""Letter after the backslash; 0: the character's number is written."""
for _byte, _letter in ((8, b"b"), (9, b"t"), (10, b"n"), (12, b"f"), (13, b"r")):
    _SHORT[_byte] = _letter[0]


@inlined
def _is_special(word):
    """Tell if one of eight bytes has to be escaped. Each lane's top bit says that it need not."""
    quotes, backslashes = word ^ _QUOTES, word ^ _BACKSLASHES
    is_no_quote = (quotes & _LOWS) + _LOWS | quotes
    is_no_backslash = (backslashes & _LOWS) + _LOWS | backslashes
    is_no_control = (word & _LOWS) + _TO_BLANKS | word
    return is_no_quote & is_no_backslash & is_no_control & _TOPS != _TOPS


@without_refcounts
def _bytes_back(source, start, end, is_latin1, buf, pos):
    """Write source[start:end] byte by byte, escaped."""
    for at in range(end - 1, start - 1, -1):
        byte = np.int64(source[at])
        if byte < _BLANK:
            letter = _SHORT[byte]
            if letter:
                pos -= 1
                buf[pos] = letter
            else:
                pos -= 5
                buf[pos] = 117  # u
                buf[pos + 1] = 48
                buf[pos + 2] = 48
                buf[pos + 3] = _HEX[byte >> 4]
                buf[pos + 4] = _HEX[byte & 15]
            pos -= 1
            buf[pos] = _BACKSLASH
        elif byte == _QUOTE or byte == _BACKSLASH:
            pos -= 2
            store16(buf, pos, byte << 8 | _BACKSLASH)
        elif is_latin1 and byte >= 0x80:
            pos -= 2
            store16(buf, pos, (0x80 | byte & 63) << 8 | 0xC0 | byte >> 6)
        else:
            pos -= 1
            buf[pos] = byte
    return pos


@without_refcounts
def escaped_back(source, start, size, is_latin1, buf, pos):
    """Write UTF-8 text, or bytes as one Latin-1 character each (`is_latin1`), for JSON's quotes.
    Eight bytes before `pos` may be overwritten where text needs fewer."""
    end = start + size
    wide = _TOPS if is_latin1 else _NONE
    while end - start >= 8:
        word = np.uint64(load64(source, end - 8))
        if _is_special(word) or word & wide != _NONE:
            pos = _bytes_back(source, end - 8, end, is_latin1, buf, pos)
        else:
            pos -= 8
            store64(buf, pos, np.int64(word))
        end -= 8
    count = end - start
    if count == 0:
        return pos
    if end < 8:
        return _bytes_back(source, start, end, is_latin1, buf, pos)
    word = np.uint64(load64(source, end - 8))
    others = _ALL >> np.uint64(8 * count)
    seen = word & ~others | _LETTERS & others
    if _is_special(seen) or seen & wide != _NONE:
        return _bytes_back(source, start, end, is_latin1, buf, pos)
    store64(buf, pos - 8, np.int64(word))
    return pos - count


@without_refcounts
def java_hash(source, start, size, is_latin1):
    """Return `String.hashCode()` of UTF-8 text, or of bytes as Latin-1, as an unsigned number of 32
    bits."""
    found = np.int64(0)
    at, end = start, start + size
    while at < end:
        if is_latin1 or source[at] < 0x80:
            found = (31 * found + np.int64(source[at])) & 0xFFFFFFFF
            at += 1
            continue
        point, at = utf8_char(source, at, end)
        if point < 0:
            point = np.int64(0xFFFD)
        if point >= 0x10000:
            point -= 0x10000
            found = (31 * found + (0xD800 | point >> 10)) & 0xFFFFFFFF
            point = 0xDC00 | point & 0x3FF
        found = (31 * found + point) & 0xFFFFFFFF
    return found


@inlined
def partition_of(java_hash_code, partitions):
    """Return Canal's partition: the magnitude of the hash modulo their number."""
    signed = java_hash_code - (1 << 32) if java_hash_code >= 1 << 31 else java_hash_code
    return (-signed if signed < 0 else signed) % partitions
