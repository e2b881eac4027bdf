"""The decode window follows the load: a pump in virtual time, whose decoders are timers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ray_canal.destination.decode_window import DecodeWindow
from ray_canal.destination.ports import Fetched
from ray_canal.destination.pump import Pump
from ray_canal.destination.status.stages import FetchReport
from tests.local_destination import instance
from tests.local_runtime import LocalRuntime
from tests.simulation.virtual_time import virtual_time
from tests.unit.destination.pumping import pumped


class Timers:
    """An upstream: a chunk comes every `fetch_s`, and takes `decode_s` of one of `cpus`."""

    calls_ahead = 1
    decoding_bytes = 0

    def __init__(self, phases: list[tuple[int, float]], decode_s: float, cpus: int) -> None:
        self._gaps = [fetch_s for chunks, fetch_s in phases for _ in range(chunks)]
        self._decode_s = decode_s
        self._cpus = asyncio.Semaphore(cpus)
        self.demand = self.demand_max = 0

    def next(self) -> Callable[[], Awaitable[Fetched]]:
        async def fetched() -> Fetched:
            if not self._gaps:
                return Fetched(report=FetchReport(False, True, 0.0, 0.0))
            await asyncio.sleep(self._gaps.pop(0))
            self.demand += 1
            self.demand_max = max(self.demand_max, self.demand)
            return Fetched(info=asyncio.create_task(self._decode()))

        return fetched

    async def _decode(self) -> None:
        async with self._cpus:
            await asyncio.sleep(self._decode_s)
        self.demand -= 1

    async def add(self, info: Any) -> Any:
        await info
        return SimpleNamespace(info=SimpleNamespace(stage_seconds={}, failure=None))

    def appended(self) -> None:
        return

    def hurry(self) -> None:
        """Chunks are there as they come."""

    def processes(self) -> dict[str, Any]:
        return {}


class Run:
    """Chunks of several phases: how many, and one every so many seconds."""

    def __init__(
        self, *phases: tuple[int, float], least: int = 1, most: int = 16, cpus: int = 100
    ) -> None:
        self.sizes: list[int] = []
        with virtual_time() as loop:
            began = loop.clock.now
            loop.run_until_complete(self._run([*phases], least, most, cpus))
            self.seconds = loop.clock.now - began

    async def _run(self, phases: list[tuple[int, float]], least: int, most: int, cpus: int) -> None:
        config = instance().model_copy(update={"decoders": most, "decoders_min": least})
        pump = Pump(config, LocalRuntime())
        pump.decoders, pump.window = most, DecodeWindow(least, most)
        timers = Timers(phases, 1.0, cpus)
        pump._upstream = timers  # type: ignore[assignment]

        def append(chunk: Any) -> None:
            self.sizes.append(pump.window.size)

        async def room(chunks: int, queued: Callable[[], int]) -> None:
            return

        await pumped(pump, append, room)
        self.demand_max = timers.demand_max


def test_it_grows_until_the_fetch_is_the_limit() -> None:
    run = Run((400, 0.1))
    assert 4 <= run.sizes[-1] <= 6  # ten side by side keep pace; two of a decoder are in flight
    assert min(run.sizes[60:]) >= 4
    assert run.seconds < 1.2 * 400 * 0.1


def test_it_stays_small_while_decoding_keeps_pace() -> None:
    assert set(Run((200, 1.1)).sizes) == {1}


def test_it_asks_for_more_cpus_than_there_are() -> None:
    """So an autoscaler sees what is needed, not what is there."""
    run = Run((200, 0.01), most=8, cpus=2)
    assert run.sizes[-1] == 8
    assert run.demand_max > 8
    # After a few chunks, not when the log has fallen behind for long.
    assert run.sizes.index(8) < 100


def test_it_shrinks_when_less_comes() -> None:
    run = Run((300, 0.05), (60, 1.5), least=2)
    assert max(run.sizes) > 8
    assert run.sizes[-1] == 2


@pytest.mark.parametrize(("least", "most"), [(1, 0), (4, 4), (9, 3)])
def test_limits_hold(least: int, most: int) -> None:
    clock = [0.0]
    window = DecodeWindow(least, most, lambda: clock[0])
    for _ in range(100):
        clock[0] += 1.0
        window.note(0, 1.0, 1.0)
    assert window.size == most
