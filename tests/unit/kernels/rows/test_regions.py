"""Regions of a chunk's columns: aligned, one behind the other, none for a side without rows."""

from __future__ import annotations

import random

import numpy as np

from ray_canal.kernels.base import codes
from ray_canal.kernels.rows import rows as r
from ray_canal.kernels.rows import wire as w
from ray_canal.kernels.rows.regions import place_tables

FIXED = [code for code in codes.WIDTH_BYTES if code < codes.FIRST_VARIABLE]
COLUMNS = 6


def test_no_region_reaches_into_another() -> None:
    rng = random.Random(4)
    for _ in range(50):
        tables = rng.randrange(1, 4)
        lines = tables * COLUMNS
        plan = np.zeros((lines, w.PLAN_FIELDS), np.int64)
        sizes = np.zeros((lines, 2), np.int64)
        plan[:, w.WIRE], plan[:, w.CODE] = w.READ_64, rng.choices(FIXED, k=lines)
        for line in rng.sample(range(lines), lines // 2):
            plan[line, w.WIRE], plan[line, w.CODE] = w.READ_COPY, codes.TEXT
            sizes[line] = rng.randrange(300), rng.randrange(300)
        shape = np.zeros((tables, r.S_ROW_EVENT + 3), np.int64)
        shape[:, r.S_FIRST], shape[:, r.S_COLUMNS] = np.arange(tables) * COLUMNS, COLUMNS
        shape[:, r.S_ROWS] = rng.choices(range(1, 100), k=tables)
        shape[:, r.S_BEFORE] = shape[:, r.S_ROWS] * rng.randrange(2)
        shape[:, r.S_AFTER] = shape[:, r.S_ROWS]
        dest = np.zeros((lines, w.COLUMN_DEST), np.int64)
        end, room = place_tables(plan, shape, sizes, dest, 64)
        taken = [(int(one[r.S_ROW_EVENT]), 4 * int(one[r.S_ROWS])) for one in shape]
        for line in range(lines):
            count = int(shape[line // COLUMNS, r.S_ROWS])
            for side in range(2):
                place = dest[line, side * w.DEST_FIELDS :]
                if not shape[line // COLUMNS, r.S_BEFORE + side]:
                    assert not place[: w.DEST_FIELDS].any()
                    continue
                code = int(plan[line, w.CODE])
                text = code == codes.TEXT
                width = codes.WIDTH_BYTES[code] * (count + text)
                taken += [(int(place[w.VALIDITY]), (count + 7) // 8), (int(place[w.VALUES]), width)]
                if text:
                    assert place[w.DATA_END] - place[w.DATA] == sizes[line, side]
                    taken.append((int(place[w.DATA]), int(sizes[line, side])))
        last = 64
        for at, size in sorted(taken):
            assert at % codes.ALIGNMENT_BYTES == 0
            assert at >= last
            last = at + size
        assert end >= last
        assert room == 0
