"""Texts of values against Python's own; Canal's conventions are in tests/golden."""

from __future__ import annotations

import datetime as dt
import random

import numpy as np

from ray_canal.kernels.render.entry_values import date_back, datetime_back, latin1_back, time_back

ROOM = 64
EPOCH = dt.date(1970, 1, 1).toordinal()
DAY_US = 86400 * 1_000_000


def written(start: int, room: np.ndarray) -> str:
    return bytes(room[start:]).decode()


def expected(days: int) -> str:
    """ISO dates from the year 0 on, which Python does not have: a leap year, like the year 4."""
    if days + EPOCH >= 1:
        return dt.date.fromordinal(days + EPOCH).isoformat()
    return "0000" + dt.date.fromordinal(days + EPOCH + 1461).isoformat()[4:]


def test_every_day_from_the_year_0() -> None:
    room = np.zeros(ROOM, np.uint8)
    first, last = -719_528, 2_932_896  # 0000-01-01, 9999-12-31
    rng = random.Random(1)
    days = {*range(first, first + 1500), *range(-800, 800), last}
    days |= {rng.randrange(first, last) for _ in range(20_000)}
    for day in days:
        assert written(date_back(np.int64(day), room, ROOM), room) == expected(day), day
    assert written(date_back(np.int64(first), room, ROOM), room) == "0000-01-01"
    slot = np.int64(first * DAY_US + 1)
    assert written(datetime_back(slot, 6, room, ROOM), room) == "0000-01-01 00:00:00.000001"


def test_times() -> None:
    room = np.zeros(ROOM, np.uint8)
    for seconds in (0, 59, 60, 3599, 3600, 35_999, 359_999, 360_000, 838 * 3600 + 59 * 60 + 59):
        text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
        slot = np.int64(seconds * 1_000_000)
        assert written(time_back(slot, 0, room, ROOM), room) == text
        if seconds:
            assert written(time_back(-slot, 3, room, ROOM), room) == f"-{text}.000"


def test_bytes_as_latin1() -> None:
    source = np.arange(256, dtype=np.uint8)
    room = np.zeros(520, np.uint8)
    start = latin1_back(source, 0, 256, room, 520)
    assert bytes(room[start:]) == bytes(range(256)).decode("latin-1").encode()
