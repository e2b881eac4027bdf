"""SIGKILL of the whole Ray cluster, again and again, while writers go on: nothing lost, order
kept."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.consumer import read_journal
from tests.servers import Server
from tests.workload import Replica, Workload

BURST_ROWS = 600


@pytest.fixture
def short_temp() -> Iterator[Path]:
    """Ray's socket paths must be short."""
    path = Path(tempfile.mkdtemp(prefix="rc", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def kill_everything(consumer: subprocess.Popen[bytes], ray_temp: Path) -> None:
    """SIGKILL the consumer and every process of its Ray, all at once."""
    mine = psutil.Process(consumer.pid).children(recursive=True) if consumer.poll() is None else []
    for process in psutil.process_iter(["cmdline"]):
        if any(str(ray_temp) in part for part in process.info["cmdline"] or []):
            mine.append(process)
    for pid in {consumer.pid, *(p.pid for p in mine)} - {os.getpid()}:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    consumer.wait()


def launch(config: Path, journal: Path, ray_temp: Path, log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.consumer", config, "killed", journal, ray_temp],
            stdout=out,
            stderr=out,
        )


def judge(journal: Path, replica: Replica) -> None:
    for kind, value in read_journal(journal):
        if kind == "start":
            replica.rewind()
        elif kind == "message":
            replica.apply(value)
        elif kind == "ack":
            replica.ack()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", [1, pytest.param(5, marks=pytest.mark.soak)])
def test_kills_of_the_whole_cluster(
    kills: int, mysql97: Server, tmp_path: Path, short_temp: Path
) -> None:
    work = Workload(mysql97, seed=77, database="killed")
    work.create()
    config, journal, log = (tmp_path / n for n in ("canal.toml", "journal", "log"))
    config.write_text(
        f'[meta]\npath = "{tmp_path / "meta.db"}"\n[[instance]]\ndestination = "killed"\n'
        f'[instance.source]\naddress = "{mysql97.address}"\nusername = "root"\n'
        f'start = "position"\njournal_name = "{mysql97.position()[0]}"\n'
        f"position = {mysql97.position()[1]}\n"
    )
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            work.write(BURST_ROWS, writers=3)
            time.sleep(0.2)

    writer = threading.Thread(target=write)
    rng = random.Random(77)
    consumer = launch(config, journal, short_temp / "r0", log)
    writer.start()
    try:
        for kill in range(kills):
            wait_for_progress(journal, log, consumer)
            time.sleep(rng.uniform(0.0, 1.5))
            kill_everything(consumer, short_temp / f"r{kill}")
            consumer = launch(config, journal, short_temp / f"r{kill + 1}", log)
        stop.set()
        writer.join()
        expected = work.rows()
        deadline = time.monotonic() + 180
        while True:
            time.sleep(2)
            replica = Replica("killed")
            judge(journal, replica)
            if not replica.differences(expected) or time.monotonic() > deadline:
                break
    finally:
        stop.set()
        writer.join()
        kill_everything(consumer, short_temp / f"r{kills}")
    assert replica.differences(expected) == []
    starts = sum(1 for kind, _ in read_journal(journal) if kind == "start")
    assert starts == kills + 1
    print(f"{kills} kills, {replica.received} rows received, {replica.repeated} of them again")


def wait_for_progress(journal: Path, log: Path, consumer: subprocess.Popen[bytes]) -> None:
    """Wait until the consumer has acked something in its present life."""
    deadline = time.monotonic() + 180
    size = journal.stat().st_size if journal.exists() else 0
    while time.monotonic() < deadline:
        assert consumer.poll() is None, log.read_text()[-3000:]
        if journal.exists() and journal.stat().st_size > size:
            kinds = [kind for kind, _ in read_journal(journal)]
            if kinds and kinds[-1] in ("message", "ack"):
                return
        time.sleep(0.1)
    raise AssertionError(f"no progress in 180 s; log ends:\n{log.read_text()[-3000:]}")
