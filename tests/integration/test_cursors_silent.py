"""The cursors' server does not answer: packets are dropped, connections stay. B4, b9."""

from __future__ import annotations

import asyncio
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from ray_canal.config import MetaConfig
from ray_canal.errors import InstanceRestarted, MetaUnavailable
from ray_canal.model.message import EMPTY_BATCH
from tests.local_destination import LocalDestination, destination_of
from tests.pace import Pace
from tests.proxy import Proxy

CLIENTS = range(1, 6)
SILENT_S = 8.0
LATENCY_S_MAX = 1.0
ALL = r".*\..*"


class Reader:
    """A client of the store's, as actors/calls.py is: it tries again after MetaUnavailable."""

    def __init__(self, store: LocalDestination, client_id: int) -> None:
        self._store, self._client_id = store, client_id
        self.seen: list[str] = []
        self.unavailable = 0

    async def read(self) -> None:
        """Everything, each batch acked."""
        finished = False
        while not finished:
            head = await self._again("get_without_ack", 1, 0.5)
            finished = head.finished and head.id == EMPTY_BATCH
            if head.id != EMPTY_BATCH and await self._acked(head):
                self.seen.append(f"{head.start} {head.end}")

    async def _acked(self, head: Any) -> bool:
        try:
            await self._again("ack", head.id, head.epoch)
        except InstanceRestarted:
            return False
        return True

    async def _again(self, method: str, *arguments: Any) -> Any:
        while True:
            try:
                return await getattr(self._store, method)(self._client_id, *arguments)
            except MetaUnavailable:
                self.unavailable += 1
            await asyncio.sleep(0.1)


async def worst_latency(until_s: float) -> float:
    """The longest that a call which does nothing had to wait, as the controller's `hold` does, for
    anything but a busy machine."""
    worst_s = 0.0
    while time.monotonic() < until_s:
        with Pace() as pace:
            await asyncio.sleep(0.01)
        worst_s = max(worst_s, pace.seconds)
    return worst_s


@pytest.fixture(params=["mysql97", "redis_server"])
def behind(request: pytest.FixtureRequest) -> Any:
    """A proxy in front of a real server, and the configuration that goes through it."""
    server = request.getfixturevalue(request.param)
    host, port = server.address.rsplit(":", 1)
    backend = "redis" if request.param == "redis_server" else "mysql"
    with Proxy((host, int(port))) as proxy:
        yield proxy, MetaConfig(
            backend=backend,
            address=proxy.address,
            username="" if backend == "redis" else "root",
            database=f"meta_{uuid.uuid4().hex[:12]}",
            timeout_s=2.0,
        )


@pytest.mark.timed
def test_the_loop_turns_and_all_goes_on_when_it_is_back(behind: Any, tmp_path: Path) -> None:
    """B4, b9: nobody is lost, and who only asks whether the store lives is answered at once."""
    proxy, meta = behind

    async def go() -> None:
        async with destination_of(tmp_path, meta=meta) as store:
            readers = [Reader(store, client_id) for client_id in CLIENTS]
            for client_id in CLIENTS:
                await store.subscribe(client_id, ALL)
            reading = [asyncio.create_task(reader.read()) for reader in readers]
            while not all(len(reader.seen) > 3 for reader in readers):
                await asyncio.sleep(0.01)
            proxy.stall(True)
            before = [len(reader.seen) for reader in readers]
            worst_s = await worst_latency(time.monotonic() + SILENT_S)
            assert worst_s < LATENCY_S_MAX
            for reader, count in zip(readers, before, strict=True):
                assert len(reader.seen) <= count + 1
                assert reader.unavailable
            proxy.stall(False)
            await asyncio.gather(*reading)
            status = await store.status()
            assert (status["state"], status["generations"]) == ("finished", 1)
        async with destination_of(tmp_path) as calm:
            await calm.subscribe(1, ALL)
            alone = Reader(calm, 1)
            await alone.read()
        for reader in readers:
            assert reader.seen == alone.seen

    asyncio.run(go())
