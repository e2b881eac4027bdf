"""The console under attack, and killed: what a subscriber notices of it. Two minutes; a soak.

`make soak-console` prints the delays of rows, from their commit to their arrival at a subscriber,
in turns: in quiet times, under a flood, with as much CPU taken by plain processes of the console's
priority, and while the console is killed and comes back. The attackers, which are on other machines
in life, have that priority, too. So flood against burn is what a destination notices of the
console, and burn against quiet what any busy neighbour costs on this machine.
"""

from __future__ import annotations

import collections
import contextlib
import json
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import ray_canal as canal
from ray_canal.console.niceness import NICENESS
from ray_canal.console.rest_client import ConsoleClient
from ray_canal.errors import CanalError
from ray_canal.model.metrics import value_at
from tests.processes import send, the_one, wait_for
from tests.servers import Server
from tests.servers.run import free_port

pytestmark = [pytest.mark.usefixtures("local_ray"), pytest.mark.soak]

NAMESPACE = "console_flood"
NAME = "flooded"
PHASES = ("quiet", "flood", "burn", "killed")
TURNS = 3
TURN_S = 8.0
ROWS_PER_S = 200
ATTACKERS = 2
ARRIVED_MIN = 0.99
"""Of the rows that were written in a phase, those that came in it."""
DELAY_MAX = {50: 1.25, 99: 1.5}
"""Percentiles of delays under the flood, and of the killed, by those beside as much plain work."""
DELAY_SLACK_S = 0.01


@pytest.fixture
def url(tmp_path: Path, mysql97: Server) -> Iterator[str]:
    """A deployment's console, in its actor."""
    mysql97.execute(
        f"drop database if exists {NAME}",
        f"create database {NAME}",
        f"create table {NAME}.t (id int primary key, at double)",
    )
    config = {
        "ray": {"namespace": NAMESPACE},
        "meta": {"path": str(tmp_path / "meta.db")},
        "instance": [
            {"destination": NAME, "source": {"address": mysql97.address, "username": "root"}}
        ],
        "console": {"port": free_port()},
    }
    try:
        canal.start(config)
        yield canal.serve_console(config)
    finally:
        canal.stop_console(namespace=NAMESPACE)
        canal.stop(NAME, namespace=NAMESPACE)


@contextlib.contextmanager
def processes(*arguments: str, count: int) -> Iterator[list[subprocess.Popen[str]]]:
    """So many of tests.console_flood, of the console's priority."""
    command = ["nice", "-n", str(NICENESS), sys.executable, "-m", "tests.console_flood", *arguments]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(count)
    ]
    try:
        yield started
    finally:
        for each in started:
            if each.returncode is None:
                each.communicate(timeout=60)


def console_process() -> psutil.Process:
    """The console's, once it has given way."""
    process = psutil.Process(the_one("ray::ConsoleActor"))
    wait_for(lambda: process.nice() >= NICENESS, 60, "it gives way")
    return process


def cpu_s(every: list[psutil.Process]) -> float:
    return sum(sum(each.cpu_times()[:2]) for each in every)


class Subscriber:
    """Rows that are written all the time, and how late each came, by phase; `ids` as they came."""

    def __init__(self, server: Server) -> None:
        self.delays: dict[str, list[float]] = {phase: [] for phase in (*PHASES, "none")}
        self.ids: list[int] = []
        self.written = 0
        self.written_in: collections.Counter[str] = collections.Counter()
        self.phase = "none"
        self.ended, self.written_all = threading.Event(), threading.Event()
        with canal.connect(NAME, 7, namespace=NAMESPACE) as connector:
            connector.subscribe(rf"{NAME}\.t")
        calls = (self._read, lambda: self._write(server))
        self._threads = [threading.Thread(target=each, daemon=True) for each in calls]
        for each in self._threads:
            each.start()

    def measure(self, phase: str) -> None:
        """Count the rows that come for a turn to a phase."""
        before = self.written
        self.phase = phase
        time.sleep(TURN_S)
        self.written_in[phase] += self.written - before
        self.phase = "none"

    def _write(self, server: Server) -> None:
        with contextlib.closing(server.connect()) as link, link.cursor() as cursor:
            while not self.ended.is_set():
                began = time.monotonic()
                for _ in range(ROWS_PER_S // 20):
                    self.written += 1
                    row = (self.written, time.time())
                    cursor.execute(f"insert into {NAME}.t values (%s, %s)", row)
                    link.commit()
                self.ended.wait(max(0.05 - (time.monotonic() - began), 0.0))

    def _read(self) -> None:
        with canal.connect(NAME, 7, namespace=NAMESPACE) as connector:
            connector.subscribe(rf"{NAME}\.t")
            for message in connector.messages(stopped=self.written_all):
                now, found = time.time(), self.delays[self.phase]
                for batch in message.batches:
                    rows = [row["after"] for row in batch.to_pylist() if row.get("after")]
                    found += [now - row["at"] for row in rows]
                    self.ids += [row["id"] for row in rows]

    def close(self) -> None:
        """End writing, and reading once all has come."""
        self.ended.set()
        self._threads[1].join(30)
        wait_for(lambda: len(self.ids) >= self.written, 60, "the last rows")
        self.written_all.set()
        self._threads[0].join(30)


def flood(url: str, subscriber: Subscriber, answers: collections.Counter[str]) -> float:
    """A turn under attack; return the CPUs that the console and its attackers took."""
    with processes(url, NAME, count=ATTACKERS) as attackers:
        time.sleep(1.0)  # they begin
        flooding = [console_process(), *(psutil.Process(each.pid) for each in attackers)]
        before = cpu_s(flooding)
        subscriber.measure("flood")
        share = (cpu_s(flooding) - before) / TURN_S
        for each in attackers:
            answers.update(json.loads(each.communicate(timeout=60)[0]))
    return share


def kill(url: str, subscriber: Subscriber) -> None:
    """A turn in which the console is killed and comes back."""
    send(console_process().pid, signal.SIGKILL)
    subscriber.measure("killed")
    wait_for(lambda: answers_at(url), 60, "the console is there again")


def answers_at(url: str) -> bool:
    try:
        return any(each["status"] for each in ConsoleClient(url).destinations())
    except (OSError, CanalError):
        return False


def life() -> dict[str, Any]:
    """What would tell that the destination's upstream has failed or its server was lost."""
    status = canal.status(NAME, namespace=NAMESPACE)[NAME]
    keys = ("state", "epoch", "generations", "errors", "fetched.reconnects")
    return {key: value_at(status, key) for key in keys}


@pytest.mark.timeout(400)
def test_a_subscriber_notices_nothing_of_a_console_that_is_flooded_or_killed(
    url: str, mysql97: Server
) -> None:
    wait_for(lambda: answers_at(url), 60, "its status")
    subscriber, answers = Subscriber(mysql97), collections.Counter[str]()
    wait_for(lambda: len(subscriber.ids) > 100, 60, "rows")
    before = life()
    for _ in range(TURNS):
        subscriber.measure("quiet")
        share = flood(url, subscriber, answers)
        with processes("burn", str(share / (ATTACKERS + 1)), count=ATTACKERS + 1):
            time.sleep(1.0)
            subscriber.measure("burn")
        kill(url, subscriber)
    subscriber.close()
    cuts = {}
    for phase in PHASES:
        found, written = subscriber.delays[phase], subscriber.written_in[phase]
        cuts[phase] = statistics.quantiles(found, n=100)
        p50, p99 = (1e3 * cuts[phase][at - 1] for at in DELAY_MAX)
        print(f"{phase}: {written / TURNS / TURN_S:.0f} rows/s written, {len(found) / written:.3f} "
              f"of them came, delay p50 {p50:.1f} ms, p99 {p99:.0f} ms, "
              f"worst {max(found) * 1e3:.0f} ms")  # fmt: skip
        assert len(found) > ARRIVED_MIN * written
    print(f"{dict(answers)} answers; {share:.2f} CPUs for the console and its attackers; "
          f"{len(subscriber.ids)} rows")  # fmt: skip
    assert life() == before
    assert subscriber.ids == list(range(1, subscriber.written + 1))
    refused = answers["413"] + answers["closed"]  # in the midst of a giant body
    assert refused > 0
    assert answers["200"] > 0
    for phase in ("flood", "killed"):
        for at, factor in DELAY_MAX.items():
            assert cuts[phase][at - 1] < factor * cuts["burn"][at - 1] + DELAY_SLACK_S
