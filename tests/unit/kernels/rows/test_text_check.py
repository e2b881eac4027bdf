"""A broken value is found on either side of any table, and only in text that is copied."""

from __future__ import annotations

import numpy as np
import pytest

from ray_canal.kernels.base import codes
from ray_canal.kernels.rows import rows as r
from ray_canal.kernels.rows import wire as w
from ray_canal.kernels.rows.text_check import has_broken_column, is_copied_text

GOOD, BROKEN = "größe".encode(), b"gr\xf6\xdfe"


def found(before: bytes, after: bytes, *, code: int = codes.TEXT, charset: int = 0) -> bool:
    """Whether a table of one row and one column, behind one of other columns, is broken."""
    offsets = np.array([0, len(before), 0, len(after)], np.int32).tobytes()
    arena = np.frombuffer(offsets + before + after, np.uint8)
    plan = np.zeros((2, w.PLAN_FIELDS), np.int64)
    plan[1, [w.WIRE, w.CODE, w.CHARSET]] = w.READ_COPY, code, charset
    dest = np.zeros((2, w.COLUMN_DEST), np.int64)
    for side, (values, data, used) in enumerate(
        [(0, 16, len(before)), (8, 16 + len(before), len(after))]
    ):
        place = dest[1, side * w.DEST_FIELDS :]
        place[[w.VALUES, w.DATA, w.USED]] = values, data, used
    shape = np.zeros((2, r.S_ROW_EVENT + 3), np.int64)
    shape[:, r.S_FIRST], shape[:, r.S_COLUMNS] = (0, 1), 1
    shape[:, [r.S_ROWS, r.S_BEFORE, r.S_AFTER]] = 1
    return bool(has_broken_column(plan, shape, dest, arena))


@pytest.mark.parametrize(
    ("before", "after", "broken"),
    [(GOOD, GOOD, False), (BROKEN, GOOD, True), (GOOD, BROKEN, True), (b"", b"plain", False)],
)
def test_both_images_are_checked(before: bytes, after: bytes, broken: bool) -> None:
    assert found(before, after) is broken


def test_what_is_transcoded_or_no_text_is_not_looked_at() -> None:
    assert not found(BROKEN, BROKEN, code=codes.BYTES)
    assert not found(BROKEN, BROKEN, charset=7)
    assert is_copied_text(w.READ_INFLATED, codes.TEXT, 0)
    assert not is_copied_text(w.READ_TRANSCODED, codes.TEXT, 0)
