"""Write scalars of MySQL's binary JSON as the text that MySQL's CAST(j AS CHAR) prints.

Format: MySQL source documentation, json_binary.h. Each function checks its offsets before it reads,
writes no byte after `out_end`, and returns the position after the text, or one of the codes here.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ray_canal.kernels.base.digits import put_digits, put_words
from ray_canal.kernels.base.float_text import MAX_TEXT_BYTES, mysql_json_text
from ray_canal.kernels.base.jit import inlined, without_refcounts
from ray_canal.kernels.base.memory import (
    copy,
    copy32,
    load8,
    load16,
    load32,
    load64,
    store8,
    store32,
)

NO_SPACE: Final = -1
CORRUPT: Final = -2
NOT_SHORT: Final = -3
"""Code of the fast functions for short values: use the general one."""

LITERAL, INT16, UINT16, INT32, UINT32, _INT64, _UINT64 = 4, 5, 6, 7, 8, 9, 10
_DOUBLE, _STRING, _OPAQUE = 11, 12, 15

# MySQL field types that an opaque value can have and that print as themselves.
_TIMESTAMP, _DATE, _TIME, _DATETIME, _NEWDECIMAL = 7, 10, 11, 12, 246

_NULL = np.frombuffer(b"null", np.uint8)
_TRUE = np.frombuffer(b"true", np.uint8)
_FALSE = np.frombuffer(b"false", np.uint8)
_NULL_WORD, _TRUE_WORD, _FALS_WORD = (
    int.from_bytes(word, "little") for word in (b"null", b"true", b"fals")
)
_BASE64 = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8
)
_GROUPS_OF_LINE: Final = 19
_BASE64_TYPE = np.frombuffer(b"base64:type", np.uint8)
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_BLANKS, _QUOTES, _BACKSLASHES, _LOW_BITS, _TO_TOP, _TOPS = (
    np.uint64(int.from_bytes(bytes([byte]) * 8, "little"))
    for byte in (32, 34, 92, 127, 128 - 32, 128)
)
_U64 = np.uint64(64)
_DIGIT_BYTES = np.array([0, 1, 1, 2, 2, 3, 3, 4, 4, 4], np.int64)


@inlined
def uint_le(src, at, count):
    """Load a little-endian number of 2, 4 or 8 bytes."""
    if count == 2:
        return load16(src, at)
    return load32(src, at) if count == 4 else load64(src, at)


@without_refcounts
def _word(word, out, pos, out_end):
    if pos + len(word) > out_end:
        return NO_SPACE
    copy(out, pos, word, 0, len(word))
    return pos + len(word)


@without_refcounts
def _integer(value, out, pos, out_end):
    """Write a signed 64-bit integer in decimal."""
    if pos + 20 > out_end:
        return NO_SPACE
    if value < 0:
        out[pos] = 45
        pos += 1
        return put_digits(np.uint64(~value) + np.uint64(1), out, pos)
    return put_digits(np.uint64(value), out, pos)


@inlined
def _unsigned(value, out, pos, out_end):
    """Write a 64-bit pattern as an unsigned integer in decimal."""
    if pos + 20 > out_end:
        return NO_SPACE
    return put_digits(np.uint64(value), out, pos)


@inlined
def _is_plain(word):
    """Tell if none of a word's eight bytes is a quote, a backslash or below 32: in each byte, by
    the top bit of a sum that cannot reach the next one."""
    quote, backslash = word ^ _QUOTES, word ^ _BACKSLASHES
    printed = (word & _LOW_BITS) + _TO_TOP | word
    no_quote = (quote & _LOW_BITS) + _LOW_BITS | quote
    no_backslash = (backslash & _LOW_BITS) + _LOW_BITS | backslash
    return printed & no_quote & no_backslash & _TOPS == _TOPS


@inlined
def short_quoted(src, start, end, out, pos, out_end):
    """Do as `quoted` for at most 32 bytes with nothing to escape; else return NOT_SHORT."""
    size = end - start
    if size > 32 or src.size - start < 32 or out_end - pos < 34:
        return np.int64(NOT_SHORT)
    at = start
    while end - at >= 8:
        if not _is_plain(np.uint64(load64(src, at))):
            return np.int64(NOT_SHORT)
        at += 8
    if at < end:
        unused = np.uint64(8 * (8 - end + at))
        if not _is_plain(np.uint64(load64(src, at)) << unused | _BLANKS >> (_U64 - unused)):
            return np.int64(NOT_SHORT)
    store8(out, pos, 34)
    copy32(out, pos + 1, src, start)
    store8(out, pos + 1 + size, 34)
    return np.int64(pos + 2 + size)


@without_refcounts
def quoted(src, start, end, out, pos, out_end):
    """Write a string in double quotes, escaped as by MySQL: quote, backslash, control
    characters."""
    if pos + 2 + (end - start) > out_end:
        return NO_SPACE
    store8(out, pos, 34)
    pos += 1
    plain = start  # up to here nothing is to be escaped
    while end - plain >= 8 and _is_plain(np.uint64(load64(src, plain))):
        plain += 8
    run = start
    for i in range(plain, end):
        byte = src[i]
        if byte >= 32 and byte != 34 and byte != 92:
            continue
        if pos + (i - run) + 6 > out_end:
            return NO_SPACE
        copy(out, pos, src, run, i - run)
        pos += i - run
        run = i + 1
        out[pos] = 92
        short = byte
        if byte == 8:
            short = 98
        elif byte == 9:
            short = 116
        elif byte == 10:
            short = 110
        elif byte == 12:
            short = 102
        elif byte == 13:
            short = 114
        elif byte < 32:
            short = 117
        out[pos + 1] = short
        pos += 2
        if short == 117:
            out[pos] = 48
            out[pos + 1] = 48
            out[pos + 2] = _HEX[byte >> 4]
            out[pos + 3] = _HEX[byte & 15]
            pos += 4
    if pos + (end - run) + 1 > out_end:
        return NO_SPACE
    copy(out, pos, src, run, end - run)
    pos += end - run
    out[pos] = 34
    return pos + 1


@without_refcounts
def _length(src, at, end):
    """Read a variable-length integer (7 bits a byte); return (value, position after it), or (-1, 0)
    if it is broken."""
    value = np.int64(0)
    for i in range(5):
        if at + i >= end:
            return np.int64(-1), np.int64(0)
        byte = np.int64(src[at + i])
        value |= (byte & 127) << (7 * i)
        if byte < 128:
            return value, np.int64(at + i + 1)
    return np.int64(-1), np.int64(0)


@without_refcounts
def _padded(value, digits, out, pos):
    for i in range(digits - 1, -1, -1):
        out[pos + i] = 48 + value % 10
        value //= 10
    return pos + digits


@without_refcounts
def _temporal(kind, packed, out, pos, out_end):
    """Write an opaque DATE, TIME, DATETIME or TIMESTAMP (my_time.h's packed format), in quotes."""
    if pos + 32 > out_end:
        return NO_SPACE
    out[pos] = 34
    pos += 1
    if packed < 0:
        out[pos] = 45
        pos += 1
        packed = -packed
    micros = packed & 0xFFFFFF
    whole = packed >> 24
    if kind == _TIME:
        hours = (whole >> 12) & 0x3FF
        pos = _padded(hours, 3 if hours > 99 else 2, out, pos)
    else:
        date = whole >> 17
        months = date >> 5
        pos = _padded(months // 13, 4, out, pos)
        out[pos] = 45
        pos = _padded(months % 13, 2, out, pos + 1)
        out[pos] = 45
        pos = _padded(date & 31, 2, out, pos + 1)
        if kind == _DATE:
            out[pos] = 34
            return pos + 1
        out[pos] = 32
        pos = _padded((whole >> 12) & 31, 2, out, pos + 1)
    out[pos] = 58
    pos = _padded((whole >> 6) & 63, 2, out, pos + 1)
    out[pos] = 58
    pos = _padded(whole & 63, 2, out, pos + 1)
    out[pos] = 46
    pos = _padded(micros, 6, out, pos + 1)
    out[pos] = 34
    return pos + 1


@without_refcounts
def _decimal(src, at, end, out, pos, out_end):
    """Write an opaque DECIMAL: precision, scale, then MySQL's binary decimal."""
    if end - at < 2:
        return CORRUPT
    precision, scale = np.int64(src[at]), np.int64(src[at + 1])
    at += 2
    if precision > 81 or scale > precision:
        return CORRUPT
    whole = precision - scale
    size = whole // 9 * 4 + _DIGIT_BYTES[whole % 9] + scale // 9 * 4 + _DIGIT_BYTES[scale % 9]
    if size == 0 or end - at < size:
        return CORRUPT
    if pos + precision + 4 > out_end:
        return NO_SPACE
    negative = src[at] < 128
    flip = 255 if negative else 0
    if negative:
        out[pos] = 45
        pos += 1
    start = pos
    first = True
    for part in range(2):
        digits = whole if part == 0 else scale
        if part == 1:
            if pos == start:
                out[pos] = 48
                pos += 1
            if scale == 0:
                break
            out[pos] = 46
            pos += 1
        left = digits
        while left > 0:
            # The odd digits stand first in the whole part, last in the fraction.
            take = left % 9 if part == 0 and left % 9 else min(left, 9)
            count = _DIGIT_BYTES[take] if take < 9 else 4
            group = np.int64(0)
            for i in range(count):
                byte = np.int64(src[at + i]) ^ flip
                if first:
                    byte ^= 128
                    first = False
                group = (group << 8) | (byte & 255)
            at += count
            left -= take
            if part == 0 and pos == start:
                if group:
                    pos = _integer(group, out, pos, out_end)
                    if pos < 0:
                        return pos
            else:
                pos = _padded(group, take, out, pos)
    return pos


@without_refcounts
def _base64(kind, src, start, end, out, pos, out_end):
    """Write any other opaque value: "base64:typeNN:…", in lines of 76 characters as MySQL's
    encoder makes them, whose ends are escaped as in any string."""
    groups = (end - start + 2) // 3
    if pos + 20 + 4 * groups + 2 * (groups // _GROUPS_OF_LINE) > out_end:
        return NO_SPACE
    out[pos] = 34
    pos = _word(_BASE64_TYPE, out, pos + 1, out_end)
    pos = _unsigned(kind, out, pos, out_end)
    if pos < 0:
        return pos
    out[pos] = 58
    pos += 1
    line_end = start + 3 * _GROUPS_OF_LINE
    for at in range(start, end, 3):
        if at == line_end:
            line_end += 3 * _GROUPS_OF_LINE
            out[pos] = 92
            out[pos + 1] = 110
            pos += 2
        left = min(end - at, 3)
        group = np.int64(src[at]) << 16
        if left > 1:
            group |= np.int64(src[at + 1]) << 8
        if left > 2:
            group |= np.int64(src[at + 2])
        out[pos] = _BASE64[group >> 18]
        out[pos + 1] = _BASE64[(group >> 12) & 63]
        out[pos + 2] = _BASE64[(group >> 6) & 63] if left > 1 else 61
        out[pos + 3] = _BASE64[group & 63] if left > 2 else 61
        pos += 4
    out[pos] = 34
    return pos + 1


@without_refcounts
def scalar(kind, src, at, end, out, pos, out_end):
    """Write the value at `at`, which is neither object nor array."""
    if kind == LITERAL:
        if at >= end:
            return CORRUPT
        if src[at] == 0:
            return _word(_NULL, out, pos, out_end)
        if src[at] == 1:
            return _word(_TRUE, out, pos, out_end)
        if src[at] == 2:
            return _word(_FALSE, out, pos, out_end)
        return CORRUPT
    if INT16 <= kind <= _DOUBLE:
        size = 2 if kind <= UINT16 else 4 if kind <= UINT32 else 8
        if end - at < size:
            return CORRUPT
        value = uint_le(src, at, size)
        if kind == INT16:
            value = (value ^ 0x8000) - 0x8000
        elif kind == INT32:
            value = (value ^ 0x80000000) - 0x80000000
        elif kind == _UINT64:
            return _unsigned(value, out, pos, out_end)
        elif kind == _DOUBLE:
            if pos + MAX_TEXT_BYTES > out_end:
                return NO_SPACE
            return mysql_json_text(value, out, pos)
        return _integer(value, out, pos, out_end)
    if kind == _STRING:
        size, at = _length(src, at, end)
        if size < 0 or size > end - at:
            return CORRUPT
        return quoted(src, at, at + size, out, pos, out_end)
    if kind == _OPAQUE:
        if at >= end:
            return CORRUPT
        field = np.int64(src[at])
        size, at = _length(src, at + 1, end)
        if size < 0 or size > end - at:
            return CORRUPT
        if field == _NEWDECIMAL:
            return _decimal(src, at, at + size, out, pos, out_end)
        if (field == _TIMESTAMP or _DATE <= field <= _DATETIME) and size == 8:
            return _temporal(field, uint_le(src, at, 8), out, pos, out_end)
        return _base64(field, src, at, at + size, out, pos, out_end)
    return CORRUPT


@inlined
def short_scalar(kind, src, at, end, out, pos, out_end):
    """Do as `scalar` for the types that are most frequent, without a call; else return
    NOT_SHORT."""
    if end - at < 4 or out_end - pos < 20:
        return np.int64(NOT_SHORT)
    if kind == _STRING:
        size = load8(src, at)
        if size > 32 or size >= end - at:
            return np.int64(NOT_SHORT)
        return short_quoted(src, at + 1, at + 1 + size, out, pos, out_end)
    if kind == LITERAL and load8(src, at) < 2:
        store32(out, pos, _NULL_WORD if load8(src, at) == 0 else _TRUE_WORD)
        return np.int64(pos + 4)
    if kind == LITERAL and load8(src, at) == 2:
        store32(out, pos, _FALS_WORD)
        store8(out, pos + 4, 101)
        return np.int64(pos + 5)
    if INT16 <= kind <= UINT32:
        value = load32(src, at) if kind >= INT32 else load16(src, at)
        if kind == INT16:
            value = (value ^ 0x8000) - 0x8000
        elif kind == INT32:
            value = (value ^ 0x80000000) - 0x80000000
        if value < 0:
            store8(out, pos, 45)
            pos += 1
            value = -value
        return np.int64(put_words(np.uint64(value), out, pos))
    return np.int64(NOT_SHORT)
