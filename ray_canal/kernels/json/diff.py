"""Partial JSON values: a binary JSON document and diffs -> the text of the document after them, and
the diffs themselves as text.

Format (MySQL source documentation, json_diff.h): diffs stand one after the other, each an operation
(0 replace, 1 insert, 2 remove), the packed length of a path, the path as text (`$.a[3]."b c"`), and
but for remove the packed length of a value and the value as binary JSON.

The document becomes a tree, but only along the paths: a node is a value in its binary form until a
path leads through it; then it is opened, and its elements are nodes in a linked list. Everything
lies in one byte array: the document, the diffs, and room of the diffs' size in which keys are
written whose path has escapes in it.

Bounds against hostile bytes: an element takes three bytes, so a tree has at most a third as many
nodes as there are bytes; steps along lists and the text are limited likewise.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ray_canal.kernels.base.float_text import MAX_TEXT_BYTES
from ray_canal.kernels.base.jit import kernel
from ray_canal.kernels.base.memory import copy, load_le
from ray_canal.kernels.json.path import LAST, MEMBER, leg
from ray_canal.kernels.json.scalars import CORRUPT, NO_SPACE, quoted
from ray_canal.kernels.json.text import (
    COUNT,
    DEPTH_MAX,
    GROWTH,
    LARGE_ARRAY,
    LARGE_OBJECT,
    SIZE,
    SMALL_ARRAY,
    STACK_FIELDS,
    element_place,
    enter,
    json_text,
    key_place,
    key_text,
    value_text,
)

REPLACE: Final = 0
INSERT: Final = 1
REMOVE: Final = 2

# Fields of a node.
_KIND, _AT, _END, _KEY, _KEY_BYTES, _FIRST, _NEXT = 0, 1, 2, 3, 4, 5, 6
_NODE_FIELDS = 7
_OPEN_OBJECT, _OPEN_ARRAY = -1, -2  # kinds that no type byte has

# Fields of `state`.
_USED, _STEPS = 0, 1
_STEPS_PER_BYTE = 1024
_STEPS_LEAST = 1 << 16
"""Steps to elements: MySQL writes the whole document where diffs are not much smaller, so thousands
of them for one array of thousands are not seen."""
_NODES_BYTES_MAX = (1 << 31) - 1  # offsets in nodes are int32

_WRAPPED = 3  # a leg that leads nowhere: [0] of what is no array is the value itself

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
    """A packed length that fits before `end`: (length, offset behind it); (-1, 0) if it does
    not."""
    if at >= end:
        return np.int64(-1), np.int64(0)
    value = np.int64(src[at])
    at += 1
    if value > 250:
        count = 2 if value == 252 else 3 if value == 253 else 8 if value == 254 else 0
        if count == 0 or end - at < count:
            return np.int64(-1), np.int64(0)
        value = load_le(src, at, count)
        at += count
    if value < 0 or value > end - at:
        return np.int64(-1), np.int64(0)
    return value, np.int64(at)


@kernel
def _next_diff(src, at, end):
    """(operation, path, its end, value, its end); operation -1 if the diff is broken. The value's
    end is where the next diff begins."""
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
def _open(doc, nodes, node, state, header):
    """Make nodes of a container's elements, if that is not done yet. False: it is corrupt."""
    kind = np.int64(nodes[node, _KIND])
    if kind < 0:
        return True
    base = np.int64(nodes[node, _AT])
    if kind > LARGE_ARRAY or not enter(kind, doc, base, np.int64(nodes[node, _END]), header, 0):
        return False
    count, size = header[0, COUNT], header[0, SIZE]
    width = 4 if kind == LARGE_OBJECT or kind == LARGE_ARRAY else 2
    first = state[_USED]
    if count > nodes.shape[0] - first:
        return False
    for i in range(count):
        child = first + i
        if kind <= LARGE_OBJECT:
            key, key_bytes = key_place(doc, base, size, width, i)
            if key < 0:
                return False
            nodes[child, _KEY] = key
            nodes[child, _KEY_BYTES] = key_bytes
        inner, at = element_place(doc, base, size, width, count, kind, i)
        if at < 0:
            return False
        nodes[child, _KIND] = inner
        nodes[child, _AT] = at
        nodes[child, _END] = base + size
        nodes[child, _NEXT] = child + 1 if i + 1 < count else -1
    state[_USED] = first + count
    nodes[node, _KIND] = _OPEN_OBJECT if kind <= LARGE_OBJECT else _OPEN_ARRAY
    nodes[node, _FIRST] = first if count else -1
    return True


@kernel
def _order(doc, nodes, node, key, size):
    """A node's key before (negative), at or behind another one: shorter ones first, then bytes."""
    if nodes[node, _KEY_BYTES] != size:
        return nodes[node, _KEY_BYTES] - size
    at = np.int64(nodes[node, _KEY])
    for i in range(size):
        if doc[at + i] != doc[key + i]:
            return np.int64(doc[at + i]) - np.int64(doc[key + i])
    return np.int64(0)


@kernel
def _member(doc, nodes, node, key, size, state):
    """Where a key is, or would be, in an open object: (node before it or -1, node there or -1,
    whether it has that key)."""
    before = np.int64(-1)
    child = np.int64(nodes[node, _FIRST])
    while child >= 0:
        state[_STEPS] -= 1 + (size >> 6)
        order = _order(doc, nodes, child, key, size)
        if order >= 0:
            return before, child, order == 0
        before = child
        child = np.int64(nodes[child, _NEXT])
    return before, np.int64(-1), False


@kernel
def _element(nodes, node, index, from_end, state):
    """Where an index leads in an open array: (node before it or -1, node there or -1, whether the
    array reaches so far). What lies outside is taken to the nearer end."""
    inside = True
    if from_end:
        count = 0
        child = np.int64(nodes[node, _FIRST])
        while child >= 0:
            count += 1
            child = np.int64(nodes[child, _NEXT])
        state[_STEPS] -= count
        inside = index < count
        index = count - 1 - index if inside else 0
    before = np.int64(-1)
    child = np.int64(nodes[node, _FIRST])
    while child >= 0 and index > 0:
        state[_STEPS] -= 1
        index -= 1
        before = child
        child = np.int64(nodes[child, _NEXT])
    return before, child, inside and child >= 0


@kernel
def _link(nodes, parent, before, child):
    """Make `child` what follows `before` in `parent` (-1: the first)."""
    if before < 0:
        nodes[parent, _FIRST] = child
    else:
        nodes[before, _NEXT] = child


@kernel
def _apply(doc, operation, at, end, value, value_end, keys, nodes, state, header):
    """One diff, whose path is doc[at:end]. False: it does not fit the document."""
    if at >= end or doc[at] != 36:
        return False
    at += 1
    parent, before, node = np.int64(-1), np.int64(-1), np.int64(0)
    found = True
    kind, place, size = np.int64(_WRAPPED), np.int64(0), np.int64(0)
    while at < end:
        if not found:  # only the last leg may lead to what is not there
            return False
        kind, place, size, at = leg(doc, at, end, keys)
        if kind < 0:
            return False
        holds = nodes[node, _KIND]
        is_array = holds == _OPEN_ARRAY or SMALL_ARRAY <= holds <= LARGE_ARRAY
        if kind != MEMBER and not is_array:
            if place != 0:
                return False
            kind = np.int64(_WRAPPED)
            continue
        if (kind == MEMBER) == is_array or not _open(doc, nodes, node, state, header):
            return False
        parent = node
        if kind == MEMBER:
            before, node, found = _member(doc, nodes, parent, place, size, state)
        else:
            before, node, found = _element(nodes, parent, place, kind == LAST, state)
        if state[_STEPS] < 0:
            return False
    if operation == REMOVE:
        if not found or parent < 0:
            return False
        _link(nodes, parent, before, nodes[node, _NEXT])
        return True
    if operation == INSERT:
        if kind == _WRAPPED or (kind == MEMBER and found) or state[_USED] >= nodes.shape[0]:
            return False
        new = state[_USED]
        state[_USED] += 1
        nodes[new, _NEXT] = node
        nodes[new, _KEY] = place
        nodes[new, _KEY_BYTES] = size
        _link(nodes, parent, before, new)
        node = new
    elif not found:
        return False
    nodes[node, _KIND] = doc[value]
    nodes[node, _AT] = value + 1
    nodes[node, _END] = value_end
    return True


@kernel
def _room():
    return np.empty((DEPTH_MAX + 1, STACK_FIELDS), np.int64)


@kernel
def _write(doc, nodes, out, pos, out_end):
    """The tree as text."""
    room = _room()
    if nodes[0, _KIND] >= 0:
        kind, at, end = nodes[0, _KIND], nodes[0, _AT], nodes[0, _END]
        return value_text(np.int64(kind), doc, np.int64(at), np.int64(end), out, pos, out_end, room)
    stack = np.empty((DEPTH_MAX + 1, 2), np.int64)  # open container, its next element
    depth = 0
    child = np.int64(0)
    while True:
        # `child` is a container that begins here.
        if pos + 1 > out_end:
            return NO_SPACE
        out[pos] = 123 if nodes[child, _KIND] == _OPEN_OBJECT else 91
        pos += 1
        stack[depth, 0] = child
        stack[depth, 1] = nodes[child, _FIRST]
        opens = False
        while not opens:
            node, child = stack[depth, 0], stack[depth, 1]
            if pos + 2 > out_end:
                return NO_SPACE
            is_object = nodes[node, _KIND] == _OPEN_OBJECT
            if child < 0:
                out[pos] = 125 if is_object else 93
                pos += 1
                if depth == 0:
                    return pos
                depth -= 1
                continue
            if child != nodes[node, _FIRST]:
                out[pos] = 44
                out[pos + 1] = 32
                pos += 2
            stack[depth, 1] = nodes[child, _NEXT]
            if is_object:
                key = np.int64(nodes[child, _KEY])
                key_end = key + np.int64(nodes[child, _KEY_BYTES])
                pos = key_text(doc, key, key_end, out, pos, out_end)
                if pos < 0:
                    return pos
            if nodes[child, _KIND] < 0:
                opens = True
                depth += 1
                if depth > DEPTH_MAX:
                    return CORRUPT
                continue
            kind, at, end = nodes[child, _KIND], nodes[child, _AT], nodes[child, _END]
            pos = value_text(
                np.int64(kind), doc, np.int64(at), np.int64(end), out, pos, out_end, room
            )
            if pos < 0:
                return pos


@kernel
def patched_text(src, start, end, diffs, diffs_end, out, pos, out_end):
    """Write the document src[start:end], changed by src[diffs:diffs_end], as text.

    Returns the position behind the text, NO_SPACE when it does not fit, CORRUPT when document or
    diffs are none or do not fit each other.
    """
    if diffs == diffs_end:
        return json_text(src, start, end, out, pos, out_end, _room())
    document, changes = end - start, diffs_end - diffs
    size = document + changes
    if document < 1 or size + changes > _NODES_BYTES_MAX:
        return CORRUPT
    doc = np.empty(size + changes, np.uint8)
    copy(doc, 0, src, start, document)
    copy(doc, document, src, diffs, changes)
    nodes = np.empty((size // 3 + 4, _NODE_FIELDS), np.int32)
    header = np.empty((1, 5), np.int64)
    state = np.empty(2, np.int64)
    state[_USED] = 1
    state[_STEPS] = _STEPS_LEAST + _STEPS_PER_BYTE * size
    nodes[0, _KIND] = doc[0]
    nodes[0, _AT] = 1
    nodes[0, _END] = document
    at = np.int64(document)
    while at < size:
        operation, path, path_end, value, at = _next_diff(doc, at, size)
        if operation < 0 or not _apply(
            doc, operation, path, path_end, value, at, changes, nodes, state, header
        ):
            return CORRUPT
    longest = pos + GROWTH * size + 2 * MAX_TEXT_BYTES
    if longest >= out_end:
        return _write(doc, nodes, out, pos, out_end)
    pos = _write(doc, nodes, out, pos, longest)
    return CORRUPT if pos == NO_SPACE else pos


@kernel
def _put(word, out, pos, out_end):
    if len(word) > out_end - pos:
        return NO_SPACE
    for i in range(len(word)):
        out[pos + i] = word[i]
    return pos + len(word)


@kernel
def diffs_text(src, at, end, out, pos, out_end):
    """Write diffs as a JSON array of {"op", "path", "value"}; answers as `patched_text`."""
    if out_end - pos < 2:
        return NO_SPACE
    out[pos] = 91
    pos += 1
    is_first = True
    while at < end:
        operation, path, path_end, value, at = _next_diff(src, at, end)
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
            pos = json_text(src, value, at, out, pos, out_end, _room())
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
    """Each diff's function (an index of _FUNCTIONS); empty: the bytes are none."""
    count = 0
    start = at
    while at < end:
        operation, _, _, _, at = _next_diff(src, at, end)
        if operation < 0:
            return np.empty(0, np.int64)
        count += 1
    functions = np.empty(count, np.int64)
    at = start
    for i in range(count):
        operation, path, path_end, _, at = _next_diff(src, at, end)
        is_element = path_end > path and src[path_end - 1] == 93
        functions[i] = _ARRAY_INSERT if operation == INSERT and is_element else operation
    return functions


@kernel
def expression_text(src, at, end, name, out, pos, out_end):
    """Write diffs as SQL over the column's name, as Canal has it: `JSON_REPLACE(j, '$.a', 5)`; the
    name alone if there are none. Answers as `patched_text`."""
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
        operation, path, path_end, value, at = _next_diff(src, at, end)
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
            pos = json_text(src, value, at, out, pos + 2, out_end, _room())
            if pos < 0:
                return pos
        if i + 1 == len(functions) or functions[i + 1] != functions[i]:
            if out_end - pos < 1:
                return NO_SPACE
            out[pos] = 41
            pos += 1
    return pos
