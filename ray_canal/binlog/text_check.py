"""Check that text that is copied is the UTF-8 that its column says it is.

Servers refuse other text, but for what old ones took, so it is rare: columns are checked when they
are filled, and a chunk with broken text is decoded once more, character by character, where each
broken one becomes U+FFFD. Arrow and protobuf strings can hold nothing else.
"""

from __future__ import annotations

from ray_canal.kernels.base.utf8 import first_broken_row
from ray_canal.kernels.rows import wire
from ray_canal.kernels.rows.charset import UTF8
from ray_canal.kernels.rows.text_check import has_broken_column, is_copied_text
from ray_canal.model.arrays import Bytes, Int64s


def read_by_character(plan: Int64s) -> None:
    """Change a plan so that text in UTF-8 is transcoded, from UTF-8."""
    for line in plan:
        if is_copied_text(line[wire.WIRE], line[wire.CODE], line[wire.CHARSET]):
            line[wire.CHARSET] = UTF8
            if line[wire.WIRE] == wire.READ_COPY:
                line[wire.WIRE] = wire.READ_TRANSCODED


def has_broken_text(plan: Int64s, shape: Int64s, dest: Int64s, arena: Bytes) -> bool:
    """Tell if any column of text, all of them filled, has a value that is not UTF-8."""
    return bool(has_broken_column(plan, shape, dest, arena))


def broken_row(dest: Int64s, base: int, count: int, arena: Bytes) -> int:
    """The first row of a column's side (`dest`: its line) that is not UTF-8; -1: none."""
    data, used, values = (int(dest[base + k]) for k in (wire.DATA, wire.USED, wire.VALUES))
    return int(first_broken_row(arena, data, used, values, count))
