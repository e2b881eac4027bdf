"""Diffs of partial JSON values: their format, and as text.

Format (MySQL source documentation, json_diff.h): diffs stand one after the other, each an operation
(0 replace, 1 insert, 2 remove), the packed length of a path, the path as text (`$.a[3]."b c"`), and
but for remove the packed length of a value and the value as binary JSON.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ray_canal.kernels.base.jit import kernel
from ray_canal.kernels.base.memory import copy
from ray_canal.kernels.base.packed import packed_integer
from ray_canal.kernels.json.scalars import CORRUPT, NO_SPACE, quoted
from ray_canal.kernels.json.text import DEPTH_MAX, STACK_FIELDS, json_text

REPLACE: Final = 0
INSERT: Final = 1
REMOVE: Final = 2

_OPERATIONS = (
    np.frombuffer(b'{"op": "replace", "path": ', np.uint8),
    np.frombuffer(b'{"op": "insert", "path": ', np.uint8),
    np.frombuffer(b'{"op": "remove", "path": ', np.uint8),
)
_VALUE = np.frombuffer(b', "value": ', np.uint8)
_FUNCTIONS = (
    np.frombuffer(b"JSON_REPLACE(", np.uint8),
    np.frombuffer(b"JSON_INSERT(", np.uint8),
    np.frombuffer(b"JSON_REMOVE(", np.uint8),
    np.frombuffer(b"JSON_ARRAY_INSERT(", np.uint8),
)
_ARRAY_INSERT: Final = 3


@kernel
def _packed(src, at, end):
    """Return a packed length and the offset after it; (-1, 0) if it does not fit before `end`."""
    value, at = packed_integer(src, at, end)
    if value < 0 or value > end - at:
        return np.int64(-1), np.int64(0)
    return value, np.int64(at)


@kernel
def next_diff(src, at, end):
    """Return (operation, path, its end, value, its end); operation -1 if the diff is broken. The
    next diff begins at the value's end."""
    bad = np.int64(-1), np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    operation = np.int64(src[at])
    size, path = _packed(src, at + 1, end)
    if operation > REMOVE or size < 0:
        return bad
    path_end = path + size
    if operation == REMOVE:
        return operation, path, path_end, path_end, path_end
    size, value = _packed(src, path_end, end)
    if size < 1:
        return bad
    return operation, path, path_end, value, value + size


@kernel
def room():
    """Return room for the containers that are open while a document is written."""
    return np.empty((DEPTH_MAX + 1, STACK_FIELDS), np.int64)


@kernel
def _put(word, out, pos, out_end):
    """Write some bytes; return the position after them, or NO_SPACE."""
    if len(word) > out_end - pos:
        return NO_SPACE
    for i in range(len(word)):
        out[pos + i] = word[i]
    return pos + len(word)


@kernel
def diffs_text(src, at, end, out, pos, out_end):
    """Write diffs as a JSON array of {"op", "path", "value"}; return the position after it,
    NO_SPACE or CORRUPT."""
    if out_end - pos < 2:
        return NO_SPACE
    out[pos] = 91
    pos += 1
    is_first = True
    while at < end:
        operation, path, path_end, value, at = next_diff(src, at, end)
        if operation < 0:
            return CORRUPT
        if out_end - pos < 2:
            return NO_SPACE
        if not is_first:
            out[pos] = 44
            out[pos + 1] = 32
            pos += 2
        is_first = False
        pos = _put(_OPERATIONS[operation], out, pos, out_end)
        if pos < 0:
            return pos
        pos = quoted(src, path, path_end, out, pos, out_end)
        if pos < 0:
            return pos
        if operation != REMOVE:
            pos = _put(_VALUE, out, pos, out_end)
            if pos < 0:
                return pos
            pos = json_text(src, value, at, out, pos, out_end, room())
            if pos < 0:
                return pos
        if out_end - pos < 2:
            return NO_SPACE
        out[pos] = 125
        pos += 1
    if out_end - pos < 1:
        return NO_SPACE
    out[pos] = 93
    return pos + 1


@kernel
def _functions(src, at, end):
    """Return the index in _FUNCTIONS of each diff; empty if the bytes are no diffs."""
    count = 0
    start = at
    while at < end:
        operation, _, _, _, at = next_diff(src, at, end)
        if operation < 0:
            return np.empty(0, np.int64)
        count += 1
    functions = np.empty(count, np.int64)
    at = start
    for i in range(count):
        operation, path, path_end, _, at = next_diff(src, at, end)
        is_element = path_end > path and src[path_end - 1] == 93
        functions[i] = _ARRAY_INSERT if operation == INSERT and is_element else operation
    return functions


@kernel
def expression_text(src, at, end, name, out, pos, out_end):
    """Write diffs as SQL over the column's name, as Canal does: `JSON_REPLACE(j, '$.a', 5)`; the
    name alone if there are none. Return the position after it, NO_SPACE or CORRUPT."""
    if at >= end:
        return _put(name, out, pos, out_end)
    functions = _functions(src, at, end)
    if not len(functions):
        return CORRUPT
    for i in range(len(functions) - 1, -1, -1):
        if i == 0 or functions[i - 1] != functions[i]:
            pos = _put(_FUNCTIONS[functions[i]], out, pos, out_end)
            if pos < 0:
                return pos
    pos = _put(name, out, pos, out_end)
    if pos < 0:
        return pos
    for i in range(len(functions)):
        operation, path, path_end, value, at = next_diff(src, at, end)
        if out_end - pos < path_end - path + 8:
            return NO_SPACE
        out[pos] = 44
        out[pos + 1] = 32
        out[pos + 2] = 39
        copy(out, pos + 3, src, path, path_end - path)
        pos += 3 + path_end - path
        out[pos] = 39
        pos += 1
        if operation != REMOVE:
            out[pos] = 44
            out[pos + 1] = 32
            pos = json_text(src, value, at, out, pos + 2, out_end, room())
            if pos < 0:
                return pos
        if i + 1 == len(functions) or functions[i + 1] != functions[i]:
            if out_end - pos < 1:
                return NO_SPACE
            out[pos] = 41
            pos += 1
    return pos

