"""A standby head takes over by itself, and a head that slept through that gives way."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.fault.heads import Head
from tests.fault.test_fencing import insert, table
from tests.processes import wait_for
from tests.servers import Server

PATIENCE_S = 180.0


def config_of(server: Server, folder: Path) -> Path:
    path = folder / "canal.toml"
    path.write_text(
        "[meta]\n"
        f'backend = "mysql"\naddress = "{server.address}"\nusername = "root"\n'
        'database = "meta_heads"\n'
        "[ray]\nstandby = true\nlease_s = 2.0\ndestinations_per_process = 1\n"
        '[[instance]]\ndestination = "heads"\n'
        f'[instance.source]\naddress = "{server.address}"\nusername = "root"\n'
        'password = ""\nstart = "earliest"\n'
        "[instance.filter]\ntables = 'heads\\.t'\n"
    )
    return path


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_standby_takes_over_from_a_head_that_dies_or_sleeps(
    mysql97: Server, tmp_path: Path
) -> None:
    """P2: the one that was active dies: the other one goes on at the cursors within seconds. It
    sleeps: the same, and the first one ends its destinations when it wakes, and waits."""
    table(mysql97, "heads")
    config = config_of(mysql97, tmp_path)
    one, two = (Head(tmp_path, number, config, "heads") for number in (1, 2))
    next_id = 0

    def rows_by(head: Head, count: int) -> float:
        """Write rows, one a time, until this head has had so many more; seconds of that."""
        nonlocal next_id
        before, began = len(head.read()), time.monotonic()
        while len(head.read()) < before + count:
            assert time.monotonic() < began + PATIENCE_S
            next_id += 1
            insert(mysql97, "heads", next_id)
            time.sleep(0.1)
        return time.monotonic() - began

    try:
        one.start()
        rows_by(one, 3)
        two.start()
        wait_for(lambda: two.says("waits as a standby"), PATIENCE_S, "the second one waits")
        rows_by(one, 3)
        assert not two.read()

        one.kill()
        died_s = rows_by(two, 1)
        rows_by(two, 3)

        one.start()
        wait_for(lambda: one.says("waits as a standby"), PATIENCE_S, "the first one waits now")
        two.signal(signal.SIGSTOP)
        try:
            slept_s = rows_by(one, 1)
        finally:
            two.signal(signal.SIGCONT)
        heard = len(two.read())
        rows_by(one, 20)
        assert len(two.read()) <= heard + 1  # one that it had acknowledged before it slept
        print(f"took over after a death in {died_s:.1f} s, after a sleep in {slept_s:.1f} s")
        wait_for(
            lambda: (
                {row["id"] for head in (one, two) for row in head.read()}
                == set(range(1, next_id + 1))
            ),
            PATIENCE_S,
            "every row has arrived",
        )
        for head in (one, two):
            ids = [row["id"] for row in head.read()]
            assert ids == sorted(ids)
    finally:
        for head in (one, two):
            head.kill()
