"""The process that has the log's part on disk is killed, or stands still for a while."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import ray_canal as canal
from ray_canal.limits import chunks_ahead
from ray_canal.log.ring import SLOT_BYTES_MIN
from tests.integration.test_main_job import deployment
from tests.integration.test_subscribers import ROWS, SMALL_LOG, filled, ids, log_of
from tests.processes import SPILLER, running, send, stopped, wait_for
from tests.servers import Server

CHUNK_BYTES = 128 << 10


def needs_no_disk(destination: str) -> bool:
    """Whether its upstream goes on without the disk when a few small chunks come: before each
    further call of the fetcher it wants room for what is under way."""
    log = log_of(destination)
    free_bytes = log["capacity"] * (1 - log["fill"])
    return bool(free_bytes >= chunks_ahead(0) * CHUNK_BYTES + 4 * SLOT_BYTES_MIN)


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_subscriber_whose_part_is_on_disk_misses_nothing(
    how: str, mysql97: Server, local_ray: None, tmp_path: Path
) -> None:
    name = f"spiller_{how}"
    filled(mysql97, name)
    others = set(running(SPILLER))
    config = deployment(
        mysql97, name, tmp_path / "meta.db", store=SMALL_LOG, chunk_bytes=CHUNK_BYTES
    )
    canal.start(config)
    try:
        with canal.connect(name, 1) as fast, canal.connect(name, 2) as slow:
            fast.subscribe(rf"{name}\.t")
            slow.subscribe(rf"{name}\.t", policy="spill")
            filled(mysql97, name, *((1 + 1000 * k, 1000) for k in range(8)))
            assert ids(fast, ROWS) == list(range(1, ROWS + 1))
            assert log_of(name)["bytes_on_disk"] > 500_000
            (spiller,) = set(running(SPILLER)) - others
            if how == "killed":
                send(spiller, signal.SIGKILL)
                wait_for(lambda: spiller not in running(SPILLER), 180, "it is gone")
                assert ids(slow, ROWS, batch_size=100) == list(range(1, ROWS + 1))
                assert canal.status(name)[name]["generations"] == 2
                wait_for(
                    lambda: len(list((tmp_path / "meta.spill" / name).iterdir())) <= 1,
                    60,
                    "the old folder is gone",
                )
            else:
                last = ROWS
                while not needs_no_disk(name):  # else a spill may be under way
                    last += 1
                    mysql97.execute(f"insert into {name}.t values ({last}, '')")
                    assert ids(fast, 1) == [last]
                with stopped(spiller), ThreadPoolExecutor(1) as aside:
                    reading = aside.submit(ids, slow, last, batch_size=100)
                    mysql97.execute(f"insert into {name}.t values ({last + 1}, '')")
                    assert ids(fast, 1) == [last + 1]  # others are not held up
                    assert not reading.done()
                    send(spiller, signal.SIGCONT)
                    assert reading.result()[:last] == list(range(1, last + 1))
    finally:
        canal.stop(name)
