"""Make bits of the columns that each row's images have: for tables of which some event leaves
columns out (binlog_row_image MINIMAL, NOBLOB)."""

from __future__ import annotations

from ray_canal.kernels.base.jit import without_refcounts
from ray_canal.kernels.base.memory import load8, store8


@without_refcounts
def row_presence(events, owners, arena, side, bitmap_bytes, shown, out, regions):
    """Fill the regions of `out` (zero before): bits of the rows whose image on this side (0 before,
    1 after) lacks some of the `shown` columns, then for each such column, of the rows that have it.

    `owners` says which event each row is of, `bitmap_bytes` how long its bitmaps in the arena are.
    How many rows' images lack none, or are not there.
    """
    whole = 0
    for i in range(owners.size):
        event = events[owners[i]]
        at, byte, bit = event["present"], i >> 3, 1 << (i & 7)
        lacks = False
        # Event types: 1 INSERT, which has no before image, 2 UPDATE, 3 DELETE, which has no after.
        if at >= 0 and event["event_type"] != 1 + 2 * side:
            at += side * bitmap_bytes
            for k in range(shown.size):
                column = shown[k]
                if load8(arena, at + (column >> 3)) >> (column & 7) & 1:
                    place = regions[1 + k] + byte
                    store8(out, place, load8(out, place) | bit)
                else:
                    lacks = True
        if lacks:
            store8(out, regions[0] + byte, load8(out, regions[0] + byte) | bit)
        else:
            whole += 1
    return whole
