"""JSON columns: from the places that kernels/rows.py has noted to text, one column and side at a
time."""

from __future__ import annotations

import numpy as np

from ray_canal.kernels import wire as w
from ray_canal.kernels.jit import kernel
from ray_canal.kernels.json_text import json_text
from ray_canal.kernels.memory import copy, store32

_NO_SPACE = -1  # json_text's answer
_NULL_TEXT = np.frombuffer(b"null", np.uint8)


@kernel
def fill_json(source, p, base, rows, dest, deferred, arena):  # type: ignore[no-untyped-def]
    """Write a column's texts and offsets. (0 or an error code, row).

    JSON_SPACE is no error: the texts need more room than was laid out.
    """
    values, data = dest[p, base + w.VALUES], dest[p, base + w.DATA]
    data_end = dest[p, base + w.DATA_END]
    to = data
    for row in range(rows):
        note = dest[p, base + w.DEFERRED] + row
        at, count = deferred[note, 0], deferred[note, 1]
        if count == 0:  # MySQL reads an empty JSON value as the literal null
            if data_end - to < 4:
                return w.JSON_SPACE, row
            copy(arena, to, _NULL_TEXT, 0, 4)
            to += 4
        elif count > 0:
            behind = json_text(source, at, at + count, arena, to, data_end)
            if behind < 0:
                return (w.JSON_SPACE if behind == _NO_SPACE else w.BAD_JSON), row
            to = behind
        store32(arena, values + 4 * row + 4, to - data)
    dest[p, base + w.USED] = to - data
    return 0, 0
