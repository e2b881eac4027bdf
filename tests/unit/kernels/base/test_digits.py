"""Integers' digits against Python's own."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ray_canal.kernels.base.digits import (
    DIGITS_ROOM,
    digits_back,
    integer_back,
    pair_back,
    put_digits,
    put_words,
    unsigned_back,
)

END = DIGITS_ROOM + 8
EDGES = [edge for k in range(20) for edge in (10**k - 1, 10**k)]
NUMBERS = st.sampled_from(EDGES) | st.integers(0, 64).flatmap(lambda n: st.integers(0, 2**n - 1))


def written(start: int, room: np.ndarray) -> str:
    return bytes(room[start:END]).decode()


@settings(max_examples=2000, deadline=None)
@given(NUMBERS)
def test_a_number_in_all_forms(number: int) -> None:
    room = np.zeros(2 * END, np.uint8)
    bits = np.uint64(number).astype(np.int64)
    assert written(unsigned_back(bits, room, END), room) == str(number)
    end = put_digits(np.uint64(number), room, 3)
    assert bytes(room[3:end]).decode() == str(number)
    end = put_words(np.uint64(number), room, 3)
    assert bytes(room[3:end]).decode() == str(number)
    small = np.int64(number >> 1)
    assert written(integer_back(small, room, END), room) == str(small)
    assert written(integer_back(~small, room, END), room) == str(~small)
    assert written(digits_back(small, 1, room, END), room) == str(small)
    for count in (6, 16, 24, 25, 30):
        assert written(digits_back(small, count, room, END), room) == f"{small:0{count}d}"


def test_forwards_writes_not_a_byte_more() -> None:
    for number in EDGES:
        room = np.full(40, 7, np.uint8)
        end = put_digits(np.uint64(number), room, 5)
        assert set(room[:5]) == set(room[end:]) == {7}
        assert put_words(np.uint64(number), room, 5) == end
        assert set(room[:5]) == set(room[end + 7 :]) == {7}


def test_pairs() -> None:
    room = np.zeros(END, np.uint8)
    assert [written(pair_back(k, room, END), room) for k in range(100)] == [
        f"{k:02d}" for k in range(100)
    ]
