"""The console under attack: what a destination's subscriber notices of it. Minutes; a soak.

`make soak-console` prints the delays of rows, from their commit to their arrival at a subscriber,
in turns: in quiet times, under a flood, and with as much CPU taken by plain processes of the
console's priority. The attackers, which are on other machines in life, have that priority, too. So
flood against burn is what a destination notices of the console, and burn against quiet what any
busy neighbour costs on this machine.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import ray_canal as canal
from ray_canal.console.niceness import NICENESS
from ray_canal.console.rest_client import ConsoleClient
from tests.processes import wait_for
from tests.servers import Server
from tests.servers.run import free_port

pytestmark = [pytest.mark.usefixtures("local_ray"), pytest.mark.soak]

NAMESPACE = "console_flood"
NAME = "flooded"
PHASES = ("quiet", "flood", "burn")
TURNS = 4
TURN_S = 8.0
ROWS_PER_S = 200
ATTACKERS = 2
RATE_MIN = 0.95
"""Rows a second under the flood, by those beside as much plain work."""
DELAY_MAX = 1.25
"""The same of the median delay."""


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
    every = psutil.Process().children(recursive=True)
    (found,) = (each for each in every if "ConsoleActor" in " ".join(each.cmdline()[:1]))
    assert found.nice() >= NICENESS
    return found


def cpu_s(every: list[psutil.Process]) -> float:
    return sum(sum(each.cpu_times()[:2]) for each in every)


class Subscriber:
    """Rows that are written all the time, and how late each came, by phase."""

    def __init__(self, server: Server) -> None:
        self.delays: dict[str, list[float]] = {phase: [] for phase in PHASES}
        self.phase = "quiet"
        self.ended = threading.Event()
        calls = (self._read, lambda: self._write(server))
        self._threads = [threading.Thread(target=each, daemon=True) for each in calls]
        for each in self._threads:
            each.start()

    def _write(self, server: Server) -> None:
        with contextlib.closing(server.connect()) as link, link.cursor() as cursor:
            number = 0
            while not self.ended.is_set():
                began = time.monotonic()
                for _ in range(ROWS_PER_S // 20):
                    number += 1
                    cursor.execute(f"insert into {NAME}.t values (%s, %s)", (number, time.time()))
                    link.commit()
                self.ended.wait(max(0.05 - (time.monotonic() - began), 0.0))

    def _read(self) -> None:
        with canal.connect(NAME, 7, namespace=NAMESPACE) as connector:
            connector.subscribe(start="tail")
            while not self.ended.is_set():
                message = connector.get_without_ack(1000, timeout=1.0)
                now, found = time.time(), self.delays[self.phase]
                for batch in message.batches:
                    found += [now - row["after"]["at"] for row in batch.to_pylist()]
                connector.ack(message.id)

    def close(self) -> None:
        self.ended.set()
        for each in self._threads:
            each.join(30)


@pytest.mark.timeout(280)
def test_a_subscriber_notices_nothing_of_a_flood(url: str, mysql97: Server) -> None:
    client = ConsoleClient(url)
    wait_for(lambda: any(each["status"] for each in client.destinations()), 60, "its status")
    subscriber = Subscriber(mysql97)
    wait_for(lambda: len(subscriber.delays["quiet"]) > 100, 60, "rows")
    subscriber.delays["quiet"].clear()
    console, answers, share = console_process(), dict[str, int](), 1.0
    for _ in range(TURNS):
        subscriber.phase = "quiet"
        time.sleep(TURN_S)
        with processes(url, NAME, count=ATTACKERS) as attackers:
            time.sleep(1.0)  # they begin
            subscriber.phase = "flood"
            flooding = [console, *(psutil.Process(each.pid) for each in attackers)]
            before = cpu_s(flooding)
            time.sleep(TURN_S)
            share = (cpu_s(flooding) - before) / TURN_S
            subscriber.phase = "none"
            subscriber.delays["none"] = []
            for each in attackers:
                for status, count in json.loads(each.communicate(timeout=60)[0]).items():
                    answers[status] = answers.get(status, 0) + count
        with processes("burn", str(share / (ATTACKERS + 1)), count=ATTACKERS + 1):
            time.sleep(1.0)
            subscriber.phase = "burn"
            time.sleep(TURN_S)
            subscriber.phase = "none"
    subscriber.close()
    rates, medians = {}, {}
    for phase in PHASES:
        found = subscriber.delays[phase]
        cuts = statistics.quantiles(found, n=100)
        rates[phase], medians[phase] = len(found) / TURNS / TURN_S, cuts[49]
        print(f"{phase}: {rates[phase]:.0f} rows/s, delay p50 {cuts[49] * 1e3:.0f} ms, "
              f"p99 {cuts[98] * 1e3:.0f} ms, worst {max(found) * 1e3:.0f} ms")  # fmt: skip
    print(f"{answers} answers; {share:.2f} CPUs for the console and its attackers")
    print(f"flood/burn: rows {rates['flood'] / rates['burn']:.3f}, "
          f"p50 {medians['flood'] / medians['burn']:.3f}")  # fmt: skip
    assert client.destinations()[0]["state"] == "running"
    refused = answers.get("413", 0) + answers.get("closed", 0)  # in the midst of a giant body
    assert refused > 0
    assert answers["200"] > 0
    assert rates["flood"] > RATE_MIN * rates["burn"]
    assert medians["flood"] < DELAY_MAX * medians["burn"] + 0.01
