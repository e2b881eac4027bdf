"""Snapshots into a subscriber's log under torture: writers, restarts, kills, pauses, DDL.

    python -m tests.snapshot_torture --runs 200 --server mysql97 [--mode consistent] [--seed N]
        [--without RULE]

Each run has a seed, which makes it again as far as a server's timing lets it. At SNAPSHOT_END, and
after all changes, what was applied is what the tables hold. `--without` switches one rule off: then
some run must fail, or the judge is no judge. In mode "consistent" a table without a key is there,
too: all tables are bags of rows, and each change is of a row that is held.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pymysql

from ray_canal.model.snapshot_ledger import ENDED
from ray_canal.model.snapshot_wish import CONSISTENT, KEYED, SnapshotMode
from ray_canal.model.subscription import Subscription
from ray_canal.snapshot import row_reader
from ray_canal.snapshot.changes import touched_keys
from ray_canal.snapshot.marks import PlaceLow
from ray_canal.snapshot.result import ResultReader
from tests.integration.test_snapshot_keyed import (
    CREATE,
    KEYS,
    Judge,
    Writers,
    held_now,
    literal,
    statement,
)
from tests.local_destination import LocalDestination
from tests.servers import Server, start
from tests.snapshot_runs import CLIENT, Bags, Taker, destination_at

TABLES = r"keyed\..*"
_QUICK = {"reconnect_max_s": 0.5}
ALL_KEYS = {**KEYS, "r": ("k",)}
"""A fourth table has a key of a random type."""
BAG = "bag"
KINDS = {
    "bigint unsigned": lambda r: str(r.choice((r.randrange(90), (1 << 64) - 1 - r.randrange(90)))),
    "bigint": lambda r: str(r.choice((-1, 1)) * r.randrange(1 << 62, (1 << 62) + 90)),
    "char(36) character set latin1": lambda r: f"'{uuid.UUID(int=r.randrange(150) << 90)}'",
    "binary(16)": lambda r: f"X'{r.randrange(150) << 100:032x}'",
    "decimal(20,5)": lambda r: str(Decimal(r.randrange(-90, 90)) / 8),
    "datetime(6)": lambda r: f"'2026-01-01 00:00:{r.randrange(60):02}.{r.randrange(3):06}'",
    "varchar(20) character set utf8mb4 collate utf8mb4_general_ci": lambda r: (
        f"'{r.choice(('a', 'A', 'ä', 'é', 'ß', '日'))}{r.randrange(20)}'"
    ),
    "varchar(20) character set utf8mb4 collate utf8mb4_bin": lambda r: (
        f"'{r.choice(('a', 'A', 'ä', 'é', 'ß', '日'))}{r.randrange(20)}'"
    ),
    "varchar(20) character set gbk": lambda r: f"'{r.choice('中文a')}{r.randrange(40)}'",
}  # fmt: skip
"""Type of the key: its literals."""
RULES = ("low is what is executed", "both images", "touched keys")
LIMIT_S = 120.0


class Wrong(Exception):
    """What was applied is not what the tables hold."""


@contextlib.contextmanager
def without(rule: str) -> Iterator[None]:
    """Switch a rule off, for servers with GTIDs."""
    with contextlib.ExitStack() as patches:
        if rule == "low is what is executed":
            really_read = row_reader.RowReader.read

            def written(self: Any, order: Any) -> Any:
                self._marks.low = lambda: PlaceLow(self._marks.high())
                return really_read(self, order)

            patches.enter_context(mock.patch.object(row_reader.RowReader, "read", written))
        elif rule == "both images":
            def after_alone(part: Any, keys: Any) -> Any:
                tables = tuple(one._replace(before=None) for one in part.chunk.layout.tables)
                layout = part.chunk.layout._replace(tables=tables)
                chunk = type(part.chunk)(layout, part.chunk.arena)
                return touched_keys(type(part)(
                    part.info, chunk, part.first, part.last, part.closed, part.end
                ), keys)  # fmt: skip

            touching = "ray_canal.snapshot.changes.touched_keys"
            patches.enter_context(mock.patch(touching, after_alone))
        elif rule == "touched keys":
            really_place = row_reader.RowReader.place

            def place_all(self: Any, number: int, touched: Any, doubted: Any, place: Any) -> Any:
                return really_place(self, number, (), doubted, place)

            patches.enter_context(mock.patch.object(row_reader.RowReader, "place", place_all))
        yield


def say_of(kind: str, *, bag: bool) -> Callable[[random.Random], str]:
    """Statements of all tables, of which the fourth has a key of this type, a fifth has none."""

    def say(r: random.Random) -> str:
        if bag and r.random() < 0.2:
            return r.choice((
                f"insert into keyed.bag values ({r.randrange(9)}, 'x'), ({r.randrange(9)}, 'x')",
                f"update keyed.bag set t = 'y' where v = {r.randrange(9)} limit 3",
                f"delete from keyed.bag where v = {r.randrange(9)} limit 2",
            ))
        if r.random() < 0.7:
            return statement(r)
        key, other, value = KINDS[kind](r), KINDS[kind](r), r.randrange(1 << 30)
        return r.choice((
            f"insert into keyed.r values ({key}, {value}) on duplicate key update v = {value}",
            f"replace into keyed.r values ({key}, {value})",
            f"update keyed.r set k = {other}, v = {value} where k = {key}",
            f"delete from keyed.r where k = {key}",
        ))

    return say


def make_tables(server: Server, r: random.Random, kind: str, *, bag: bool) -> None:
    server.execute(
        "drop database if exists keyed", "create database keyed", *CREATE,
        f"create table keyed.r (k {kind} not null primary key, v int)",
    )  # fmt: skip
    if bag:
        values = ", ".join(f"({number % 9}, null)" for number in range(400))
        server.execute(
            f"create table keyed.{BAG} (v int, t varchar(9))",
            f"insert into keyed.{BAG} values {values}",
        )
    rows = ", ".join(f"({number}, {r.randrange(1 << 30)})" for number in range(200, 1000))
    statements = [f"insert into keyed.n values {rows}"]
    for _ in range(200):
        name = r.choice(tuple(KEYS))
        _, values = literal(r, name)
        statements.append(f"replace into keyed.{name} values {values.format(r.randrange(1 << 30))}")
        statements.append(f"replace into keyed.r values ({KINDS[kind](r)}, {r.randrange(1 << 30)})")
    server.execute("begin", *statements, "commit", "analyze table keyed.n")


class Run:
    """One snapshot beside writers, with up to three disturbances."""

    def __init__(self, server: Server, folder: Path, seed: int, mode: SnapshotMode) -> None:
        self._server, self._folder, self._seed = server, folder, seed
        self._r = r = random.Random(seed)
        self._kind = r.choice(tuple(KINDS))
        self._mode = mode
        self._settings = {
            "chunk_bytes": 65536, "readers": r.choice((1, 2, 3)), "bytes": 1 << 20,
            "rows_per_s": r.choice((0, 1500, 4000)), "mode": mode, "may_lock": True,
        }  # fmt: skip
        self._tables = tuple(ALL_KEYS) if mode == KEYED else (*ALL_KEYS, BAG)
        self._judge: Judge | Bags = Judge(ALL_KEYS) if mode == KEYED else Bags(self._tables)
        self.done = dict.fromkeys(("restarts", "kills", "crashes", "pauses", "ddl"), 0)

    async def go(self, *, calm: bool) -> dict[str, int]:
        """Take it. Raises Wrong."""
        r, server, judge = self._r, self._server, self._judge
        bag = BAG in self._tables
        make_tables(server, r, self._kind, bag=bag)
        destination = await self._begun()
        left = 0 if calm else r.randrange(4)
        say = say_of(self._kind, bag=bag)
        with Writers(server, r.choice((1, 3, 6)), self._seed, say).running():
            await destination.subscribe(
                CLIENT, TABLES, wishes=Subscription(snapshot="initial")
            )
            taker = Taker(destination)
            taker.judge = judge
            deadline = time.monotonic() + LIMIT_S
            while (now := await taker.state())["state"] not in ENDED:
                if time.monotonic() > deadline:
                    raise Wrong(f"seed {self._seed}: it does not end: {now}")
                await taker.take(0.1, size=r.choice((4, 32, 256)))
                if left and r.random() < 0.15:
                    left -= 1
                    await self._disturb(taker)
            if now["state"] != "done":
                raise Wrong(f"seed {self._seed}: {now}")
        await taker.drain()
        await taker.destination.stop()
        self._compare()
        return {**self.done, "read": judge.read}

    async def _begun(self) -> LocalDestination:
        destination = destination_at(
            self._server, self._folder, snapshot=self._settings, source=_QUICK
        )
        await destination.wait_running(60)
        return destination

    async def _disturb(self, taker: Taker) -> None:
        if (await taker.state())["state"] != "running":
            return
        if isinstance(taker.judge, Judge):
            taker.judge.repeats = True
        what = self._r.choice(("restarts", "restarts", "kills", "crashes", "pauses", "ddl"))
        self.done[what] += 1
        if what == "restarts":
            await taker.take(0.1, ack=False)
            await taker.destination.stop()
            if isinstance(taker.judge, Bags):  # what was not acked comes again, or is void
                taker.judge.void = set(self._tables)
            taker.destination = await self._begun()
            await taker.destination.subscribe(CLIENT, TABLES)
        elif what == "kills":
            kill_connections(self._server)
        elif what == "crashes":
            self._server.kill()
            self._server.start()
            self._server.execute("set global sync_binlog = 1")
        elif what == "pauses" and self._mode == KEYED:
            await pause(taker)
        elif what == "pauses":
            await begin_anew(taker, self._tables)
        else:
            await asyncio.to_thread(self._alter)

    def _alter(self) -> None:
        """A table of one moment that was read keeps DDL waiting until the end."""
        with contextlib.suppress(pymysql.err.MySQLError):
            self._server.execute(
                "set session lock_wait_timeout = 1",
                f"alter table keyed.u comment '{self._seed}'",
            )

    def _compare(self) -> None:
        """Raises Wrong."""
        applied: dict[str, Any]
        held: dict[str, Any]
        if isinstance(self._judge, Bags):
            applied = {name: +rows for name, rows in self._judge.rows.items()}
            held = {
                name: Counter(self._server.execute(f"select * from keyed.{name}"))
                for name in self._tables
            }
        else:
            applied, held = self._judge.rows, held_now(self._server, ALL_KEYS)
        for name in self._tables:
            if applied[name] != held[name]:
                wrong = set(applied[name].items()) ^ set(held[name].items())
                some = sorted(map(str, wrong))[:6]
                raise Wrong(f"seed {self._seed}: {name}: {some}")


async def begin_anew(taker: Taker, tables: Sequence[str]) -> None:
    """Cancel a snapshot of one moment, which cannot pause, and start another one."""
    api = taker.destination.api
    if (await taker.state())["state"] == "running":
        assert isinstance(taker.judge, Bags)
        await api.snapshot(CLIENT, "cancel")
        taker.judge.void = set(tables)  # its changes are of rows that have not come
        await taker.take(0.3)
        await api.snapshot(CLIENT, "start", (), "", CONSISTENT)


async def pause(taker: Taker) -> None:
    api = taker.destination.api
    if (await taker.state())["state"] == "running":
        await api.snapshot(CLIENT, "pause")
        await taker.take(0.3)
        if (await taker.state())["state"] == "paused":
            await api.snapshot(CLIENT, "resume")


def kill_connections(server: Server) -> None:
    """End every connection but our own and those of writers: readers, plan, dump."""
    for row in server.execute("show processlist"):
        if row[4] in ("Sleep", "Binlog Dump", "Binlog Dump GTID") and row[3] is None:
            with contextlib.suppress(pymysql.err.MySQLError):
                server.execute(f"kill {row[0]}")


def run(
    server: Server, seed: int, rule: str = "", *, calm: bool = False, mode: SnapshotMode = KEYED
) -> dict[str, int]:
    """One run. Raises Wrong, AssertionError: a message's rows contradict what is held."""
    folder = Path(tempfile.mkdtemp(prefix="snapshot-torture-"))
    small = partial(ResultReader, buffer_bytes=8192)  # several chunks a table
    with (
        server.with_global("sync_binlog", "1"),
        without(rule),
        mock.patch("ray_canal.snapshot.moment_reader.ResultReader", small),
        mock.patch("ray_canal.snapshot.consistent._PART_BYTES", 1 << 14),
    ):
        work = Run(server, folder, seed, mode).go(calm=calm)
        return asyncio.run(asyncio.wait_for(work, 2 * LIMIT_S))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--server", default="mysql97", choices=("mysql97", "mysql56", "mariadb"))
    parser.add_argument("--mode", default=KEYED, choices=(KEYED, CONSISTENT))
    parser.add_argument("--without", default="", choices=("", *RULES))
    options = parser.parse_args()
    total: dict[str, int] = {}
    wrong = 0
    with tempfile.TemporaryDirectory() as folder, start(options.server, Path(folder)) as server:
        for seed in range(options.seed, options.seed + options.runs):
            try:
                calm, mode = bool(options.without), options.mode
                found = run(server, seed, options.without, calm=calm, mode=mode)
            except (Wrong, AssertionError) as error:
                wrong += 1
                print(f"seed {seed}: {str(error)[:300]}", flush=True)
                continue
            total = {key: total.get(key, 0) + value for key, value in found.items()}
    print(f"{options.runs} runs, {wrong} wrong; {total}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
