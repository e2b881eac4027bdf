"""`python -m tests.record_outages`: what the metrics of a destination said in real outages, for the
unit tests of the alert rules (tests/unit/console/outages.json). Some six minutes.

Each outage is made at a real MySQL server, or a proxy before it, and sampled every second; a quiet
time is before it, the recovery behind it. promtool plays a second as half a minute, so seconds that
are measured are multiplied by as much.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from ray_canal.config import InstanceConfig, MetaConfig
from ray_canal.console.collector import Collector, Known
from ray_canal.console.exposition import exposition
from ray_canal.model.conditions import CONDITIONS
from ray_canal.model.metrics import PREFIX
from ray_canal.render import plain
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

    def __init__(self, server: Server, proxy: Proxy, begin: Callable[[], LocalDestination]) -> None:
        self.server, self.proxy, self._begin = server, proxy, begin
        self.destination = begin()

    async def restart(self, *meanwhile: str) -> None:
        await self.destination.stop()
        await self.execute(*meanwhile)
        self.destination = self._begin()

    async def execute(self, *statements: str) -> None:
        await asyncio.to_thread(self.server.execute, *statements)

    async def sample(self) -> str:
        status = plain(await self.destination.status())
        return exposition([Known(name=NAME, status=status)])


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


SCENES: dict[str, tuple[Begin, Begin, dict[str, Any]]] = {
    "the source is away": (_away, _back, {}),
    "a subscriber does not read": (
        _write_much,
        _drain,
        {"store": {"buffer_size": 128, "memunit_bytes": 1024}, "chunk_bytes": 16384},
    ),
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
        tree = {"destination": NAME, "source": source, "decoders": 0, **more}
        meta = MetaConfig(path=str(folder / f"{name.replace(' ', '-')}.db"))
        config = InstanceConfig.model_validate(tree)
        scene = Scene(server, proxy, lambda: LocalDestination(config, meta))
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


def main(names: list[str]) -> None:
    """Record them all, or those that are named again."""
    from tests.unit.console.played import STATUS

    found: dict[str, Any] = json.loads(OUTAGES.read_text())["outages"] if names else {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with start("mysql97", folder / "server") as server:
            server.execute(
                "create user cdc@'%' identified by 'cdc'",
                "grant select, replication slave, replication client on *.* to cdc@'%'",
                "set global binlog_expire_logs_seconds = 3600",
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
