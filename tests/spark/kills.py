"""Streaming queries on a Spark standalone, killed at random: each row once in Parquet and Delta.

    python -m tests.spark.kills --kills 100 [--seed 1] [--workers 2]

The driver, an executor, the destination's store and the Flight server die by SIGKILL, one after
the other, in the midst of micro-batches. A driver is started again with the same checkpoints; what
else dies comes back by itself. When all rows are written they are compared with the decoded files,
and the next round begins with an empty folder.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import psutil  # type: ignore[import-untyped]
import pyspark
import ray
import typer

import ray_canal as canal
from ray_canal.demo import BINLOGS
from ray_canal.spark import provide_java
from ray_canal.spark.source_jar import jar
from tests.processes import STORE, running
from tests.servers.run import free_port
from tests.spark.killed_stream import PLACE
from tests.spark.standalone import Standalone, standalone

APP = Path(__file__).with_name("killed_stream.py")
TABLE = "shop.orders"
FLIGHT = "ray::FlightActor"
EXECUTOR = "CoarseGrainedExecutorBackend"
ROUND_S = 900.0
PAUSES_S = (0.3, 6.0)


class Round:
    """One folder, from its first row to its last."""

    def __init__(self, cluster: Standalone, folder: Path, chance: random.Random) -> None:
        self.cluster, self.folder, self.chance = cluster, folder, chance
        self.result = folder / "result.json"
        self.name = folder.name
        self.killed: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.executors = 0
        self.driver: subprocess.Popen[bytes] | None = None
        tree: dict[str, Any] = {
            "meta": {"path": str(folder / "meta.db")},
            "instance": [
                {
                    "destination": self.name,
                    "source": {"files": [str(path) for path in BINLOGS], "start": "earliest"},
                    "filter": {"tables": r"shop\.orders"},
                }
            ],
            "flight": {"host": "127.0.0.1", "port": free_port()},
        }
        canal.start(tree)
        self.options = {
            "address": f"grpc://{canal.serve_flight(tree)}",
            **{"destination": self.name, "table": TABLE},
            **{"batch_size": "6", "maxBytesPerTrigger": "4k"},
        }

    def start_driver(self) -> None:
        log = (self.folder / "driver.log").open("ab")
        command = self.cluster.command(
            jar(), APP, json.dumps(self.options), str(self.folder), str(self.result)
        )
        self.driver = subprocess.Popen(
            command,
            env={**self.cluster.environment, "PYTHONPATH": str(Path(__file__).parents[2])},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    def run(self, kills: int) -> int:
        """Kill up to so many times, then let it end; how often it was done."""
        deadline = time.monotonic() + ROUND_S
        self.start_driver()
        while not self.result.exists():
            if time.monotonic() > deadline:
                raise SystemExit(f"{self.name}: no end within {ROUND_S} s; see {self.folder}")
            if kills > self.killed.total():
                time.sleep(self.chance.uniform(*PAUSES_S))
                self.kill_one()
            else:
                time.sleep(0.5)
            assert self.driver is not None
            if self.driver.poll() is not None and not self.result.exists():
                self.failures["driver ended"] += 1
                self.start_driver()
        assert self.driver is not None
        self.driver.wait(60)
        self.compare()
        canal.stop_flight()
        canal.stop(self.name)
        return self.killed.total()

    def kill_one(self) -> None:
        kind = self.chance.choice(["driver", "executor", "store", "flight"])
        pids = {
            "driver": self.driver_pids,
            "executor": self.an_executor,
            "store": lambda: running(STORE),
            "flight": lambda: running(FLIGHT),
        }[kind]()
        if not pids or self.result.exists():
            return
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.killed[kind] += 1

    def driver_pids(self) -> list[int]:
        """The application's JVM and its Python."""
        assert self.driver is not None
        try:
            root = psutil.Process(self.driver.pid)
            return [each.pid for each in (*root.children(recursive=True), root)]
        except psutil.NoSuchProcess:
            return []

    def an_executor(self) -> list[int]:
        """One of them, if there are several, with its share of the micro-batch."""
        found = self.executor_pids()
        self.executors = max(self.executors, len(found))
        return [self.chance.choice(found)] if found else []

    @staticmethod
    def executor_pids() -> list[int]:
        found = []
        for each in psutil.Process().children(recursive=True):
            try:
                if any(EXECUTOR in word for word in each.cmdline()):
                    found.append(each.pid)
            except psutil.Error:
                continue
        return found

    def compare(self) -> None:
        """Raises SystemExit: a row is missing, or is there twice."""
        wanted = Counter(
            tuple(row[name] for name in PLACE)
            for batch in canal.decode_files(BINLOGS, tables=r"shop\.orders")
            for row in batch.select(list(PLACE)).to_pylist()
        )
        for kind, rows in json.loads(self.result.read_text()).items():
            found = Counter(map(tuple, rows))
            if found != wanted:
                raise SystemExit(
                    f"{self.name}: {kind} lacks {list((wanted - found).items())[:5]}, has too much "
                    f"of {list((found - wanted).items())[:5]}; see {self.folder}"
                )


def main(
    kills: Annotated[int, typer.Option(min=1, help="So many kills in all.")] = 100,
    seed: Annotated[int, typer.Option(help="Of what is killed, and when.")] = 1,
    workers: Annotated[int, typer.Option(min=1, help="Of the standalone, an executor each.")] = 1,
) -> None:
    """Kill, compare, and print what was done."""
    provide_java()
    chance = random.Random(seed)
    folder = Path(tempfile.mkdtemp(prefix="spark-kills-"))
    ray.init("local", num_cpus=3, include_dashboard=False, object_store_memory=600 << 20)
    total: Counter[str] = Counter()
    home = Path(pyspark.__file__).parent
    with standalone(home, sys.executable, folder, workers) as cluster:
        while total.total() < kills:
            path = folder / f"round_{chance.randrange(10**6)}"
            path.mkdir()
            each = Round(cluster, path, chance)
            each.run(kills - total.total())
            total += each.killed
            done = f"{dict(each.killed)} killed, {dict(each.failures)}"
            print(f"{path.name}: {done}, {each.executors} executors", flush=True)
    ray.shutdown()
    shutil.rmtree(folder)
    print(f"{total.total()} kills, {dict(total)}: each row once in Parquet and Delta", flush=True)


if __name__ == "__main__":
    typer.run(main)
