"""A runner that is killed at any moment: each change is in the target once.

The tables have no key, so a change that is written twice shows.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.servers import Server

STEPS = (
    "take_over:1:after", "create:2:after", "begin:1:before", "upsert:1:after", "begin:3:after",
    "delete_like:1:before", "commit:2:before", "delete:1:after", "commit:1:after", "commit:2:after",
)  # fmt: skip


def workload(server: Server, source: str) -> None:
    server.execute("FLUSH BINARY LOGS", f"CREATE DATABASE {source}", f"USE {source}",
                   "CREATE TABLE keyless (v INT, w VARCHAR(9))",
                   "CREATE TABLE t (id INT PRIMARY KEY, v INT)")  # fmt: skip
    generator = random.Random(4)
    with server.connect(database=source, autocommit=False) as connection:
        cursor = connection.cursor()
        for number in range(400):
            for _ in range(generator.randrange(1, 4)):
                cursor.execute(f"INSERT INTO keyless VALUES ({number % 5}, 'x')")
                cursor.execute(f"REPLACE INTO t VALUES ({generator.randrange(40)}, {number})")
            if number % 7 == 0:
                cursor.execute(f"DELETE FROM keyless WHERE v = {number % 5} LIMIT 1")
                cursor.execute(f"DELETE FROM t WHERE id = {generator.randrange(40)}")
            connection.commit()
            if number == 350:
                server.execute(f"CREATE TABLE {source}.late (id INT PRIMARY KEY)")


@pytest.fixture
def source(mysql97: Server) -> Iterator[str]:
    name = "killed"
    workload(mysql97, name)
    yield name
    mysql97.execute(*(f"DROP DATABASE IF EXISTS {each}" for each in
                      (name, f"{name}_copy", f"{name}_canal")))  # fmt: skip


def killed(server: Server, source: str, folder: Path, steps: Sequence[str]) -> list[str]:
    """Run the sink, killed at each of the steps, then to the end. Returns how each run ended."""
    mirror = {"address": server.address, "username": "root", "database": f"{source}_copy",
              "cursor_database": f"{source}_canal", "without_key": "rows"}  # fmt: skip
    sink = {"name": "s", "destination": "x", "type": "mysql", "client_id": 7, "batch_size": 4,
            "tables": rf"{source}\..*", "mirror": mirror}  # fmt: skip
    instance: dict[str, Any] = {"source": {"files": [str(server.binlogs()[-1])]}, "tsdb": {}}
    for name, tree in (("sink", sink), ("instance", instance)):
        (folder / f"{name}.json").write_text(json.dumps(tree))
    done = subprocess.run(
        [sys.executable, "-m", "tests.sink_runs", folder, folder / "sink.json",
         folder / "instance.json", *steps],
        capture_output=True, text=True, timeout=1800, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    print(done.stdout)
    for table in ("keyless", "t"):
        rows = [server.execute(f"SELECT * FROM {db}.{table} ORDER BY 1, 2")
                for db in (source, f"{source}_copy")]  # fmt: skip
        assert rows[0] == rows[1], done.stdout + done.stderr[-3000:]
    return [line.split()[1] for line in done.stdout.splitlines()]


def test_killed_at_every_step_each_change_is_there_once(
    mysql97: Server, source: str, tmp_path: Path
) -> None:
    ends = killed(mysql97, source, tmp_path, STEPS)
    assert ends == ["-9"] * len(STEPS) + ["0"]


@pytest.mark.soak
def test_killed_at_100_random_moments(mysql97: Server, source: str, tmp_path: Path) -> None:
    moments = [str(random.Random(number).randrange(300, 3000)) for number in range(100)]
    assert killed(mysql97, source, tmp_path, moments)[-1] == "0"
