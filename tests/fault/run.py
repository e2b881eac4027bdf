"""A fault run: writers on a real server, four subscribers, random faults, and the judgement.

Everything that is random comes from one seed. After each fault a marker row is written; the
recovery has ended when every subscriber has received it. With a second server: pair_run.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import psutil
import pymysql

from ray_canal.actors.ray_settings import RAY_SETTINGS
from tests.fault.faults import FAULTS, SINK_FAULTS
from tests.fault.judge import Judge
from tests.fault.sinks import DESTINATION, DatabaseMirror, FaultSink
from tests.fault.truth import Row, rows_decoded
from tests.processes import family, wait_for
from tests.proxy import Proxy
from tests.servers import Server
from tests.servers.run import free_port
from tests.workload import Workload

DATABASE = "faults"
TABLES = 10
RECOVERY_MAX_S = 300.0
BESIDE_MAX_S = 240.0
SUBSCRIBERS = {
    # client id: tables as a regex of Python's and Canal's alike, batch size, policy
    1: (rf"{DATABASE}\..*", 512, "block"),
    2: (rf"{DATABASE}\.(t0[0-4]|marker)", 2048, "spill"),
    3: (rf"{DATABASE}\.(t0[5-9]|marker)", 64, "detach"),
    4: (rf"{DATABASE}\.(t0[2-7]|marker)", 256, "block"),
}
BY_TCP = 4
SPILLING = 2
BY_ASYNCIO = 3


class FaultRun:
    """`with FaultRun(...) as run: run.fault(...); run.judge()`. See faults.Deployment."""

    def __init__(
        self,
        server: Server,
        folder: Path,
        seed: int,
        decoders: int = 0,
        burst_rows: int = 300,
        per_process: int = 1,
        sinks: Sequence[FaultSink] = (),
    ) -> None:
        """`decoders`, `per_process`: as in the configuration. `sinks`: closed at the end."""
        self._current, self.folder, self.decoders = server, folder, decoders
        self._per_process = per_process
        self.sinks = sinks
        self.kinds = {**FAULTS, **(SINK_FAULTS if sinks else {})}
        self._burst_rows = burst_rows
        self.rng = random.Random(seed)
        self._proxy = Proxy((server.host, server.port))
        self._tcp_port = free_port()
        self._address = folder / "address"
        self.work = Workload(server, seed=seed, tables=TABLES, database=DATABASE)
        # Ray's socket paths must be short.
        self._ray_temp = Path(tempfile.mkdtemp(prefix="rc", dir="/tmp"))
        self._heads = self._lives = 0
        self._head: subprocess.Popen[bytes] | None = None
        self._subscribers: dict[int, subprocess.Popen[bytes]] = {}
        self._stop = threading.Event()
        self._writing = threading.Lock()
        self._writer = threading.Thread(target=self._write)
        self._marker = 0
        self.judges = {
            client_id: self._judge_of(client_id, tables, folder / f"journal.{client_id}")
            for client_id, (tables, _, _) in SUBSCRIBERS.items()
        }
        self.recoveries: dict[str, list[float]] = defaultdict(list)

    @property
    def server(self) -> Server:
        """The one that is written to."""
        return self._current

    @property
    def proxy(self) -> Proxy:
        """Between the destination and a server."""
        return self._proxy

    @property
    def mirror(self) -> DatabaseMirror:
        return next(sink for sink in self.sinks if isinstance(sink, DatabaseMirror))

    def _judge_of(self, client_id: int, tables: str, journal: Path) -> Judge:
        return Judge(DATABASE, tables, journal)

    # --- the deployment -----------------------------------------------------------------------

    def __enter__(self) -> FaultRun:
        try:
            self.work.create()
            self.server.execute(f"create table {DATABASE}.marker (id bigint primary key)")
            (self.folder / "canal.toml").write_text(self._config())
            self._launch_head()
            self._launch_subscribers()
            # Who subscribes later starts behind what others have acked.
            wait_for(self._subscribed, RECOVERY_MAX_S, "all have subscribed")
            self._writer.start()
            self._recovered("start")
        except BaseException:
            self.__exit__()
            raise
        return self

    def _config(self) -> str:
        name, position = self.server.position()
        start = f'start = "position"\njournal_name = "{name}"\nposition = {position}\n'
        if self.sinks:  # they have the tables made
            start = 'start = "earliest"\n'
        meta = f'[meta]\npath = "{self.folder / "meta.db"}"\n'
        return self._toml(meta, f'address = "{self.proxy.address}"\n{start}')

    def _toml(self, meta: str, source: str) -> str:
        return (
            f"{meta}[ray]\ndestinations_per_process = {self._per_process}\n"
            f'[[instance]]\ndestination = "{DESTINATION}"\ndecoders = {self.decoders}\n'
            "chunk_bytes = 262144\n"  # small, so that subscribers fall behind the log
            f'[instance.store]\nbuffer_size = 2048\nspill_path = "{self.folder / "spill"}"\n'
            f'[instance.source]\nusername = "root"\n{source}'
            "heartbeat_s = 0.5\nread_timeout_s = 3.0\nconnect_timeout_s = 3.0\n"
            "reconnect_max_s = 2.0\n"
            f'[server]\nhost = "127.0.0.1"\nport = {self._tcp_port}\n'
        ) + "".join(sink.section() for sink in self.sinks)

    def __exit__(self, *failure: object) -> None:
        self._stop.set()
        if self._writer.is_alive():
            self._writer.join()
        self._kill(self._head, *self._subscribers.values())
        self._proxy.__exit__(None, None, None)
        for sink in self.sinks:
            sink.close()
        shutil.rmtree(self._ray_temp, ignore_errors=True)

    @property
    def head_pid(self) -> int:
        assert self._head is not None
        return self._head.pid

    def _spawn(self, log: str, *arguments: object) -> subprocess.Popen[bytes]:
        with (self.folder / log).open("ab") as out:
            command = [sys.executable, "-m", *(str(a) for a in arguments)]
            # Several processes of this machine join the cluster; they share no token.
            environment = {**os.environ, "RAY_AUTH_MODE": "disabled", **RAY_SETTINGS}
            return subprocess.Popen(command, stdout=out, stderr=out, env=environment)

    def _launch_head(self) -> None:
        self._address.unlink(missing_ok=True)
        temp = self._ray_temp / f"r{self._heads}"
        config = self.folder / "canal.toml"
        self._head = self._spawn("head.log", "tests.fault.head", config, temp, self._address)

    def _launch_subscribers(self) -> None:
        for client_id in SUBSCRIBERS:
            self._launch_subscriber(client_id)

    def _launch_subscriber(self, client_id: int) -> None:
        tables, batch_size, policy = SUBSCRIBERS[client_id]
        how = {BY_TCP: f"127.0.0.1:{self._tcp_port}", BY_ASYNCIO: f"asyncio:{self._lives}"}
        self._lives += 1
        self._subscribers[client_id] = self._spawn(
            f"subscriber.{client_id}.log", "tests.fault.subscriber",
            self._address, DESTINATION, client_id, tables, batch_size,
            policy, self.folder / f"journal.{client_id}", how.get(client_id, ""),
        )  # fmt: skip

    def _kill(self, *given: subprocess.Popen[bytes] | None) -> None:
        """SIGKILL of these and of all Ray."""
        processes = [p for p in given if p is not None]
        pids = {p.pid for p in processes if p.poll() is None}
        pids |= {p.pid for pid in set(pids) for p in family(pid)}
        # Ray's processes outlive a head that was killed.
        for process in psutil.process_iter(["cmdline"]):
            if any(str(self._ray_temp) in part for part in process.info["cmdline"] or []):
                pids.add(process.pid)
        for pid in pids - {os.getpid()}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in processes:
            process.wait()

    def kill_head(self, *at_once: subprocess.Popen[bytes]) -> None:
        self._kill(self._head, *at_once)
        self._heads += 1
        self._launch_head()

    def kill_everything(self) -> None:
        self.kill_head(*self._subscribers.values())
        self._launch_subscribers()

    def kill_subscriber(self) -> None:
        client_id = self.rng.choice(sorted(self._subscribers))
        self._subscribers[client_id].kill()
        self._subscribers[client_id].wait()
        self._launch_subscriber(client_id)

    def subscriber_pid(self) -> int:
        return self._subscribers[self.rng.choice(sorted(self._subscribers))].pid

    def run_beside(self, module: str, *arguments: object) -> None:
        """Run a program to its end; its first argument is the cluster's address."""
        log = f"{module}.log"
        program = self._spawn(log, module, self._address.read_text(), *arguments)
        if program.wait(BESIDE_MAX_S):
            raise AssertionError(f"{module}: {(self.folder / log).read_text()[-3000:]}")

    def spilling_pid(self) -> int:
        return self._subscribers[SPILLING].pid

    def asyncio_pid(self) -> int:
        return self._subscribers[BY_ASYNCIO].pid

    def _write(self) -> None:
        while not self._stop.wait(0.2):
            # mysqld was killed
            with self._writing, contextlib.suppress(pymysql.err.MySQLError, OSError):
                self.work.write(self._burst_rows, writers=3, stop=self._stop)

    # --- faults and recoveries ----------------------------------------------------------------

    def _subscribed(self) -> bool:
        for judge in self.judges.values():
            judge.read()
        known = all(judge.subscribed for judge in self.judges.values())
        return known and all(self.sink_subscribers())

    def sink_subscribers(self) -> list[dict[str, Any]]:
        """What the destination tells of each sink's subscriber; of one that it does not know, or
        while it does not answer, a dictionary without "entries_behind"."""
        if not self.sinks:
            return []
        told = {}
        with contextlib.suppress(ValueError, LookupError):
            told = json.loads(self.status_json())[DESTINATION]["store"]["subscribers"]
        return [told.get(str(sink.client_id), {}) for sink in self.sinks]

    def _recovered(self, what: str) -> float:
        """Seconds until a row that is written now has reached every subscriber."""
        self._marker += 1
        self._late: list[str] = []  # who came last
        wait_for(self._write_marker, RECOVERY_MAX_S, f"a marker is written after {what}")
        try:
            return wait_for(lambda: self._received(what), RECOVERY_MAX_S, "all received the marker")
        except AssertionError as error:
            markers = {client_id: judge.marker for client_id, judge in self.judges.items()}
            raise AssertionError(
                f"after {what}: {error}; marker {self._marker}, received {markers}; "
                f"without it: {', '.join(self._late)}\n"
                + self._status()
            ) from error

    def _status(self) -> str:
        """What the deployment says of itself, and the ends of its logs."""
        return f"{self.status_json()}\n{(self.folder / 'head.log').read_text()[-3000:]}"

    def status_json(self) -> str:
        """What `ray-canal status --json` prints, or its error."""
        address = self._address.read_text() if self._address.exists() else "auto"
        environment = {**os.environ, "RAY_AUTH_MODE": "disabled", "RAY_ADDRESS": address}
        command = [sys.executable, "-m", "ray_canal", "status", "--json"]
        with contextlib.suppress(subprocess.TimeoutExpired):
            done = subprocess.run(command, env=environment, capture_output=True, timeout=60)
            return done.stdout.decode() or done.stderr.decode()[-2000:]
        return "no answer to ray-canal status"

    def _write_marker(self) -> bool:
        statement = f"insert ignore into {DATABASE}.marker values ({self._marker})"
        with contextlib.suppress(pymysql.err.MySQLError):
            self.server.execute(statement)
            return True
        return False

    def _received(self, what: str) -> bool:
        for client_id, subscriber in list(self._subscribers.items()):
            if subscriber.poll() is None:
                continue
            group = self.kinds[what][0] if what in self.kinds else ""
            if group == "head" or what.endswith(" stopped"):  # the whole deployment was
                # Ray now and then ends a program whose raylet has died before the head.
                print(f"(subscriber {client_id} ended with {subscriber.returncode})", flush=True)
                self._launch_subscriber(client_id)
            else:
                log = (self.folder / f"subscriber.{client_id}.log").read_text()[-3000:]
                code = subscriber.returncode
                raise AssertionError(f"subscriber {client_id}: {code} after {what}:\n{log}")
        for judge in self.judges.values():
            judge.read()
        judges = self.judges.items()
        late = [f"subscriber {number}" for number, one in judges if one.marker < self._marker]
        # Targets are looked at once the others have it: that takes longer.
        late = late or [type(s).__name__ for s in self.sinks if not s.has(self._marker)]
        self._late = late or self._late
        return not late

    def fault(self, name: str) -> float:
        """Do it; the seconds until all is well again."""
        group, _, act = self.kinds[name]
        act(self)
        took_s = self._recovered(name)
        self.recoveries[group].append(took_s)
        return took_s

    def random_faults(self, seconds: float, only: Sequence[str] = ()) -> None:
        """One after the other, until the time is over; each is printed. `only`: of these kinds."""
        absent = [] if self.decoders else ["parser", "buffer", "node"]
        absent += ["fetcher", "spare"] if self._per_process else []
        names = list(only) or [name for name in self.kinds if not name.endswith(tuple(absent))]
        weights = [self.kinds[name][1] for name in names]
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            (name,) = self.rng.choices(names, weights)
            time.sleep(self.rng.uniform(0.0, 1.0))
            print(f"{name:26} {self.fault(name):6.2f} s  {', '.join(self._late)}", flush=True)

    # --- judgement ----------------------------------------------------------------------------

    def judge(self) -> None:
        """Raises AssertionError: something was lost, reordered, or is not what SELECT says."""
        self._stop.set()
        self._writer.join()
        self._recovered("the last row")
        expected = self.work.rows()
        self._truth()
        for client_id, judge in self.judges.items():
            mine = {t: r for t, r in expected.items() if judge.filter.fullmatch(f"{DATABASE}.{t}")}
            assert mine, f"subscriber {client_id} has no tables"
            if client_id == BY_TCP:  # entries are text: of its rows the keys are compared
                mine = {table: {key: (key,) for key in rows} for table, rows in mine.items()}
            assert judge.differences(mine) == [], f"subscriber {client_id}"
            assert self._missing(client_id) == "", f"subscriber {client_id}"
        for sink in self.sinks:
            found = sink.differences(self.work, self._changes())
            assert found == [], f"{type(sink).__name__}: {len(found)}: {found[:5]}"

    def _changes(self) -> Iterable[Row]:
        """All changes in the source's logs."""
        return rows_decoded(self._binlogs)

    def _truth(self) -> None:
        self._binlogs = self.server.binlogs()

    def _missing(self, client_id: int) -> str:
        """What differs from the rows in the servers' logs."""
        return self.judges[client_id].missing(self._binlogs)

    def report(self) -> str:
        """What was received, and recovery times by group of faults."""
        lines = [
            f"subscriber {client_id}: {judge.received} rows received, {judge.repeated} of them "
            f"again, {judge.rows} taken once, {judge.timelines} timelines, "
            f"{judge.again_though_acked} again though acked; none lost, none out of order"
            for client_id, judge in self.judges.items()
        ]
        lines.append(f"{'group':12} {'faults':>6} {'p50':>7} {'p99':>7} {'max':>7}  (seconds)")
        for group, times in sorted(self.recoveries.items()):
            p50, p99 = (percentile(times, q) for q in (50, 99))
            lines.append(f"{group:12} {len(times):6} {p50:7.2f} {p99:7.2f} {max(times):7.2f}")
        return "\n".join(lines)


def percentile(values: Sequence[float], percent: int) -> float:
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
