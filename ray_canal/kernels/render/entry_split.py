"""Cut Canal's row entries into entries of one row each, as protobuf wire bytes.

Canal does so where a row's key chooses its partition: all else of the entry stays as it is. Entries
are those of entry_bytes.py, whose fields have a known order.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ray_canal.kernels.base.jit import inlined, without_refcounts
from ray_canal.kernels.base.memory import copy

_STORE_VALUE, _ROW_DATA = 0x1A, 0x62
_LENGTH_DELIMITED: Final = 2
# Columns of `heads`: where an entry's storeValue has its tag, and what RowChange has before rows.
H_STORE, H_BODY, H_ROWS = 0, 1, 2
HEAD_FIELDS: Final = 3
STORE_HEAD_BYTES_MAX: Final = 11


@inlined
def _varint(buf, at):
    """Return (value, offset after it)."""
    value = np.int64(0)
    shift = 0
    while True:
        byte = np.int64(buf[at])
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


@inlined
def _field_end(buf, at):
    """Return (tag, offset after the field that begins at `at`)."""
    tag, at = _varint(buf, at)
    value, at = _varint(buf, at)
    if tag & 7 == _LENGTH_DELIMITED:
        at += value
    return tag, at


@without_refcounts
def find_rows(buf, offsets, heads, bounds, firsts):
    """Fill the entries' `heads`, `bounds` with start and end of each row's field, of all entries,
    and `firsts` with each entry's first row there."""
    count = 0
    for i in range(offsets.size - 1):
        firsts[i] = count
        at, end = offsets[i], offsets[i + 1]
        while at < end and buf[at] != _STORE_VALUE:
            _, at = _field_end(buf, at)
        heads[i, H_STORE] = at
        _, at = _varint(buf, at + 1)
        heads[i, H_BODY] = heads[i, H_ROWS] = at
        while at < end:
            tag, field_end = _field_end(buf, at)
            if tag == _ROW_DATA:
                bounds[count, 0] = at
                bounds[count, 1] = field_end
                count += 1
            else:
                heads[i, H_ROWS] = field_end
            at = field_end


@without_refcounts
def write_rows(buf, offsets, heads, owners, rows, bounds, out, ends):
    """Write entry owners[k] with the one row bounds[rows[k]], or as it is (rows[k] below 0), one
    after the other. ends[k + 1] is where it ends in `out`, which has room."""
    to = np.int64(0)
    for k in range(owners.size):
        i, row = owners[k], rows[k]
        first = offsets[i]
        if row < 0:
            copy(out, to, buf, first, offsets[i + 1] - first)
            to += offsets[i + 1] - first
            ends[k + 1] = to
            continue
        store = heads[i, H_STORE]
        copy(out, to, buf, first, store - first)
        to += store - first
        body, body_bytes = heads[i, H_BODY], heads[i, H_ROWS] - heads[i, H_BODY]
        row_bytes = bounds[row, 1] - bounds[row, 0]
        out[to] = _STORE_VALUE
        to += 1
        size = body_bytes + row_bytes
        while size >= 128:
            out[to] = size & 127 | 128
            size >>= 7
            to += 1
        out[to] = size
        to += 1
        copy(out, to, buf, body, body_bytes)
        copy(out, to + body_bytes, buf, bounds[row, 0], row_bytes)
        to += body_bytes + row_bytes
        ends[k + 1] = to
