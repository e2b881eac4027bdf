"""Acks that go with a loop's next get, and what becomes of one that fails."""

from __future__ import annotations

import asyncio

import pytest

from ray_canal.destination.api import AckRequest, ClientRequest, PollRequest
from ray_canal.destination.loop_acks import LoopAcks
from ray_canal.errors import BatchNotFirst, BatchNotFound, CanalError, MetaUnavailable


def poll(done: int | None, holder: str = "") -> PollRequest:
    return PollRequest(
        client_id=7,
        batch_size=1,
        timeout=1.0,
        holder=holder,
        done=None if done is None else (done, 1),
    )


class Disk:
    """What was acked. `gate`: writes wait for it; `failures`: what the next writes raise."""

    def __init__(self) -> None:
        self.acked: list[int] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.failures: list[CanalError] = []
        self.woken = 0
        self.acks = LoopAcks(self.ack, self.wake)

    async def ack(self, request: AckRequest) -> None:
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        self.acked.append(request.batch_id)

    async def wake(self) -> None:
        self.woken += 1


async def is_waiting(task: asyncio.Task[None]) -> bool:
    return not (await asyncio.wait({task}, timeout=0.01))[0]


def test_one_ack_may_be_on_its_way_and_no_more() -> None:
    async def go() -> None:
        disk = Disk()
        disk.gate.clear()
        disk.acks.begin(poll(1))
        disk.acks.begin(poll(1))  # the call came twice
        await asyncio.wait_for(disk.acks.written(poll(1), but=1), 1)
        disk.acks.begin(poll(2))
        waiting = asyncio.ensure_future(disk.acks.written(poll(2), but=1))
        every = asyncio.ensure_future(disk.acks.written(ClientRequest(client_id=7)))
        assert await is_waiting(waiting)
        disk.gate.set()
        await every
        await waiting
        assert disk.acked == [1, 2]

    asyncio.run(go())


def test_what_could_not_be_written_is_told_once_and_written_before_what_follows() -> None:
    async def go() -> None:
        disk = Disk()
        disk.failures = [MetaUnavailable("the disk is away")]
        disk.acks.begin(poll(1))
        while not disk.woken:
            await asyncio.sleep(0)
        assert disk.acks.has_failed(poll(None))
        assert not disk.acks.has_failed(poll(None, "another connection"))
        with pytest.raises(MetaUnavailable):
            await disk.acks.written(poll(1), but=1)
        assert disk.acked == []
        disk.acks.begin(poll(2))
        await disk.acks.written(poll(2))
        assert disk.acked == [1, 2]

    asyncio.run(go())


def test_who_waits_for_an_ack_is_told_of_its_failure() -> None:
    async def go() -> None:
        disk = Disk()
        disk.gate.clear()
        disk.failures = [MetaUnavailable("the disk is away")]
        disk.acks.begin(poll(1))
        waiting = asyncio.ensure_future(disk.acks.written(poll(1)))
        assert await is_waiting(waiting)
        disk.gate.set()
        with pytest.raises(MetaUnavailable):
            await waiting
        assert not disk.acks.has_failed(poll(1))  # it was told
        disk.acks.begin(poll(1))  # the caller tries again
        await disk.acks.written(poll(1))
        assert disk.acked == [1]

    asyncio.run(go())


def test_an_ack_that_is_refused_is_told_and_not_repeated() -> None:
    async def go() -> None:
        disk = Disk()
        disk.failures = [BatchNotFound("it came again"), BatchNotFirst("another one is")]
        disk.acks.begin(poll(1))
        await disk.acks.written(poll(1))  # void
        disk.acks.begin(poll(2))
        with pytest.raises(BatchNotFirst):
            await disk.acks.written(poll(2))
        disk.acks.begin(poll(3))
        await disk.acks.written(poll(3))
        assert disk.acked == [3]

    asyncio.run(go())


def test_another_connection_does_not_wait_for_what_the_first_one_left() -> None:
    async def go() -> None:
        disk = Disk()
        disk.failures = [MetaUnavailable("the disk is away")]
        disk.acks.begin(poll(1, "old"))
        while not disk.woken:
            await asyncio.sleep(0)
        await disk.acks.written(poll(None, "new"))
        disk.acks.begin(poll(2, "new"))
        await disk.acks.written(poll(2, "new"))
        assert disk.acked == [2]

    asyncio.run(go())
