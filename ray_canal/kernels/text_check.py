"""Whether any filled column of text is broken UTF-8 (binlog/text_check.py says what for)."""

from __future__ import annotations

from ray_canal.kernels import rows as r
from ray_canal.kernels import wire as w
from ray_canal.kernels.jit import bare
from ray_canal.kernels.utf8 import first_broken_row


@bare
def has_broken_column(chosen, shape, dest, arena):  # type: ignore[no-untyped-def]
    """`chosen` says which lines of the plan to look at."""
    for table in range(shape.shape[0]):
        first, rows = shape[table, r.S_FIRST], shape[table, r.S_ROWS]
        for line in range(first, first + shape[table, r.S_COLUMNS]):
            for side in range(2):
                if not chosen[line] or shape[table, r.S_BEFORE + side] == 0:
                    continue
                base = side * w.DEST_FIELDS
                data, used = dest[line, base + w.DATA], dest[line, base + w.USED]
                offsets = dest[line, base + w.VALUES]
                if first_broken_row(arena, data, used, offsets, rows) >= 0:
                    return True
    return False
