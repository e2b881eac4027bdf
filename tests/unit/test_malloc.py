"""Freed memory stays in the process: the second round of allocations has no page faults. What is
large goes from thread to thread, and back to the kernel when nobody uses it."""

from __future__ import annotations

import random
import subprocess
import sys
import threading

import numpy as np
import pytest

from ray_canal import malloc
from ray_canal.malloc import give_up_unused, large, shortened

_MB = 1 << 20

PROGRAM = """
import resource, sys
import numpy as np
from ray_canal.malloc import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
def round_of_work():
    parts = [np.ones(1 << 20, np.uint8) for _ in range(16)]
for _ in range(3):
    round_of_work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    round_of_work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(mode: str) -> int:
    command = [sys.executable, "-c", PROGRAM, mode]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_freed_memory_is_used_again() -> None:
    assert faults("keep") < 1000 < faults("give back")


@pytest.fixture
def keeping(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(malloc, "_keeping", True)
    monkeypatch.setattr(malloc, "_kept", [])


def kept_mb() -> list[int]:
    return [len(room.pages) // _MB for room in malloc._kept]


@pytest.mark.usefixtures("keeping")
def test_large_memory_is_used_again_for_what_is_about_as_large() -> None:
    first = large(17 * _MB)
    first[:] = 7
    view = first[5 * _MB :]
    del first
    assert kept_mb() == []  # the view is of the same memory
    del view
    assert kept_mb() == [32]
    again = large(30 * _MB)
    assert kept_mb() == []
    assert again.size == 30 * _MB
    assert again.flags.writeable
    assert again[0] == 7


@pytest.mark.usefixtures("keeping")
def test_what_has_become_too_small_is_given_up() -> None:
    del_me = [large(2 * _MB), large(5 * _MB)]
    del_me.clear()
    assert sorted(kept_mb()) == [2, 8]
    larger = large(5 * _MB)
    assert kept_mb() == [2]
    largest = large(9 * _MB)
    assert kept_mb() == []
    del larger, largest
    assert sorted(kept_mb()) == [8, 16]


@pytest.mark.usefixtures("keeping")
def test_what_has_become_smaller_uses_what_larger_ones_left() -> None:
    del_me = [large(5 * _MB), large(9 * _MB), large(33 * _MB)]
    del_me.clear()
    assert sorted(kept_mb()) == [8, 16, 64]
    small = large(3 * _MB)  # the smallest that is large enough
    assert small.size == 3 * _MB
    assert sorted(kept_mb()) == [16, 64]
    smaller = large(3 * _MB)
    assert kept_mb() == [64]
    third = large(3 * _MB)  # of sixty-four megabytes far too much would be held
    assert kept_mb() == [64]
    del small, smaller, third
    assert sorted(kept_mb()) == [4, 8, 16, 64]


@pytest.mark.usefixtures("keeping")
def test_what_nobody_uses_goes_back() -> None:
    used = large(2 * _MB)
    large(4 * _MB)[:] = 1
    give_up_unused()
    assert kept_mb() == [4]  # it was used a moment ago
    give_up_unused(0.0)
    assert kept_mb() == []
    used[:] = 1


@pytest.mark.usefixtures("keeping")
def test_small_and_giant_arrays_are_as_any_other() -> None:
    for size in (0, 1, _MB - 1, 129 * _MB):
        array = large(size)
        assert array.size == size
        assert array.flags.owndata
    del array
    assert kept_mb() == []


def test_nothing_is_kept_where_that_was_not_asked_for() -> None:
    code = "from ray_canal.malloc import large; print(large(17 << 20).flags.owndata)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "True\n"


@pytest.mark.usefixtures("keeping")
def test_a_shortened_array_holds_no_more_than_it_needs() -> None:
    array = large(3 * _MB)
    array[:] = np.arange(3 * _MB) % 251
    whole = array.copy()
    half = shortened(array, 2 * _MB)
    del array
    assert (half == whole[: 2 * _MB]).all()
    assert kept_mb() == []
    few = shortened(half, 1000)
    del half
    assert (few == whole[:1000]).all()
    assert kept_mb() == [4]
    small = shortened(large(1000), 10)
    assert small.size == 10
    assert small.flags.owndata


@pytest.mark.usefixtures("keeping")
def test_no_two_threads_are_given_the_same() -> None:
    wrong = []

    def work(mark: int) -> None:
        rng = random.Random(mark)
        for _ in range(300):
            array = large(rng.randrange(_MB, 6 * _MB))
            array[::4096] = mark
            if rng.random() < 0.1:
                give_up_unused(0.0)
            wrong.append(bool((array[::4096] != mark).any()))

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wrong) == 8 * 300
    assert not any(wrong)
