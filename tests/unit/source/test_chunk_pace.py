"""When a chunk that is not full is due, on a clock of the test."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from ray_canal.source.chunk_pace import ChunkPace

LINGER_S = 0.005
FIRST_CHUNK_BYTES = 4 << 20
BULK_BYTES = FIRST_CHUNK_BYTES // 8


@dataclass
class Events:
    """What a cutter holds."""

    pending_bytes: int = 0
    is_between: bool = True


class Paced:
    """A pace, and the reading end of its pipe."""

    def __init__(self) -> None:
        self.wake_out, self._wake_in = os.pipe()
        os.set_blocking(self.wake_out, False)
        self.pace = ChunkPace(FIRST_CHUNK_BYTES, self._wake_in, self.wake_out)

    def due_ms(self, pending: Events, now_s: float) -> float:
        """Milliseconds from now on."""
        return round(1000 * (self.pace.due_s(pending, LINGER_S, now_s) - now_s), 6)

    @property
    def is_woken(self) -> bool:
        """Look whether the reader would wake up."""
        try:
            os.write(self._wake_in, os.read(self.wake_out, 1))
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        os.close(self._wake_in)
        os.close(self.wake_out)


@pytest.fixture
def paced() -> Iterator[Paced]:
    made = Paced()
    yield made
    made.close()


def test_nothing_is_due_while_nothing_is_pending(paced: Paced) -> None:
    paced.pace.hurry()
    assert paced.due_ms(Events(), 1.0) == math.inf


def test_transactions_are_due_a_linger_after_the_last_chunk(paced: Paced) -> None:
    assert paced.due_ms(Events(300), 1.0) == 0  # after a pause
    paced.pace.handed_out(1.0)
    assert paced.due_ms(Events(300), 1.001) == 4
    assert paced.due_ms(Events(600), 1.004) == 1
    paced.pace.handed_out(1.005)
    assert paced.due_ms(Events(300), 1.020) == 0


def test_a_part_of_a_transaction_waits_a_linger_for_the_rest(paced: Paced) -> None:
    part = Events(300, is_between=False)
    assert paced.due_ms(part, 1.0) == 5
    assert paced.due_ms(part, 1.003) == 2
    paced.pace.hurry()
    assert paced.due_ms(part, 1.004) == 1
    assert paced.due_ms(Events(400), 1.004) == 0  # the rest


def test_who_waits_gets_what_is_there(paced: Paced) -> None:
    paced.pace.handed_out(1.0)
    assert paced.due_ms(Events(300), 1.001) == 4
    paced.pace.hurry()
    assert paced.is_woken
    assert paced.pace.waited()
    assert not paced.is_woken
    assert paced.due_ms(Events(300), 1.002) == 0
    paced.pace.handed_out(1.002)
    assert not paced.pace.waited()
    assert paced.due_ms(Events(300), 1.003) == 4  # it has had its chunk


def test_a_wish_before_anything_comes_wakes_nobody(paced: Paced) -> None:
    paced.pace.handed_out(1.0)
    assert paced.due_ms(Events(), 1.001) == math.inf
    for _ in range(100_000):  # more than a pipe holds
        paced.pace.hurry()
    assert not paced.is_woken
    assert not paced.pace.waited()
    assert paced.due_ms(Events(300), 1.002) == 0


def test_a_stream_fills_its_chunks_though_somebody_waits(paced: Paced) -> None:
    paced.pace.handed_out(1.0)
    paced.pace.hurry()
    assert paced.due_ms(Events(BULK_BYTES), 1.001) == 5
    assert paced.pace.streams
    assert paced.due_ms(Events(3 * BULK_BYTES), 1.040) == 5
    assert paced.due_ms(Events(4 * BULK_BYTES), 1.049) == 2  # ten lingers are over
    paced.pace.handed_out(1.051)
    assert paced.due_ms(Events(300), 1.052) == 5
    assert paced.due_ms(Events(), 1.053) == 5  # is it a pause?
    paced.pace.streams = False
    assert paced.due_ms(Events(300), 1.060) == 0


def test_more_than_a_few_transactions_wait_for_more(paced: Paced) -> None:
    paced.pace.handed_out(1.0)
    paced.pace.hurry()
    assert paced.due_ms(Events(65 << 10), 1.001) == 4


def test_wishes_of_other_threads_are_all_taken_off_the_pipe(paced: Paced) -> None:
    """An interrupt's byte, which nobody takes, stays; wishes leave none."""
    end = threading.Event()

    def wish() -> None:
        while not end.is_set():
            paced.pace.hurry()

    threads = [threading.Thread(target=wish) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(2000):
        paced.pace.due_s(Events(300), LINGER_S, number)
        paced.pace.waited()
        paced.pace.handed_out(number)
    end.set()
    for thread in threads:
        thread.join()
    paced.pace.waited()
    assert not paced.is_woken
