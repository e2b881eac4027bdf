"""Which rows' images lack which columns, against the bits of their events."""

from __future__ import annotations

import random

import numpy as np

from ray_canal.binlog.chunk import EVENT
from ray_canal.kernels.rows.presence import row_presence

INSERT, UPDATE, DELETE = 1, 2, 3
COLUMNS, BITMAP = 11, 2


def test_bits_are_those_of_the_rows_events() -> None:
    rng = random.Random(2)
    for side in (0, 1):
        count = 40
        events = np.zeros(count, EVENT)
        events["event_type"] = rng.choices((INSERT, UPDATE, DELETE), k=count)
        arena = np.frombuffer(rng.randbytes(count * 2 * BITMAP), np.uint8)
        whole = [rng.random() < 0.3 for _ in range(count)]  # every column is there
        events["present"] = [-1 if whole[i] else i * 2 * BITMAP for i in range(count)]
        owners = np.array(sorted(rng.choices(range(count), k=100)), np.int32)
        shown = np.array(sorted(rng.sample(range(COLUMNS), 5)), np.int64)
        regions = np.arange(1 + len(shown), dtype=np.int64) * 64
        out = np.zeros(64 * len(regions), np.uint8)
        lacking_none = row_presence(events, owners, arena, side, BITMAP, shown, out, regions)
        bits = np.unpackbits(out.reshape(-1, 64), axis=1, bitorder="little")[:, : len(owners)]
        wanted = np.zeros_like(bits)
        for row, owner in enumerate(owners.tolist()):
            event = events[owner]
            no_image = event["event_type"] == (INSERT, DELETE)[side]
            if whole[owner] or no_image:
                continue
            at = int(event["present"]) + side * BITMAP
            has = np.unpackbits(arena[at : at + BITMAP], bitorder="little")[shown]
            wanted[0, row] = not has.all()
            wanted[1:, row] = has
        assert (bits == wanted).all()
        assert lacking_none == len(owners) - int(wanted[0].sum())
