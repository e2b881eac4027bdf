"""A fault run over a cluster of several nodes and many destinations (`make fault-cluster`).

    python -m tests.fault.cluster_run --minutes 20 --destinations 24 --nodes 4 --seed 1 [--no-redis]

Each destination has a database of its own on one of three real servers, in which rows 1, 2, 3, …
are written all the time. Readers are on a node that stays. After each fault, the recovery of a
destination is the longest time that a row written since then took to arrive. Every row has to come,
in order. With `--no-redis` the head's state dies with it, and whoever supervises the nodes starts
all of them and the deployment again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pymysql

from tests.fault.cluster_faults import KINDS, Cluster
from tests.fault.ray_nodes import RayNodes
from tests.fault.run import percentile
from tests.processes import wait_for
from tests.servers import Server, start
from tests.servers.redis import start_redis

SERVERS = ("mysql97", "mysql56", "mariadb")
PERIOD_S = 0.25
"""So often each destination gets a row."""
RECOVERY_MAX_S = 240.0
LIVE_S = 1.5
"""A row that takes longer has waited for something."""


class Writer(threading.Thread):
    """Rows 1, 2, 3, … for the destinations of one server; `times`: when each was written."""

    def __init__(self, server: Server, names: Sequence[str], over: threading.Event) -> None:
        super().__init__(daemon=True)
        self.server = server
        self.times: dict[str, list[float]] = {name: [] for name in names}
        self._over = over

    def create(self) -> None:
        for name in self.times:
            self.server.execute(
                f"create database {name}",
                f"create table {name}.t (id int primary key, body varchar(200))",
            )
        # Each destination would read the statements of all, one after the other.
        self.server.execute("flush binary logs")
        newest = self.server.execute("show binary logs")[-1][0]
        self.server.execute(f"purge binary logs to '{newest}'")

    def run(self) -> None:
        while not self._over.is_set():
            # Where the server was killed, the row may be there already.
            with (
                contextlib.suppress(pymysql.err.MySQLError, OSError),
                self.server.connect(autocommit=True) as connection,
            ):
                self._write(connection.cursor())
            time.sleep(0.2)

    def _write(self, cursor: Any) -> None:
        while not self._over.wait(PERIOD_S):
            for name, times in self.times.items():
                now = time.time()
                cursor.execute(
                    f"insert ignore into {name}.t values (%s, %s)",
                    (len(times) + 1, name * random.randrange(1, 40)),
                )
                times.append(now)


class Received:
    """What the readers have written of one destination."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self.times: list[float] = []
        self.wrong = ""

    def read(self) -> None:
        """Take what is new. The ids have to be 1, 2, 3, …"""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                row = json.loads(line)
                if row["id"] != len(self.times) + 1 and not self.wrong:
                    self.wrong = f"row {row['id']} came behind row {len(self.times)}"
                self.times.append(row["at"])


class ClusterRun:
    """`with ClusterRun(...) as run: run.fault("kill node"); run.judge()`."""

    def __init__(
        self, servers: Sequence[Server], cluster: Cluster, folder: Path, count: int, redis: str
    ) -> None:
        self.cluster, self._folder = cluster, folder
        self.names = [f"d{number:02d}" for number in range(count)]
        self._over = threading.Event()
        self.writers = [
            Writer(server, self.names[k :: len(servers)], self._over)
            for k, server in enumerate(servers)
        ]
        self.received = {name: Received(folder / f"{name}.jsonl") for name in self.names}
        self.recoveries: dict[str, list[float]] = defaultdict(list)
        self.faults: Counter[str] = Counter()
        self.beside: list[float] = []
        cluster.config.write_text(self._config(redis))
        cluster.servers = {name: writer.server for writer in self.writers for name in writer.times}

    def _config(self, redis: str) -> str:
        # What was on a node that dies finds room in the processes of those that are left.
        share = -(-len(self.names) // (len(self.cluster.workers) - 1))
        text = (
            f'[meta]\nbackend = "redis"\naddress = "{redis}"\n'
            f'[ray]\nnode = "any"\ndestinations_per_process = {share}\n[log]\nformat = "json"\n'
        )
        for writer in self.writers:
            for name in writer.times:
                text += (
                    f'[[instance]]\ndestination = "{name}"\ndecoders = 0\n'
                    f'[instance.source]\naddress = "{writer.server.address}"\nusername = "root"\n'
                    'start = "earliest"\nheartbeat_s = 1.0\nread_timeout_s = 5.0\n'
                    f"reconnect_max_s = 2.0\n[instance.filter]\ntables = '{name}\\..*'\n"
                )
        return text

    def __enter__(self) -> ClusterRun:
        try:
            for writer in self.writers:
                writer.create()
            self.cluster.start()
            for writer in self.writers:
                writer.start()
            self._recovered(time.time())
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *failure: object) -> None:
        self._over.set()
        for writer in self.writers:
            if writer.is_alive():
                writer.join(30)
        self.cluster.close()

    def _written(self) -> dict[str, int]:
        return {name: len(times) for each in self.writers for name, times in each.times.items()}

    def _read(self) -> None:
        for received in self.received.values():
            received.read()

    def _recovered(self, since: float) -> dict[str, float]:
        """Wait until rows that are written from now on arrive, and all nodes are there; return
        the longest delay of a row of each destination that was written since then."""
        marks, asked = self._written(), time.time()

        def is_live() -> bool:
            self._read()
            if self.cluster.seen().get("at", 0.0) > asked:
                self.cluster.note("the controller")
            arrived = all(len(self.received[name].times) > n for name, n in marks.items())
            if arrived:
                self.cluster.note("rows of all")
            return arrived and self.cluster.is_whole(self.names, asked)

        def behind() -> str:
            slow = [n for n, count in marks.items() if len(self.received[n].times) <= count]
            return f"rows arrive again; behind: {slow}; {self.cluster.seen()}"

        try:
            wait_for(is_live, RECOVERY_MAX_S, "all is live again")
        except AssertionError as error:
            raise AssertionError(f"{error}; {behind()}") from error
        delays: dict[str, float] = {}
        for writer in self.writers:
            for name, times in writer.times.items():
                arrived = self.received[name].times
                delays[name] = max(
                    (got - put for put, got in zip(times, arrived, strict=False) if put >= since),
                    default=0.0,
                )
        return delays

    def fault(self, kind: str) -> str:
        """Do it, and wait until all is well; return a line about it."""
        since = time.time()
        self.cluster.times = {}
        group, _, act = KINDS[kind]
        hit = act(self.cluster)
        took_s = time.time() - since
        delays = self._recovered(since)
        whole_s = time.time() - since
        mine = [delays[name] for name in self.names if name in hit]
        others = [delays[name] for name in self.names if name not in hit]
        self._tell_slowest(since, delays)
        self.faults[group] += 1
        self.recoveries[group] += mine
        self.beside += others
        return (
            f"{kind:18} {took_s:6.1f} s; {len(mine):2} destinations hit, their rows waited up to "
            f"{max(mine, default=0.0):5.1f} s; others' up to {max(others, default=0.0):5.1f} s; "
            f"whole again after {whole_s:5.1f} s ({self._steps(since)})"
        )

    def _tell_slowest(self, since: float, delays: dict[str, float]) -> None:
        """Print the steps of the destination that came back last, in seconds after the fault."""
        name = max(delays, key=lambda each: delays[each])
        puts = next(each.times[name] for each in self.writers if name in each.times)
        pairs = zip(puts, self.received[name].times, strict=False)
        arrived = next(got for put, got in pairs if put >= since and got - put == delays[name])
        found = [(at, step) for at, step, whose in self.cluster.steps(since) if whose in ("", name)]
        for at, step in sorted([*found, (arrived, f"its first row, {name}'s")]):
            print(f"    {at - since:5.1f} {step}", flush=True)

    def _steps(self, since: float) -> str:
        """Return how long each step of the recovery took, in their order."""
        done = sorted((at, step) for step, at in self.cluster.times.items())
        befores = [since, *(at for at, _ in done)]
        return ", ".join(
            f"{step} {at - before:.1f}" for before, (at, step) in zip(befores, done, strict=False)
        )

    def random_faults(self, seconds: float, rng: random.Random, only: Sequence[str] = ()) -> None:
        """One after the other until the time is over."""
        names = list(only) or list(KINDS)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            (kind,) = rng.choices(names, [KINDS[name][1] for name in names])
            print(self.fault(kind), flush=True)
            time.sleep(rng.uniform(1.0, 4.0))

    def judge(self) -> None:
        """Raises AssertionError: a row was lost, or came out of order."""
        self._over.set()
        for writer in self.writers:
            writer.join(30)
        there = {
            name: int(writer.server.execute(f"select max(id) from {name}.t")[0][0])
            for writer in self.writers
            for name in writer.times
        }

        def all_arrived() -> bool:
            self._read()
            return all(len(self.received[name].times) >= count for name, count in there.items())

        wait_for(all_arrived, RECOVERY_MAX_S, "every row has arrived")
        wrong = {name: each.wrong for name, each in self.received.items() if each.wrong}
        assert not wrong, wrong
        counts = {name: len(each.times) for name, each in self.received.items()}
        assert counts == there

    def report(self) -> str:
        """Recovery by group of faults; those that were not hit; how even the nodes were at last."""
        rows = sum(len(each.times) for each in self.received.values())
        lines = [
            f"{rows} rows of {len(self.names)} destinations; none lost, none out of order",
            f"{'group':9} {'faults':>6} {'hit':>5} {'p50':>6} {'p99':>6} {'max':>6}  (seconds)",
        ]
        for group, found in sorted(self.recoveries.items()):
            p50, p99 = (percentile(found, q) for q in (50, 99))
            lines.append(
                f"{group:9} {self.faults[group]:6} {len(found):5} {p50:6.1f} {p99:6.1f} "
                f"{max(found):6.1f}"
            )
        if self.beside:
            live = sum(delay <= LIVE_S for delay in self.beside) / len(self.beside)
            lines.append(
                f"not hit: {len(self.beside)}; p50 {percentile(self.beside, 50):.1f} s, p99 "
                f"{percentile(self.beside, 99):.1f} s; {live:.0%} within {LIVE_S} s"
            )
        lines.append(f"destinations by node at last: {self.cluster.counts()}")
        return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--destinations", type=int, default=24)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--kinds", default="", help=f"with commas, of: {', '.join(KINDS)}")
    parser.add_argument("--keep", type=Path, help="leave logs in this folder")
    parser.add_argument("--no-redis", action="store_true", help="the head's state dies with it")
    given = parser.parse_args()
    only = [kind.strip() for kind in given.kinds.split(",") if kind.strip()]
    if unknown := set(only) - set(KINDS):
        sys.exit(f"no kind {', '.join(sorted(unknown))}; there are: {', '.join(KINDS)}")
    print(f"seed {given.seed}, {given.destinations} destinations, {given.nodes} nodes", flush=True)
    settings = given.destinations, given.nodes, given.seed
    with (
        tempfile.TemporaryDirectory() as temporary,
        cluster_run(given.keep or Path(temporary), *settings, redis=not given.no_redis) as run,
    ):
        run.random_faults(60 * given.minutes, random.Random(given.seed), only)
        run.judge()
        print(run.report(), flush=True)


@contextlib.contextmanager
def cluster_run(folder: Path, count: int, nodes: int, seed: int, *, redis: bool) -> Any:
    """A run over three servers; `redis`: the head's state outlives it."""
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        options = {"max-connections": str(100 + 4 * count)}
        servers = [stack.enter_context(start(kind, folder / kind, options)) for kind in SERVERS]
        cursors = stack.enter_context(start_redis(folder / "cursors"))
        state = stack.enter_context(start_redis(folder / "state")) if redis else None
        ray_nodes = RayNodes(folder, state.address if state else "")
        stack.callback(ray_nodes.remove)
        cluster = Cluster(ray_nodes, folder, nodes, random.Random(seed))
        yield stack.enter_context(ClusterRun(servers, cluster, folder, count, cursors.address))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted: everything is stopped, nothing was judged")
