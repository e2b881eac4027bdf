"""Assign a region of a chunk's arena to each column."""

from __future__ import annotations

from typing import Any

import numpy as np

from ray_canal.kernels.base import codes
from ray_canal.kernels.base.jit import without_refcounts
from ray_canal.kernels.base.memory import aligned
from ray_canal.kernels.rows import rows as r
from ray_canal.kernels.rows import wire as w


def _widths() -> np.ndarray[Any, np.dtype[np.int64]]:
    widths = np.zeros(max(codes.WIDTH_BYTES) + 1, np.int64)
    for code, width in codes.WIDTH_BYTES.items():
        widths[code] = width
    return widths


_WIDTHS = _widths()


@without_refcounts
def place_tables(plan, shape, sizes, dest, at):
    """Assign regions to the tables' columns, from `at` on, in `shape` and `dest`; return (where the
    last one ends; bytes of room for values that kernels of their own write).

    A side without rows gets none (and stays 0 in `dest`). How long those values
    become is known when they are written, so decode.py places them then, after all others.
    """
    room = 0
    for table in range(shape.shape[0]):
        rows, first = shape[table, r.S_ROWS], shape[table, r.S_FIRST]
        shape[table, r.S_ROW_EVENT] = at
        at += aligned(4 * rows)
        for side in range(2):
            if shape[table, r.S_BEFORE + side] == 0:
                continue
            base = side * w.DEST_FIELDS
            for line in range(first, first + shape[table, r.S_COLUMNS]):
                code = plan[line, w.CODE]
                dest[line, base + w.VALIDITY] = at
                at += aligned((rows + 7) >> 3)
                dest[line, base + w.VALUES] = at
                if code < codes.FIRST_VARIABLE:
                    at += aligned(_WIDTHS[code] * rows)
                    continue
                at += aligned(_WIDTHS[code] * (rows + 1))
                if plan[line, w.WIRE] >= w.READ_JSON:
                    room += aligned(sizes[line, side])
                    continue
                dest[line, base + w.DATA] = at
                dest[line, base + w.DATA_END] = at + sizes[line, side]
                at += aligned(sizes[line, side])
    return at, room
