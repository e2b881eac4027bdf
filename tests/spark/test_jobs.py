"""The jobs, as a user runs them: `ray job submit` to a local cluster with token authentication.

The source is the demo's binlog files, whose truth (from the server that wrote them) is in
`ray_canal/demo/expected.json`.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import runpy
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from ray.job_submission import JobSubmissionClient
from typer.testing import CliRunner

from ray_canal.demo import BINLOGS, expected
from ray_canal.demo.truth import KEYS, digest
from tests.servers.run import free_port

pytestmark = pytest.mark.ray

JOBS = Path(__file__).parents[2] / "jobs"
START_TIMEOUT_S = 180
JOB_TIMEOUT_S = 240


@dataclass
class Cluster:
    """A Ray cluster of its own, and the folder that its jobs are submitted from."""

    address: str
    environment: dict[str, str]
    folder: Path

    @functools.cached_property
    def client(self) -> JobSubmissionClient:
        """What `ray job` is made of; a command of its own takes seconds to start."""
        token = self.environment["RAY_AUTH_TOKEN"]
        return JobSubmissionClient(self.address, headers={"Authorization": f"Bearer {token}"})

    def start(self, *entrypoint: str) -> str:
        """The id of a job that has begun."""
        job: str = self.client.submit_job(
            entrypoint=shlex.join([sys.executable, *entrypoint]),
            runtime_env={"working_dir": str(self.folder)},
        )
        return job

    def ended(self, job: str, wanted: str = "SUCCEEDED") -> str:
        """A job's output, when it has ended so."""
        deadline = time.monotonic() + JOB_TIMEOUT_S
        while not self.client.get_job_status(job).is_terminal():
            assert time.monotonic() < deadline, self.client.get_job_logs(job)
            time.sleep(0.3)
        logs: str = self.client.get_job_logs(job)
        assert self.client.get_job_status(job) == wanted, logs
        return logs

    def until_logged(self, job: str, text: str) -> None:
        """Wait for a line of a job's."""
        deadline = time.monotonic() + JOB_TIMEOUT_S
        while text not in self.client.get_job_logs(job):
            assert time.monotonic() < deadline, self.client.get_job_logs(job)
            time.sleep(0.3)

    def submit(self, *entrypoint: str) -> str:
        """`ray job submit`; its output."""
        run = subprocess.run(
            [
                *(sys.executable, "-m", "ray.scripts.scripts", "job", "submit"),
                *("--address", self.address, "--working-dir", str(self.folder)),
                *("--", sys.executable, *entrypoint),
            ],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=JOB_TIMEOUT_S,
            check=False,
        )
        assert run.returncode == 0, run.stdout + run.stderr
        return run.stdout


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """`ray start --head` on free ports in a process group of its own; stopped by that group."""
    from ray_canal.spark import provide_java

    provide_java()
    folder = tmp_path_factory.mktemp("jobs")
    shutil.copytree(JOBS, folder / "jobs", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "canal.toml").write_text(_configuration(folder / "meta.db"), encoding="utf-8")
    # Ray's sockets need a short path.
    temporary = tempfile.mkdtemp(prefix="rcj", dir="/tmp")
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith("RAY_")},
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONUNBUFFERED": "1",
        "COLUMNS": "100",
    }
    head = None
    try:
        for left in (2, 1, 0):
            port = free_port()
            made = Cluster(f"http://127.0.0.1:{port}", environment, folder)
            head = _head(port, environment, folder / "head.log", temporary)
            if _await_jobs_api(made, head, folder / "head.log", may_end=left > 0):
                break
            _end(head)
        yield made
    finally:
        if head is not None:
            _end(head)
        shutil.rmtree(temporary, ignore_errors=True)


def _head(port: int, environment: dict[str, str], log: Path, temporary: str) -> subprocess.Popen:
    """Begin a head. Its Ray Client server gives up where a node takes 30 s to register, and ends
    all of it."""
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"),
            *("--port", "0", "--node-ip-address", "127.0.0.1", "--num-cpus", "3"),
            *("--dashboard-host", "127.0.0.1", "--dashboard-port", str(port)),
            *("--dashboard-agent-listen-port", str(free_port())),
            *("--ray-client-server-port", str(free_port())),
            *("--object-store-memory", str(400 << 20), "--temp-dir", temporary),
        ],
        env=environment,
        stdout=log.open("w"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def _end(head: subprocess.Popen) -> None:
    """At once: it takes longer than 5 s over an orderly end."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(head.pid, signal.SIGKILL)
    head.wait(30)


def _configuration(meta: Path) -> str:
    """The demo's files for each reader, who then finds all of them."""
    files = json.dumps([str(path) for path in BINLOGS])
    instances = "".join(
        f"""
        [[instance]]
        destination = "{name}"
        [instance.source]
        files = {files}
        start = "earliest"
        [instance.filter]
        tables = 'shop\\..*'
        """
        for name in ("for_tail", "for_spark", "for_mirror")
    )
    return f'[meta]\npath = "{meta}"\n{instances}'


def _await_jobs_api(
    cluster: Cluster, head: subprocess.Popen, log: Path, *, may_end: bool
) -> bool:
    """Return whether it answers; False: the head has ended, and `may_end`."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if head.poll() is not None:
            assert may_end, log.read_text()
            return False
        try:
            cluster.client.submit_job(entrypoint="true")  # needs an agent, which comes later
        except (OSError, RuntimeError):  # requests' own ConnectionError: it has ended meanwhile
            time.sleep(0.5)
        else:
            return True
    raise AssertionError(f"no jobs API after {START_TIMEOUT_S} s: {log.read_text()}")


@pytest.fixture(scope="module")
def serving(cluster: Cluster) -> Cluster:
    output = cluster.submit("jobs/serve.py", "canal.toml", "--detach")
    assert "for_tail: running" in output
    assert "for_spark: running" in output
    assert "for_mirror: running" in output
    return cluster


@pytest.fixture(scope="module")
def jobs(serving: Cluster) -> dict[str, str]:
    """Jobs by name; they wait more than they compute, so they begin together."""
    tail = [sys.executable, "jobs/tail.py", "--destination", "for_tail"]
    runs = [[*tail, "--limit", "5"], tail, tail]
    spark = ("jobs/spark_changes.py", "--destination", "for_spark", "--batch-size", "600")
    mirror = ("jobs/mirror.py", "--destination", "for_mirror", "--commit-interval-s", "0")
    return {
        "serve": serving.start("jobs/serve.py", "canal.toml"),
        "spark": serving.start(*spark, "--output", str(serving.folder / "changes")),
        "mirror": serving.start(*mirror, "--path", str(serving.folder / "lake")),
        "tail": serving.start("-c", _IN_TURNS.format(runs=runs)),
        "nothing": serving.start("jobs/tail.py", "--destination", "nothing"),
    }


_IN_TURNS = """
import subprocess
for run in {runs}:
    print("run", flush=True)
    subprocess.run(run, check=True)
"""


def _changes(output: str) -> list[dict]:
    return [json.loads(line) for line in output.splitlines() if line.startswith('{"schema"')]


def test_tail_prints_each_change_once_in_order(serving: Cluster, jobs: dict[str, str]) -> None:
    _, cut, whole, after = re.split("^run$", serving.ended(jobs["tail"]), flags=re.MULTILINE)
    first = _changes(cut)
    assert len(first) == 5
    # The batch that the limit cut was not acked: the next run starts with it.
    everything = _changes(whole)
    assert everything[:5] == first
    assert len(everything) == expected()["changes"]
    files = [change["journal_name"] for change in everything]
    assert files == sorted(files)
    assert _changes(after) == []


def test_spark_changes_writes_what_the_server_holds(
    serving: Cluster, jobs: dict[str, str]
) -> None:
    out, output = serving.folder / "changes", serving.ended(jobs["spark"])
    truth = expected()
    assert f"{truth['changes']} changes in" in output
    assert int(re.search(r"changes in (\d+) batches", output)[1]) > 1  # type: ignore[index]
    for table, held in truth["tables"].items():
        counts = [f"{held['changes'][kind]:,}" for kind in ("INSERT", "UPDATE", "DELETE")]
        line = next(row for row in output.splitlines() if f"shop.{table} " in row)
        assert re.findall(r"[\d,]+", line.partition(f"shop.{table}")[2])[:3] == counts
        rows = _replayed(out, table)
        assert len(rows) == held["rows"]
        assert digest(table, rows, held["columns"]) == held["digest"]


def test_mirror_holds_the_rows_that_the_server_holds(
    serving: Cluster, jobs: dict[str, str]
) -> None:
    truth, output = expected(), serving.ended(jobs["mirror"])
    assert f"{truth['changes']} changes written" in output
    for table, held in truth["tables"].items():
        lake = str(serving.folder / "lake" / "shop" / table)
        found = DeltaTable(lake).to_pyarrow_table().to_pylist()
        rows = [{name: _unsigned(value) for name, value in row.items()} for row in found]
        assert digest(table, rows, held["columns"]) == held["digest"]


def _replayed(out: Path, table: str) -> list[dict]:
    """The table's rows after its changes, read from Parquet without Spark."""
    folder = out / "schema_name=shop" / f"table_name={table}"
    files = ds.dataset(sorted(str(path) for path in folder.rglob("*.parquet")))
    schemas = [fragment.physical_schema for fragment in files.get_fragments()]
    rows: dict[tuple, dict] = {}
    changes = []
    for fragment, schema in zip(files.get_fragments(), schemas, strict=True):
        changes.extend(fragment.to_table(schema=schema).to_pylist())
    changes.sort(key=lambda c: (c["journal_name"], c["position"], c["row"]))
    for change in changes:
        if change["before"] is not None:
            del rows[tuple(change["before"][name] for name in KEYS[table])]
        if change["after"] is not None:
            after = {name: _unsigned(value) for name, value in change["after"].items()}
            rows[tuple(change["after"][name] for name in KEYS[table])] = after
    return list(rows.values())


def _unsigned(value: object) -> object:
    """BIGINT UNSIGNED is decimal(20,0) in Spark; the server's truth has an integer."""
    whole = isinstance(value, Decimal) and value.as_tuple().exponent == 0
    return int(value) if whole else value  # type: ignore[call-overload]


def test_serve_stays_until_it_is_stopped(serving: Cluster, jobs: dict[str, str]) -> None:
    serving.until_logged(jobs["serve"], "for_spark: running")
    assert serving.client.get_job_status(jobs["serve"]) == "RUNNING"
    serving.client.stop_job(jobs["serve"])
    serving.until_logged(jobs["serve"], "for_spark: stopped")


def test_unknown_destination_is_one_clear_error(serving: Cluster, jobs: dict[str, str]) -> None:
    logs = serving.ended(jobs["nothing"], "FAILED")
    assert "InstanceNotFound: no destination 'nothing' is running" in logs
    assert "Traceback" not in logs


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ("serve.py", ["--detach", "SIGTERM", "CONFIG"]),
        ("tail.py", ["--limit", "--destination", "--client-id", "--filter", "JSON lines"]),
        ("mirror.py", ["--path", "--commit-interval-s", "--compact-s", "delta", "parquet"]),
        ("spark_changes.py", ["--output", "--batch-size", "--max-batches", "OUTPUT"]),
    ],
)
def test_help_helps(job: str, words: list[str]) -> None:
    app = runpy.run_path(str(JOBS / job))["app"]
    run = CliRunner().invoke(
        app, ["--help"], env={"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"}
    )
    assert run.exit_code == 0
    assert [word for word in words if word not in run.output] == []
