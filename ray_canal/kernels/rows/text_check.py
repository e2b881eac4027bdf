"""Check if any filled column of text is broken UTF-8 (binlog/text_check.py says what for)."""

from __future__ import annotations

from ray_canal.kernels.base import codes
from ray_canal.kernels.base.jit import inlined, without_refcounts
from ray_canal.kernels.base.utf8 import first_broken_row
from ray_canal.kernels.rows import rows as r
from ray_canal.kernels.rows import wire as w


@inlined
def is_copied_text(read, code, charset):
    """Tell if a column of a plan is text that is copied as it is."""
    return code == codes.TEXT and charset == 0 and (read == w.READ_COPY or read == w.READ_INFLATED)


@without_refcounts
def has_broken_column(plan, shape, dest, arena):
    """Tell if any column has a value that is not UTF-8."""
    for table in range(shape.shape[0]):
        first, rows = shape[table, r.S_FIRST], shape[table, r.S_ROWS]
        for line in range(first, first + shape[table, r.S_COLUMNS]):
            if not is_copied_text(plan[line, w.WIRE], plan[line, w.CODE], plan[line, w.CHARSET]):
                continue
            for side in range(2):
                if shape[table, r.S_BEFORE + side] == 0:
                    continue
                base = side * w.DEST_FIELDS
                data, used = dest[line, base + w.DATA], dest[line, base + w.USED]
                offsets = dest[line, base + w.VALUES]
                if first_broken_row(arena, data, used, offsets, rows) >= 0:
                    return True
    return False
