"""Who has not called for how long, by a clock that nobody sets."""

from __future__ import annotations

import contextlib

from ray_canal.client import ephemeral
from ray_canal.destination.attendance import TICK_S, Attendance
from ray_canal.model.subscription import EPHEMERAL_S


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def ticks(attendance: Attendance, clock: Clock, count: int, *, serves: bool = True) -> None:
    for _ in range(count):
        clock.now += TICK_S
        attendance.tick([1, 2], serves=serves)


def test_time_without_a_call_is_counted_while_the_destination_serves() -> None:
    clock = Clock()
    attendance = Attendance(clock)
    attendance.came(1)
    ticks(attendance, clock, 6)
    assert attendance.idle_s(1) == 5 * TICK_S
    assert attendance.idle_s(2) == 6 * TICK_S
    assert attendance.since_call_s(1) == 6 * TICK_S
    assert attendance.since_call_s(2) is None
    ticks(attendance, clock, 100, serves=False)
    assert attendance.idle_s(2) == 6 * TICK_S
    attendance.came(2)
    ticks(attendance, clock, 1)
    assert (attendance.idle_s(1), attendance.idle_s(2)) == (6 * TICK_S, 0.0)


def test_a_machine_that_slept_makes_nobody_look_gone() -> None:
    """B5: three days in one tick are no three days without a call."""
    clock = Clock()
    attendance = Attendance(clock)
    clock.now += 3 * 86400
    attendance.tick([1], serves=True)
    assert attendance.idle_s(1) == 3 * TICK_S


def test_one_pause_of_the_store_ends_no_ephemeral_subscription() -> None:
    """What a guest says meanwhile is heard only behind the tick; three of them may be lost, too."""
    clock = Clock()
    attendance = Attendance(clock)
    clock.now += 3600
    attendance.tick([1], serves=True)
    assert attendance.idle_s(1) < EPHEMERAL_S
    assert 4 * ephemeral._EVERY_S < EPHEMERAL_S


def test_who_waits_is_there() -> None:
    clock = Clock()
    attendance = Attendance(clock)
    with attendance.waiting(1):
        with contextlib.suppress(ValueError), attendance.waiting(1):
            raise ValueError("one of two ends")
        ticks(attendance, clock, 50)
        assert (attendance.idle_s(1), attendance.since_call_s(1)) == (0.0, 0.0)
    ticks(attendance, clock, 2)
    assert attendance.idle_s(1) == TICK_S


def test_what_was_written_goes_on() -> None:
    clock = Clock()
    attendance = Attendance(clock)
    attendance.remember(1, 500)
    ticks(attendance, clock, 1)
    attendance.remember(1, 3)
    assert attendance.idle_s(1) == 500 + TICK_S
    attendance.tick([2], serves=True)
    assert attendance.idle_s(1) == 0


def test_who_is_no_subscriber_is_forgotten() -> None:
    clock = Clock()
    attendance = Attendance(clock)
    for client_id in range(1, 100):
        attendance.came(client_id)
    with attendance.waiting(50):
        ticks(attendance, clock, 1)
        assert attendance.since_call_s(99) is not None  # it may be about to subscribe
        ticks(attendance, clock, 2)
        known = {i for i in range(1, 100) if attendance.since_call_s(i) is not None}
    assert known == {1, 2, 50}
