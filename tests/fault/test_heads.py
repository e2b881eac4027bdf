"""A standby head takes over by itself, and a head that slept through that gives way."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.fault.heads import Head
from tests.fault.standby_run import NAME, PATIENCE_S, become_standby, config_of, judge, meta_in
from tests.fault.test_fencing import insert, table
from tests.servers import Server


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_standby_takes_over_from_a_head_that_dies_or_sleeps(
    mysql97: Server, tmp_path: Path
) -> None:
    """P2: the one that was active dies: the other one goes on at the cursors within seconds. It
    sleeps: the same, and the first one ends its destinations when it wakes, and waits."""
    table(mysql97, NAME)
    config = config_of(mysql97, meta_in(mysql97), tmp_path)
    one, two = heads = [Head(tmp_path, number, config, NAME) for number in (1, 2)]
    next_id = 0

    def rows_by(head: Head, count: int) -> float:
        """Write rows, one a time, until this head has had so many more; seconds of that."""
        nonlocal next_id
        before, began = len(head.read()), time.monotonic()
        while len(head.read()) < before + count:
            assert time.monotonic() < began + PATIENCE_S
            next_id += 1
            insert(mysql97, NAME, next_id)
            time.sleep(0.1)
        return time.monotonic() - began

    try:
        one.start()
        rows_by(one, 3)
        become_standby(two)
        rows_by(one, 3)
        assert not two.read()

        one.kill()
        died_s = rows_by(two, 1)
        rows_by(two, 3)

        become_standby(one)
        two.signal(signal.SIGSTOP)
        try:
            slept_s = rows_by(one, 1)
        finally:
            two.signal(signal.SIGCONT)
        heard = len(two.read())
        rows_by(one, 20)
        assert len(two.read()) <= heard + 1  # one that it had acknowledged before it slept
        print(f"took over after a death in {died_s:.1f} s, after a sleep in {slept_s:.1f} s")
        judge(heads, next_id)
    finally:
        for head in heads:
            head.kill()
