"""Averages of loads, and who may be moved for them."""

from __future__ import annotations

import pytest

from ray_canal.actors.control.loads import Loads


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_counts_little_and_what_lasts_counts_in_full() -> None:
    clock = Clock()
    loads = Loads(clock)
    loads.note({"a": (100.0, 10.0)})
    assert loads.of("a").bytes_per_s == 100.0
    clock.now += 4
    loads.note({"a": (10_100.0, 10.0)})
    assert 100 < loads.of("a").bytes_per_s < 1000
    assert loads.of("a").memory_bytes == pytest.approx(10.0)
    for _ in range(100):
        clock.now += 4
        loads.note({"a": (10_100.0, 20.0)})
    assert loads.of("a").bytes_per_s == pytest.approx(10_100.0, rel=0.01)
    assert loads.of("a").memory_bytes == pytest.approx(20.0, rel=0.01)


def test_who_is_new_or_was_moved_lately_is_unsettled() -> None:
    clock = Clock()
    loads = Loads(clock)
    loads.note({"a": (1.0, 1.0)})
    assert loads.unsettled("ab") == {"a", "b"}
    clock.now += 121
    assert loads.unsettled("ab") == {"b"}
    loads.moved("a")
    assert loads.unsettled("a") == {"a"}
    assert loads.of("a").bytes_per_s == 1.0
    loads.forget("a")
    assert loads.of("a").bytes_per_s == 0.0
