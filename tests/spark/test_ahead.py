"""Messages fetched ahead: order, limits, errors, what is left at the end; without Spark."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from ray_canal.spark.ahead import Ahead, Wanted
from tests.spark.conftest import Log, inserts


class Made:
    def __init__(self, message: Any) -> None:
        self.id = message.id
        self.released = 0

    def release(self) -> None:
        self.released += 1


class Maker:
    """Keeps what it has written."""

    def __init__(self) -> None:
        self.made: list[Made] = []

    def __call__(self, message: Any) -> Made:
        self.made.append(Made(message))
        return self.made[-1]


def log_of(count: int, **more: Any) -> Log:
    return Log([[inserts(n, 1)] for n in range(count)], **more)


def wait_until(condition: Any) -> None:
    pause = threading.Event()
    for _ in range(3000):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("it did not happen")


@pytest.mark.parametrize("timeout", [1.0, 0.0, None])
def test_messages_come_in_order_and_then_the_end(timeout: float | None) -> None:
    ahead = Ahead(log_of(4), Wanted(100, timeout), Maker())
    found = [ahead.next() for _ in range(5)]
    assert [item[0].id for item in found if item] == [1, 2, 3, 4, -1]
    assert [item[1].id for item in found if item and item[1]] == [1, 2, 3, 4]
    assert found[4] is not None
    assert found[4][0].finished
    ahead.close()
    assert not ahead.has_more


def test_what_is_ahead_is_bounded_and_released() -> None:
    log, maker = log_of(9), Maker()
    ahead = Ahead(log, Wanted(100, 1.0), maker)
    assert ahead.next() is not None
    wait_until(lambda: len(maker.made) == 3)
    ahead.close()
    assert log.given == 3  # one was taken, one was ready, one was being written
    assert [made.released for made in maker.made] == [0, 1, 1]
    assert ahead.has_more


def test_no_more_messages_than_are_wanted() -> None:
    log = log_of(9)
    ahead = Ahead(log, Wanted(100, 1.0, messages=2), Maker())
    assert [item[0].id for item in (ahead.next(), ahead.next()) if item] == [1, 2]
    ahead.close()
    assert log.given == 2
    assert not ahead.has_more


def test_errors_come_after_what_was_before_them() -> None:
    def fail_at_two(message: Any) -> Made:
        if message.id == 2:
            raise OSError("no memory")
        return Made(message)

    ahead = Ahead(log_of(3), Wanted(100, 1.0), fail_at_two)
    first = ahead.next()
    assert first is not None
    assert first[0].id == 1
    for _ in range(2):
        with pytest.raises(OSError, match="no memory"):
            ahead.next()
    ahead.close()
    assert ahead.has_more


def test_nothing_within_a_timeout() -> None:
    class Slow(Log):
        go = threading.Event()

        def get_without_ack(self, batch_size: int = 1000, timeout: float | None = None) -> Any:
            self.go.wait(30)
            return super().get_without_ack(batch_size, timeout)

    slow = Slow([[inserts(0, 1)]])
    ahead = Ahead(slow, Wanted(100, 1.0), Maker())
    assert ahead.next(timeout=0.01) is None
    slow.go.set()
    found = ahead.next(timeout=30)
    assert found is not None
    assert found[0].id == 1
    ahead.close()


def test_several_may_be_ready_and_empty_messages_wait_for_none() -> None:
    log, maker = log_of(3, endless=True), Maker()
    ahead = Ahead(log, Wanted(100, 0.01, ahead=8), maker)
    wait_until(lambda: len(maker.made) == 3)
    found = [ahead.next(1.0) for _ in range(3)]
    assert [item[0].id for item in found if item] == [1, 2, 3]
    assert log.acked == 0
    log.contents.append([inserts(9, 1)])
    empty = 0
    while (item := ahead.next(1.0)) is not None and item[0].id == -1:
        empty += 1
    assert item is not None
    assert item[0].id == 4
    assert empty < 5
    ahead.close()


def test_behind_a_small_message_one_is_fetched_when_it_is_asked_for() -> None:
    """All that is there then; of what is not there yet the first, and what has come behind it."""

    class Asked(Log):
        gets: list[tuple[int, float | None]]
        comes = 9

        def get_without_ack(self, batch_size: int = 1000, timeout: float | None = None) -> Any:
            self.gets.append((batch_size, timeout))
            if batch_size == 1 and self.comes:
                self.comes -= 1
                self.contents += [[inserts(8, 1)], [inserts(9, 1)]] if not self.comes else []
            return super().get_without_ack(batch_size, timeout)

    log = Asked([[inserts(n, 1)] for n in range(2)], endless=True)
    log.gets = []
    ahead = Ahead(log, Wanted(100, 0.01, ahead=8), Maker(), lambda made: False)
    for number in (1, 2):
        found = ahead.next(30)
        assert found is not None
        assert found[0].id == number
        assert ahead.next(0) is None
        threading.Event().wait(0.05)
        assert log.given == number
    assert log.gets == [(100, 0.01), (100, None)]
    ids: list[int] = []
    while len(ids) < 2:
        found = ahead.next(30)
        assert found is not None
        ids += [found[0].id] if found[1] else []
    assert ids == [3, 4]
    assert log.gets[-3:] == [(100, None), (1, 0.01), (100, None)]
    ahead.close()
    assert not ahead.has_more
