"""SET bit masks as members, to the 64th one, compiled and as plain Python."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from ray_canal.kernels.render import envelope as e

pytestmark = pytest.mark.without_compiler

MASKS = [1, 1 << 63, 1 << 63 | 5, 1 << 62 | 8, (1 << 64) - 1, 0]
LABELS = [f"m{k}" * (1 + k % 20) for k in range(64)]


def test_members_of_masks() -> None:
    rows = len(MASKS)
    arena = np.zeros(64 + 8 * rows, np.uint8)
    arena[0] = 0b01_1111  # the last row is NULL
    arena[64:].view(np.uint64)[:] = MASKS
    label_ends = np.cumsum([len(label) for label in LABELS], dtype=np.int64)
    texts = np.frombuffer("".join(LABELS).encode() + bytes(e.LABEL_SLACK_BYTES), np.uint8)
    count, size, bad_row = e.count_members(arena, 0, 64, rows, label_ends)
    wanted = [[k for k in range(64) if mask >> k & 1] for mask in MASKS]
    assert (count, bad_row) == (sum(map(len, wanted)), -1)
    ends, offsets = np.zeros(rows + 1, np.int32), np.zeros(count + 1, np.int32)
    out = np.zeros(size + e.LABEL_SLACK_BYTES, np.uint8)
    e.list_members(arena, 0, 64, label_ends, texts, ends, offsets, out)
    text, at = out[:size].tobytes().decode(), offsets.tolist()
    members = [text[start:end] for start, end in pairwise(at)]
    lists = [members[start:end] for start, end in pairwise(ends)]
    assert lists == [[LABELS[k] for k in row] for row in wanted]
    assert e.count_members(arena, 0, 64, rows, label_ends[:63])[2] == 1
