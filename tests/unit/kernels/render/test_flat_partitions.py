"""Rows split by the partition that their key chooses, against the same in Python."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ray_canal.binlog.chunk import EVENT
from ray_canal.kernels.base import codes
from ray_canal.kernels.render import flat_partitions as p
from ray_canal.kernels.render import flat_rows as f
from ray_canal.kernels.render.arrays import RowArrays
from ray_canal.kernels.render.entry_columns import C_CODE, C_VALIDITY, C_VALUES
from ray_canal.kernels.render.entry_values import LIMBS_MAX, VALUE_BYTES_MAX

pytestmark = pytest.mark.without_compiler

_AFTER = 3
_FIXED = 7


def _java_partition(value: int, seed: int, partitions: int) -> int:
    found = 0
    for letter in str(value):
        found = (31 * found + ord(letter)) & 0xFFFFFFFF
    found ^= seed
    return abs(found - (1 << 32) if found >> 31 else found) % partitions


def _arrays(events: np.ndarray, keys: list[int]) -> RowArrays:
    """One table of one I32 column, all of whose values are valid."""
    values = np.array(keys, "<i4").tobytes()
    bits = b"\xff" * 64
    columns = np.zeros((1, f.FLAT_FIELDS), np.int64)
    columns[0, [C_CODE, f.F_HASHED]] = codes.I32, 1
    columns[0, [C_VALIDITY + _AFTER, C_VALUES + _AFTER]] = 0, len(bits)
    tables = np.zeros((1, f.FT_FIELDS), np.int64)
    tables[0, f.FT_COUNT] = 1
    return RowArrays(
        events=events,
        tables=tables,
        columns=columns,
        widths=np.full(64, 4, np.int64),
        blobs=np.zeros(0, np.uint8),
        arena=np.frombuffer(bits + values, np.uint8),
        transitions=np.array([-(1 << 62)]),
        offsets=np.array([0]),
        limbs=np.zeros(LIMBS_MAX, np.int64),
        scratch=np.zeros(VALUE_BYTES_MAX, np.uint8),
    )


@pytest.mark.parametrize("seed", range(10))
def test_each_row_goes_where_its_key_says(seed: int) -> None:
    draw = random.Random(seed)
    partitions, start = draw.randint(1, 5), draw.getrandbits(32)
    sizes = [draw.randrange(6) for _ in range(8)]
    keys = [draw.randint(-(1 << 31), (1 << 31) - 1) for _ in range(sum(sizes))]
    events = np.zeros(len(sizes) + 1, EVENT)
    events["table"][-1], events["present"] = -1, -1  # the last one is a statement
    events["event_type"] = 1
    events["rows"][:-1] = sizes
    events["row"][:-1] = np.cumsum([0, *sizes[:-1]])
    routes = np.array([[p.BY_ROW, partitions, start]], np.int64)
    counts, places = np.zeros(partitions, np.int64), np.zeros(8, np.int64)
    room = np.zeros(VALUE_BYTES_MAX, np.uint8), counts, places
    order, lines = np.zeros(len(keys) + 1, np.int32), np.zeros((len(keys) + 9, 4), np.int64)
    chosen = np.arange(len(events))
    fields = tuple(_arrays(events, keys))
    count = p.split_by_partition(chosen, False, _FIXED, fields, routes, room, order, lines)
    found = []
    for number, first, rows, partition in lines[:count].tolist():
        low = int(events["row"][number])
        mine = range(low, low + rows) if first == p.WHOLE else order[first : first + rows].tolist()
        found.append((number, list(mine), partition))
    wanted: list[tuple[int, list[int], int]] = []
    for number, (low, size) in enumerate(events[["row", "rows"]].tolist()):
        if number == len(sizes) or not size:
            wanted.append((number, list(range(low, low + size)), _FIXED))
            continue
        goes = [_java_partition(keys[row], start, partitions) for row in range(low, low + size)]
        for partition in sorted(set(goes)):
            rows_of = [low + k for k, place in enumerate(goes) if place == partition]
            wanted.append((number, rows_of, partition))
    assert found == wanted
    assert not counts.any()
