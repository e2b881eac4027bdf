"""Write the diffs of a chunk's partial JSON values as texts after the arena.

Few chunks have any (PARTIAL_UPDATE_ROWS events), and the size of the texts is known when they are
written; so they are no part of the arena's sketch, and the arena is copied once to append them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ray_canal.binlog.chunk import ColumnLayout
from ray_canal.kernels.base import codes
from ray_canal.kernels.json.column import write_diffs
from ray_canal.kernels.rows import wire
from ray_canal.model.arrays import Bytes, Int32s, Int64s

_FIRST_BYTES = 1 << 12


@dataclass(frozen=True, slots=True)
class DiffTexts:
    """Texts of one table's diffs: `{"column": [diffs], …}` for each row, valid where the bit is
    set."""

    data: Bytes
    offsets: Int32s
    bits: Bytes


def diff_texts(
    source: Bytes, lines: Int64s, names: Sequence[str], rows: int, dest: Int64s, deferred: Int64s
) -> DiffTexts | tuple[int, int]:
    """The texts of a table whose JSON columns are `lines` of the plan, called `names`; or an error
    code of kernels/rows/wire.py and the row that it is about."""
    keys = [json.dumps(name, ensure_ascii=False).encode() + b": " for name in names]
    ends = np.cumsum([len(key) for key in keys])
    prefixes = np.frombuffer(b"".join(keys), np.uint8)
    notes = dest[lines, wire.DEST_FIELDS + wire.DEFERRED]
    room = _FIRST_BYTES
    while True:
        data, offsets = np.empty(room, np.uint8), np.zeros(rows + 1, np.int32)
        bits = np.zeros((rows + 7) // 8, np.uint8)
        used, row = write_diffs(source, notes, deferred, prefixes, ends, data, offsets, bits)
        if used >= 0:
            return DiffTexts(data[:used], offsets, bits)
        if used != wire.JSON_SPACE:
            return used, row
        room *= 4


def append(arena: Bytes, texts: Sequence[DiffTexts]) -> tuple[Bytes, list[ColumnLayout]]:
    """Return the arena with the texts after it, and their places."""
    parts: list[Bytes] = [arena]
    size = arena.size
    layouts = []
    for text in texts:
        places: list[int] = []
        for region in (text.bits, text.offsets.view(np.uint8), text.data):
            places.append(size)
            padding = np.zeros(-region.size % codes.ALIGNMENT_BYTES, np.uint8)
            parts += [region, padding]
            size += region.size + padding.size
        rows = text.offsets.size - 1
        nulls = rows - int(np.unpackbits(text.bits).sum())
        bits, values, data = places
        layouts.append(ColumnLayout(codes.TEXT, bits, values, data, text.data.size, nulls))
    return np.concatenate(parts), layouts
