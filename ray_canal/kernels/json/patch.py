"""Write a partially updated JSON value: a binary document and diffs (diff.py) become the text of
the document after them.

The document becomes a tree, but only along the paths: a node is a value in its binary form until a
path leads through it; then it is opened, and its elements are nodes in a linked list. All bytes are
in one array: the document, the diffs, and room of the diffs' size for keys whose path has escapes.

Bounds against hostile bytes: an element takes three bytes, so a tree has at most a third as many
nodes as there are bytes; steps along lists and the text are limited likewise.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ray_canal.kernels.base.float_text import MAX_TEXT_BYTES
from ray_canal.kernels.base.jit import kernel
from ray_canal.kernels.base.memory import copy
from ray_canal.kernels.json.diff import INSERT, REMOVE, next_diff, room
from ray_canal.kernels.json.path import LAST, MEMBER, leg
from ray_canal.kernels.json.scalars import CORRUPT, NO_SPACE
from ray_canal.kernels.json.text import (
    COUNT,
    DEPTH_MAX,
    GROWTH,
    LARGE_ARRAY,
    LARGE_OBJECT,
    SIZE,
    SMALL_ARRAY,
    element_place,
    enter,
    json_text,
    key_place,
    key_text,
    value_text,
)

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


class _Tree(NamedTuple):
    """A document while diffs are applied to it."""

    doc: Any  # uint8: the document, the diffs, room for keys
    nodes: Any  # int32: a line of fields for each node
    state: Any  # int64: nodes that are used, steps that are left
    header: Any  # int64[1, 5]: room for a container's header


@kernel
def _open(tree, node):
    """Make nodes of a container's elements, if that is not done yet; return False if it is
    corrupt."""
    doc, nodes, state, header = tree
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
def _order(tree, node, key, size):
    """Compare a node's key with another one: shorter ones first, then by bytes. Return a number
    below, at or above 0."""
    doc, nodes = tree.doc, tree.nodes
    if nodes[node, _KEY_BYTES] != size:
        return nodes[node, _KEY_BYTES] - size
    at = np.int64(nodes[node, _KEY])
    for i in range(size):
        if doc[at + i] != doc[key + i]:
            return np.int64(doc[at + i]) - np.int64(doc[key + i])
    return np.int64(0)


@kernel
def _member(tree, node, key, size):
    """Find a key's place in an open object: (node before it or -1, node there or -1, True if that
    has the key)."""
    nodes, state = tree.nodes, tree.state
    before = np.int64(-1)
    child = np.int64(nodes[node, _FIRST])
    while child >= 0:
        state[_STEPS] -= 1 + (size >> 6)
        order = _order(tree, child, key, size)
        if order >= 0:
            return before, child, order == 0
        before = child
        child = np.int64(nodes[child, _NEXT])
    return before, np.int64(-1), False


@kernel
def _element(tree, node, index, from_end):
    """Find an index's place in an open array: (node before it or -1, node there or -1, True if it
    is inside the array). An index outside is taken as the nearer end."""
    nodes, state = tree.nodes, tree.state
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
    """Make `child` the node after `before` in `parent` (-1: the first)."""
    if before < 0:
        nodes[parent, _FIRST] = child
    else:
        nodes[before, _NEXT] = child


@kernel
def _apply(tree, operation, at, end, value, value_end, keys):
    """Apply one diff, whose path is doc[at:end]; return False if it does not fit the document.
    `keys` is where keys with escapes may be written."""
    doc, nodes, state = tree.doc, tree.nodes, tree.state
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
        if (kind == MEMBER) == is_array or not _open(tree, node):
            return False
        parent = node
        if kind == MEMBER:
            before, node, found = _member(tree, parent, place, size)
        else:
            before, node, found = _element(tree, parent, place, kind == LAST)
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
def _write(doc, nodes, out, pos, out_end):
    """Write the tree as text; return the position after it, NO_SPACE or CORRUPT."""
    open_containers = room()
    if nodes[0, _KIND] >= 0:
        kind, at, end = nodes[0, _KIND], nodes[0, _AT], nodes[0, _END]
        return value_text(
            np.int64(kind), doc, np.int64(at), np.int64(end), out, pos, out_end, open_containers
        )
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
                np.int64(kind), doc, np.int64(at), np.int64(end), out, pos, out_end, open_containers
            )
            if pos < 0:
                return pos


@kernel
def patched_text(src, document_place, diffs_place, out, pos, out_end):
    """Write a document, changed by diffs, as text. Each place is start and end in `src`.

    Return the position after the text, NO_SPACE if it does not fit, CORRUPT if document or diffs
    are broken or do not fit each other.
    """
    start, end = document_place
    diffs, diffs_end = diffs_place
    if diffs == diffs_end:
        return json_text(src, start, end, out, pos, out_end, room())
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
    tree = _Tree(doc, nodes, state, header)
    at = np.int64(document)
    while at < size:
        operation, path, path_end, value, at = next_diff(doc, at, size)
        if operation < 0 or not _apply(tree, operation, path, path_end, value, at, changes):
            return CORRUPT
    longest = pos + GROWTH * size + 2 * MAX_TEXT_BYTES
    if longest >= out_end:
        return _write(doc, nodes, out, pos, out_end)
    pos = _write(doc, nodes, out, pos, longest)
    return CORRUPT if pos == NO_SPACE else pos
