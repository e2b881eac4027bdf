"""Write a row event's RowChange message of Canal's entries: its rows' column messages put together
(entry_columns.py makes them), and the head of the message; backwards (entry_bytes.py says why).
"""

from __future__ import annotations

import numpy as np

from ray_canal.kernels.base.jit import inlined, without_refcounts
from ray_canal.kernels.base.memory import copy, copy32
from ray_canal.kernels.render.entry_columns import (
    NO_SPACE,
    T_COUNT,
    W_HIGH,
    W_LOW,
    W_MARKS,
    make_window,
)
from ray_canal.kernels.render.entry_values import VALUE_BYTES_MAX
from ray_canal.kernels.render.protobuf import close_back, number_back


@inlined
def _message_back(pieces, start, size, buf, pos):
    """Copy a message, without a call if it has at most 128 bytes; most have at most 64. The surplus
    before it is overwritten later."""
    end = start + size
    if size <= 128 and end >= 128:
        copy32(buf, pos - 32, pieces, end - 32)
        copy32(buf, pos - 64, pieces, end - 64)
        if size > 64:
            copy32(buf, pos - 96, pieces, end - 96)
            copy32(buf, pos - 128, pieces, end - 128)
    else:
        copy(buf, pos - size, pieces, start, size)
    return pos - size


@without_refcounts
def _image_back(pieces, marks, mark, count, buf, pos):
    """Write the columns of one image; return NO_SPACE if they do not fit."""
    for m in range(mark + count - 1, mark - 1, -1):
        size = marks[m] & 0xFFFFFFFF
        if size == 0:
            continue
        if pos < size + VALUE_BYTES_MAX:
            return NO_SPACE
        pos = _message_back(pieces, marks[m] >> 32, size, buf, pos)
    return pos


@without_refcounts
def rows_back(chosen, at, rows, window, buf, pos):
    """Write storeValue of the row entry chosen[at]; NO_SPACE, NO_PIECES."""
    windows = window.windows
    end = pos
    event = rows.events[chosen[at]]
    table = event["table"]
    count = rows.tables[table, T_COUNT]
    first = np.int64(event["row"])
    for row in range(first + event["rows"] - 1, first - 1, -1):
        if not windows[table, W_LOW] <= row < windows[table, W_HIGH]:
            code = make_window(chosen, at, row, rows, window)
            if code < 0:
                return code
        row_end = pos
        low, high = windows[table, W_LOW], windows[table, W_HIGH]
        before = windows[table, W_MARKS] + (row - low) * count
        after = before + (high - low) * count
        pos = _image_back(window.pieces, window.marks, after, count, buf, pos)
        if pos >= 0:
            pos = _image_back(window.pieces, window.marks, before, count, buf, pos)
        if pos < VALUE_BYTES_MAX:
            return NO_SPACE
        pos = close_back(0x62, row_end, buf, pos)
    if pos < VALUE_BYTES_MAX:
        return NO_SPACE
    pos -= 2
    buf[pos] = 0x50  # isDdl = false
    buf[pos + 1] = 0
    pos = number_back(0x10, np.int64(event["event_type"]), buf, pos)
    pos = number_back(0x08, np.int64(event["aux"]), buf, pos)
    return close_back(0x1A, end, buf, pos)
