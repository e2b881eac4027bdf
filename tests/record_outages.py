"""`python -m tests.record_outages`: what the metrics of a destination said in real outages, for the
unit tests of the alert rules (tests/unit/console/outages.json). Some ten minutes, as root: a disk
is made full, which is a file system of its own.

Each outage is made at a real MySQL server, or a proxy before it, and sampled every second; a quiet
time is before it, the recovery behind it. promtool plays a second as half a minute, so seconds that
are measured are multiplied by as much.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from ray_canal.config import CanalConfig, load
from ray_canal.console.collector import Collector, KnownDestination
from ray_canal.console.exposition import exposition
from ray_canal.meta.schema_store import chunk_key
from ray_canal.model.conditions import CONDITIONS
from ray_canal.model.metrics import PREFIX
from ray_canal.redrive import held, release
from ray_canal.render import plain
from tests.integration.test_quarantine import unknown_table
from tests.local_destination import LocalDestination, drain
from tests.proxy import Proxy
from tests.servers import Server, start

OUTAGES = Path(__file__).parent / "unit" / "console" / "outages.json"
STEP_S = 30
_QUIET, _AWAY, _AFTER = 12, 25, 30
_MEASURED = ("canal_lag_seconds", "canal_store_full_seconds", "canal_store_disk_failing_seconds")
_WANTED = {PREFIX + condition.metric for condition in CONDITIONS}
_LINE = re.compile(r"(\w+)(\{[^}]*\}) (\S+)")
NAME = "orders"

Series = dict[str, list[float | None]]
Begin = Callable[["Scene"], Awaitable[None]]


class Scene:
    """A destination over a server of its own."""

    def __init__(self, server: Server, proxy: Proxy, config: CanalConfig) -> None:
        self.server, self.proxy, self.config = server, proxy, config
        self.destination = self._begin()

    def _begin(self) -> LocalDestination:
        return LocalDestination(self.config.instance[0], self.config.meta)

    async def restart(self, *meanwhile: str) -> None:
        await self.destination.stop()
        if meanwhile:
            await self.execute(*meanwhile)
        self.destination = self._begin()

    async def redrive(self) -> None:
        """Take what is held aside away, and start over, as its page says."""
        await self.destination.stop()
        every = held(self.config, NAME)
        release(self.config, NAME, map(chunk_key, every))
        self.destination = self._begin()

    async def execute(self, *statements: str) -> None:
        await asyncio.to_thread(self.server.execute, *statements)

    async def sample(self) -> str:
        status = plain(await self.destination.status())
        return exposition([KnownDestination(name=NAME, status=status)])


def _note(series: Series, page: str, count: int) -> None:
    """Add a sample to each series, the `count`th; one that is not there has none."""
    for name, labels, value in _LINE.findall(page):
        if name in _WANTED:
            factor = STEP_S if name.removeprefix(PREFIX) in _MEASURED else 1
            known = series.setdefault(name + labels, [])
            known += [None] * (count - len(known))
            number = float(value) * factor
            known.append(number if number == number else None)
    for known in series.values():
        known += [None] * (count + 1 - len(known))


async def _away(scene: Scene) -> None:
    scene.proxy.refuse(True)


async def _back(scene: Scene) -> None:
    scene.proxy.refuse(False)


async def _write_much(scene: Scene) -> None:
    rows = ",".join(f"({{}}{i:04}, repeat('x', 200))" for i in range(200))
    await scene.execute(*(f"insert into shop.t values {rows.replace('{}', str(k))}"
                          for k in range(1, 9)))  # fmt: skip


async def _drain(scene: Scene) -> None:
    await drain(scene.destination, 7, 1000)


async def _leave_behind(scene: Scene) -> None:
    await scene.execute("insert into shop.t values (1, 'a')")
    await drain(scene.destination, 7, 1000)
    await scene.execute("flush binary logs", "insert into shop.t values (2, 'b')")


async def _read_up(scene: Scene) -> None:
    await drain(scene.destination, 7, 1000)


async def _purge_under_it(scene: Scene) -> None:
    """While the destination is down, and another subscriber is at the log's end."""
    await scene.destination.subscribe(8, r"shop\..*")
    await _leave_behind(scene)
    await drain(scene.destination, 8, 1000)
    await scene.execute("flush binary logs")
    await scene.restart("purge binary logs before now() + interval 1 day")


async def _remove(scene: Scene) -> None:
    await scene.destination.unsubscribe(7)


async def _lock(scene: Scene) -> None:
    await scene.execute("alter user cdc@'%' account lock")
    scene.proxy.cut()


async def _unlock(scene: Scene) -> None:
    await scene.execute("alter user cdc@'%' account unlock")


async def _unknown_table(scene: Scene) -> None:
    """While the destination is down: its catalog is then ahead of the log, and tells nothing."""
    await scene.destination.stop()
    await asyncio.to_thread(unknown_table, scene.server)
    await scene.restart()


async def _redrive(scene: Scene) -> None:
    scene.proxy.flip(b"", 0)
    await drain(scene.destination, 7, 1000)
    await scene.redrive()


async def _undecodable(scene: Scene) -> None:
    """A value whose length is beyond its event, on a server without checksums."""
    value = b"a value of this length"
    length = len(value).to_bytes(2, "little")
    scene.proxy.flip(length + value, 1000)
    await scene.execute(f"insert into shop.t values (1, '{value.decode()}')")


async def _fill_nearly(scene: Scene) -> None:
    """Until more than nine tenths are used, and not all: the log keeps room for what is on the
    way."""
    for number in range(1000):
        if (await scene.destination.status())["store"]["fill"] > 0.92:
            return
        await scene.execute(f"insert into shop.t values ({number}, repeat('x', 12000))")
        await asyncio.sleep(0.1)


async def _fill_disk(scene: Scene) -> None:
    (Path(scene.config.instance[0].store.spill_path) / "filler").write_bytes(bytes(DISK_BYTES))
    await _write_much(scene)


async def _free_disk(scene: Scene) -> None:
    (Path(scene.config.instance[0].store.spill_path) / "filler").unlink()
    await _drain(scene)


DISK_BYTES = 1 << 20
QUARANTINE = {"tsdb": {"on_ddl_error": "quarantine"}}
DEAD_LETTER = {"source": {"on_undecodable": "dead_letter"}}
SMALL: dict[str, Any] = {"store": {"buffer_size": 128, "memunit_bytes": 1024}, "chunk_bytes": 16384}
ROOMY: dict[str, Any] = {**SMALL, "store": {"buffer_size": 1024, "memunit_bytes": 1024}}
SPILLING = {**SMALL, "store": {**SMALL["store"], "policy": "spill"}}
SCENES: dict[str, tuple[Begin, Begin, dict[str, Any]]] = {
    "the source is away": (_away, _back, {}),
    "a subscriber does not read": (_write_much, _drain, SMALL),
    "a subscriber reads too slowly": (_fill_nearly, _drain, ROOMY),
    "the disk is full": (_fill_disk, _free_disk, SPILLING),
    "a table is not known": (_unknown_table, _redrive, QUARANTINE),
    "an event cannot be decoded": (_undecodable, _redrive, DEAD_LETTER),
    "a cursor lies in an old file": (_leave_behind, _read_up, {}),
    "the log of a cursor is purged": (_purge_under_it, _remove, {}),
    "the user is locked": (_lock, _unlock, {}),
}


async def _record(server: Server, folder: Path, name: str) -> Series:
    begin, end, more = SCENES[name]
    series: Series = {}
    server.execute("drop database if exists shop", "create database shop",
                   "create table shop.t (id int primary key, note text)")  # fmt: skip
    with Proxy(("127.0.0.1", server.port)) as proxy:
        source = {"address": proxy.address, "username": "cdc", "password": "cdc"}
        source |= {"tls": {"mode": "disabled"}, **more.get("source", {})}
        tree = {"destination": NAME, "source": source, "decoders": 0,
                **{key: value for key, value in more.items() if key != "source"}}  # fmt: skip
        if "policy" in more.get("store", {}):
            tree["store"] = {**more["store"], "spill_path": str(folder / "disk")}
        meta = {"path": str(folder / f"{name.replace(' ', '-')}.db")}
        scene = Scene(server, proxy, load({"instance": [tree], "meta": meta}))
        try:
            await scene.destination.wait_running(60)
            await scene.destination.subscribe(7, r"shop\..*")
            for count in range(_QUIET + _AWAY + _AFTER):
                if count == _QUIET:
                    await begin(scene)
                if count == _QUIET + _AWAY:
                    await end(scene)
                _note(series, await scene.sample(), count)
                await asyncio.sleep(1.0)
        finally:
            await scene.destination.stop()
    return series


class _Silent:
    """A cluster whose one destination stops answering."""

    def __init__(self, status: dict[str, Any]) -> None:
        self._status = status
        self.answers = threading.Event()
        self.answers.set()

    def destinations(self) -> list[str]:
        return [NAME]

    def status(self, destination: str) -> dict[str, Any]:
        self.answers.wait()
        return self._status

    def subscribers(self, destination: str) -> list[dict[str, Any]]:
        return []


async def _record_silence(status: dict[str, Any]) -> Series:
    """As the console's collector sees it."""
    series: Series = {}
    cluster = _Silent(status)
    collector = Collector(cluster, 1.0)
    collector.start()
    await asyncio.sleep(2.0)
    for count in range(_QUIET + _AWAY + _AFTER):
        if count == _QUIET:
            cluster.answers.clear()
        if count == _QUIET + _AWAY:
            cluster.answers.set()
        _note(series, exposition(collector.all()), count)
        await asyncio.sleep(1.0)
    collector.stop()
    return series


@contextlib.contextmanager
def _disk(folder: Path) -> Iterator[None]:
    """A small file system."""
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(folder)]
    subprocess.run(["mount", *options], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def main(names: list[str]) -> None:
    """Record them all, or those that are named again."""
    from tests.unit.console.played import STATUS

    found: dict[str, Any] = json.loads(OUTAGES.read_text())["outages"] if names else {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with _disk(folder / "disk"), start("mysql97", folder / "server") as server:
            server.execute(
                "create user cdc@'%' identified by 'cdc'",
                "grant select, replication slave, replication client on *.* to cdc@'%'",
                "set global binlog_expire_logs_seconds = 3600",
                "set global binlog_checksum = none",
                "set global binlog_row_metadata = minimal",
                "create database q",
                "create table q.light (a int)",
            )
            for scene in SCENES:
                if not names or scene in names:
                    print(scene, flush=True)
                    found[scene] = asyncio.run(_record(server, folder, scene))
    silent = "the destination does not answer"
    if not names or silent in names:
        print(silent, flush=True)
        found[silent] = asyncio.run(_record_silence(STATUS))
    told = {"step_s": STEP_S, "begins": _QUIET, "ends": _QUIET + _AWAY, "outages": found}
    OUTAGES.write_text(json.dumps(told, indent=None, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
