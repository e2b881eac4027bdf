"""Write MySQL's binary JSON as the text that MySQL's CAST(j AS CHAR) prints.

Format: MySQL source documentation, json_binary.h. A value is one type byte and its body; objects
and arrays hold offsets relative to their own start. The walk keeps its own stack, at most DEPTH_MAX
deep (MySQL's limit), checks every offset before it reads, and writes no byte after `out_end`.
MySQL never lets two values share bytes, so text is at most GROWTH times the document and a little
more; what is longer is corrupt, or a few hostile bytes could ask for any amount of memory.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ray_canal.kernels.base.float_text import MAX_TEXT_BYTES
from ray_canal.kernels.base.jit import inlined, without_refcounts
from ray_canal.kernels.base.memory import copy, load8, store16
from ray_canal.kernels.json.scalars import (
    CORRUPT,
    INT32,
    LITERAL,
    NO_SPACE,
    NOT_SHORT,
    UINT16,
    UINT32,
    quoted,
    scalar,
    short_quoted,
    short_scalar,
    uint_le,
)

DEPTH_MAX: Final = 100
STACK_FIELDS: Final = 5
GROWTH: Final = 8
"""More than any real document: control characters grow most, one byte to the six of \\u0001."""

SMALL_OBJECT, LARGE_OBJECT, SMALL_ARRAY, LARGE_ARRAY = 0, 1, 2, 3

_NULL = np.frombuffer(b"null", np.uint8)
_COLON_BLANK: Final = 32 << 8 | 58
_COMMA_BLANK: Final = 32 << 8 | 44

# Columns of the stack that `enter` fills.
_BASE, SIZE, COUNT, _NEXT, _KIND = 0, 1, 2, 3, 4


@inlined
def enter(kind, src, base, end, stack, depth):
    """Push the container at `base`; return False if its header is impossible."""
    width = 4 if kind == LARGE_OBJECT or kind == LARGE_ARRAY else 2
    if end - base < 2 * width:
        return False
    count = uint_le(src, base, width)
    size = uint_le(src, base + width, width)
    entry = width + 1 + (width + 2 if kind <= LARGE_OBJECT else 0)
    if size > end - base or 2 * width + count * entry > size:
        return False
    stack[depth, _BASE] = base
    stack[depth, SIZE] = size
    stack[depth, COUNT] = count
    stack[depth, _NEXT] = 0
    stack[depth, _KIND] = kind
    return True


@inlined
def key_place(src, base, size, width, index):
    """Return (offset in `src`, bytes) of key `index` of the object of `size` bytes at `base`, whose
    offsets are `width` (2 or 4) bytes wide; (-1, 0) if it is not inside the object."""
    at = base + 2 * width + index * (width + 2)
    start = uint_le(src, at, width)
    length = uint_le(src, at + width, 2)
    if start + length > size:
        return np.int64(-1), np.int64(0)
    return base + start, length


@inlined
def element_place(src, base, size, width, count, kind, index):
    """Return (type, offset of the body) of a container's value; offset -1 if it is not inside."""
    at = base + 2 * width + index * (width + 1)
    if kind <= LARGE_OBJECT:
        at += count * (width + 2)
    inner = load8(src, at)
    if LITERAL <= inner <= UINT16 or (width == 4 and INT32 <= inner <= UINT32):
        return inner, np.int64(at + 1)
    offset = uint_le(src, at + 1, width)
    return inner, np.int64(base + offset if offset < size else -1)


@inlined
def key_text(src, start, end, out, pos, out_end):
    """Write an object's key and the colon after it."""
    key_end = short_quoted(src, start, end, out, pos, out_end)
    pos = quoted(src, start, end, out, pos, out_end) if key_end == NOT_SHORT else key_end
    if pos < 0:
        return pos
    if pos + 2 > out_end:
        return NO_SPACE
    store16(out, pos, _COLON_BLANK)
    return pos + 2


@without_refcounts
def value_text(kind, src, at, end, out, pos, out_end, stack):
    """Write any value of type `kind` whose body begins at `at` and ends before `end`.

    `stack`: int64[DEPTH_MAX + 1, STACK_FIELDS], room for the containers that are open.
    """
    if kind > LARGE_ARRAY:
        return scalar(kind, src, at, end, out, pos, out_end)
    if not enter(kind, src, at, end, stack, 0):
        return CORRUPT
    depth = 0
    opening = True
    while depth >= 0:
        kind = stack[depth, _KIND]
        is_object = kind <= LARGE_OBJECT
        if pos + 2 > out_end:
            return NO_SPACE
        if opening:
            out[pos] = 123 if is_object else 91
            pos += 1
            opening = False
        index = stack[depth, _NEXT]
        if index >= stack[depth, COUNT]:
            out[pos] = 125 if is_object else 93
            pos += 1
            depth -= 1
            continue
        if index:
            store16(out, pos, _COMMA_BLANK)
            pos += 2
        stack[depth, _NEXT] = index + 1
        base, size = stack[depth, _BASE], stack[depth, SIZE]
        width = 4 if kind == LARGE_OBJECT or kind == LARGE_ARRAY else 2
        if is_object:
            key, key_bytes = key_place(src, base, size, width, index)
            if key < 0:
                return CORRUPT
            pos = key_text(src, key, key + key_bytes, out, pos, out_end)
            if pos < 0:
                return pos
        inner, target = element_place(src, base, size, width, stack[depth, COUNT], kind, index)
        if target < 0:
            return CORRUPT
        if inner <= LARGE_ARRAY:
            if depth + 1 > DEPTH_MAX or not enter(
                inner, src, target, base + size, stack, depth + 1
            ):
                return CORRUPT
            depth += 1
            opening = True
            continue
        value_end = short_scalar(inner, src, target, base + size, out, pos, out_end)
        if value_end == NOT_SHORT:
            value_end = scalar(inner, src, target, base + size, out, pos, out_end)
        if value_end < 0:
            return value_end
        pos = value_end
    return pos


@inlined
def json_text(src, start, end, out, pos, out_end, stack):
    """Write the JSON document src[start:end] as text to out[pos:out_end].

    Return the position after the text, NO_SPACE if it does not fit, CORRUPT if it is broken. An
    empty document is `null`'s text (MySQL stores it for a JSON column that lost its value).
    """
    if end <= start:
        if out_end - pos < 4:
            return NO_SPACE
        copy(out, pos, _NULL, 0, 4)
        return pos + 4
    longest = pos + GROWTH * (end - start) + 2 * MAX_TEXT_BYTES
    if longest >= out_end:
        return value_text(np.int64(src[start]), src, start + 1, end, out, pos, out_end, stack)
    pos = value_text(np.int64(src[start]), src, start + 1, end, out, pos, longest, stack)
    return CORRUPT if pos == NO_SPACE else pos
