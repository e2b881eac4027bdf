"""Where the values of row images lie: images are made value by value, and looked for by kernels."""

from __future__ import annotations

import random
from typing import NamedTuple

import numpy as np
import pytest

from ray_canal.binlog.plan import DecodePlan, note_runs
from ray_canal.kernels.rows import fill, rows, wire
from ray_canal.kernels.rows.arrays import ColumnArrays, MeasureArrays
from ray_canal.types.charset_tables import tables

_ID_BYTES = 6
_TAILS = (0, 7, 8, 100)  # bytes behind the event; the last images of a chunk have few


class Made(NamedTuple):
    """An event of version 1 that inserts into a table of made-up columns."""

    plan: DecodePlan
    body: bytes
    places: list[list[int]]  # by row and column; -1: NULL, or not in the image
    string_bytes: list[int]  # by column
    row_ends: list[int]  # and where the first row begins


def made(rng: random.Random, whole: bool) -> Made:
    count = rng.randrange(1, 200)
    fixed_share = rng.choice((0.3, 0.97, 1.0))
    plan = np.zeros((count, wire.PLAN_FIELDS), np.int64)
    for line in plan:
        fixed = rng.random() < fixed_share
        line[wire.SIZE] = rng.randrange(1, 17) if fixed else -rng.randrange(1, 5)
        line[wire.WIRE] = wire.READ_64 if fixed else wire.READ_COPY
    note_runs(plan)
    present = [whole or rng.random() < 0.7 for _ in range(count)]
    present[0] = True
    head = bytes(_ID_BYTES + 2) + (
        bytes([count]) if count <= 250 else bytes([252, *count.to_bytes(2, "little")])
    )
    body = head + _bits(present)
    places, string_bytes, row_ends = [], [0] * count, [len(body)]
    nulls_share = rng.choice((0.0, 0.1, 0.5))
    for _ in range(rng.randrange(1, 20)):
        nulls = [rng.random() < nulls_share for found in present if found]
        body += _bits(nulls)
        row, null = [], iter(nulls)
        for column, size in enumerate(plan[:, wire.SIZE].tolist()):
            if not present[column] or next(null):
                row.append(-1)
                continue
            row.append(len(body))
            length = rng.randrange(50) if size < 0 else size
            body += (length.to_bytes(-size, "little") if size < 0 else b"") + rng.randbytes(length)
            string_bytes[column] += length if size < 0 else 0
        places.append(row)
        row_ends.append(len(body))
    return Made(DecodePlan(plan, ()), body, places, string_bytes, row_ends)


def _bits(values: list[bool]) -> bytes:
    return np.packbits(values, bitorder="little").tobytes()


@pytest.mark.without_compiler
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("seed", range(25))
def test_values_are_where_they_were_put(seed: int, whole: bool) -> None:
    event = made(random.Random(seed), whole)
    plan, columns = event.plan.lines.reshape(-1), len(event.plan.lines)
    empty, arena = np.zeros(0, np.int64), np.zeros(0, np.uint8)
    for tail in _TAILS:
        source = np.frombuffer(event.body + b"\xff" * tail, np.uint8)
        code, heads, sizes = _counted(event, source, len(event.body))
        assert (code, int(heads[0, rows.ROWS])) == (0, len(event.places))
        assert sizes[:, 1].tolist() == event.string_bytes
        at = int(heads[0, rows.DATA])
        for row in event.places:
            cells = np.full(columns, -2, np.int64)
            arrays = ColumnArrays(source, plan, tables(), empty, empty, cells, arena)
            after, present = heads[0, rows.AFTER], heads[0, rows.AFTER_COLUMNS]
            at = fill._locate_image(arrays, at, after, present, columns, 0, 0)
            assert cells.tolist() == row
        assert at == len(event.body)


@pytest.mark.parametrize("whole", [True, False])
def test_an_event_that_is_cut_anywhere_is_refused_or_ends_with_a_row(whole: bool) -> None:
    for seed in range(5):
        event = made(random.Random(seed), whole)
        source = np.frombuffer(event.body + bytes(64), np.uint8)
        for end in range(len(event.body)):
            code, *_ = _counted(event, source, end)
            if code == 0:
                assert end in event.row_ends
            else:
                assert code == wire.TRUNCATED


def _counted(
    event: Made, source: np.ndarray, end: int
) -> tuple[int, np.ndarray, np.ndarray]:
    columns = len(event.plan.lines)
    events = np.zeros((1, rows.EVENT_FIELDS), np.int64)
    events[0, [rows.E_END, rows.E_VERSION, rows.E_TYPE]] = end, 1, rows.INSERT
    shape = np.zeros((1, rows.SHAPE_FIELDS), np.int64)
    shape[0, rows.S_COLUMNS] = columns
    heads = np.zeros((1, rows.HEAD_FIELDS), np.int64)
    sizes = np.zeros((columns, 2), np.int64)
    arrays = MeasureArrays(source, event.plan.lines.reshape(-1), tables(), sizes.reshape(-1), 2)
    code, _ = rows.count_rows(tuple(arrays), events, _ID_BYTES, shape, heads)
    return int(code), heads, sizes
