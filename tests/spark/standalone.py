"""A Spark standalone (master and worker) of pyspark's own scripts, and spark-submit to it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.spark.conftest import QUICK_JVM

START_S = 120
RUN_S = 300


@dataclass
class Standalone:
    """`python`: the one whose pyspark this is."""

    home: Path
    python: str
    master: str
    environment: dict[str, str]

    def command(self, jar: Path, app: Path, *arguments: str) -> list[str]:
        """What runs an application."""
        settings = {
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "1",
            "spark.executor.extraJavaOptions": QUICK_JVM,
            "spark.driver.extraJavaOptions": QUICK_JVM,
        }
        return [
            *(str(self.home / "bin/spark-submit"), "--master", self.master),
            *("--jars", str(jar), "--executor-memory", "512m", "--driver-memory", "512m"),
            *(word for key, value in settings.items() for word in ("--conf", f"{key}={value}")),
            *(str(app), *arguments),
        ]

    def submit(self, jar: Path, app: Path, *arguments: str) -> str:
        """Run an application to its end; what it printed."""
        run = subprocess.run(
            self.command(jar, app, *arguments),
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=False,
        )
        assert run.returncode == 0, run.stdout + run.stderr[-6000:]
        return run.stdout


@contextlib.contextmanager
def standalone(
    home: Path, python: str, folder: Path, workers: int = 1
) -> Iterator[Standalone]:
    """A cluster of workers with two cores each on loopback; an application gets an executor of
    each."""
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "SPARK_", "PYTHON"))},
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOG_DIR": str(folder),
        "SPARK_DAEMON_JAVA_OPTS": QUICK_JVM,
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
    }
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str) -> Path:
        log = folder / f"{name}.{len(started)}.log"
        with log.open("wb") as file:
            started.append(
                subprocess.Popen(
                    [str(home / "bin/spark-class"), f"org.apache.spark.deploy.{name}", *arguments],
                    env=environment,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )
        return log

    try:
        port = ("--port", "0", "--webui-port", "0", "--host", "127.0.0.1")
        master = _told(start("master.Master", *port), r"spark://127\.0\.0\.1:\d+", started)
        work = ("--cores", "2", "--memory", "1g", "--work-dir", str(folder / "work"))
        for _ in range(workers):
            log = start("worker.Worker", *port, *work, master)
            _told(log, "Successfully registered with master", started)
        yield Standalone(home, python, master, environment)
    finally:
        for process in reversed(started):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)


def _told(log: Path, pattern: str, started: list[subprocess.Popen[bytes]]) -> str:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        text = log.read_text()
        found = re.search(pattern, text)
        if found:
            return found[0]
        assert started[-1].poll() is None, text
        time.sleep(0.2)
    raise AssertionError(f"not within {START_S} s: {log.read_text()}")
