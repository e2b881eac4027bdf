"""Acks that are made behind the answers of a loop's calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ray_canal.destination.api import AckRequest
from ray_canal.destination.loop_acks import LoopAcks
from ray_canal.errors import BatchNotFound, MetaUnavailable, SubscriberReplaced

ME, ME_NOW = 7, "me"


class Disk:
    """Acks that take until `free` is set; `failures` are raised, one a call."""

    def __init__(self) -> None:
        self.free = asyncio.Event()
        self.free.set()
        self.failures: list[Exception] = []
        self.acked: list[int] = []
        self.told = 0
        self.acks = LoopAcks(self.ack, self.tell)

    async def ack(self, request: AckRequest) -> None:
        await self.free.wait()
        if self.failures:
            raise self.failures.pop(0)
        self.acked.append(request.batch_id)

    async def tell(self) -> None:
        self.told += 1

    def done(self, batch_id: int | None, holder: str = "me") -> Any:
        request = None
        if batch_id is not None:
            request = AckRequest(client_id=ME, holder=holder, batch_id=batch_id, epoch=1)
        return self.acks.begin(ME, holder, request)


def story(of: Callable[[Disk], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test that gets a disk, on an event loop."""

    async def told() -> None:
        await of(Disk())

    def test() -> None:
        asyncio.run(told())

    test.__doc__ = of.__doc__
    return test


@story
async def test_the_next_call_waits_for_it(disk: Disk) -> None:
    assert disk.done(None) is None
    disk.free.clear()
    first = disk.done(1)
    assert not first.is_late
    second = disk.done(2)
    assert second.is_late
    await asyncio.sleep(0)
    assert not second.task.done()
    disk.free.set()
    await second.task
    assert disk.acked == [1, 2]
    assert disk.done(None) is None


@story
async def test_a_call_that_comes_twice_acks_once(disk: Disk) -> None:
    disk.free.clear()
    disk.done(1)
    twice = disk.done(1)
    disk.free.set()
    await twice.task
    assert disk.acked == [1]


@story
async def test_what_the_backend_did_not_take_is_tried_again(disk: Disk) -> None:
    disk.failures = [MetaUnavailable("away")]
    first = disk.done(1)
    await asyncio.wait({first.task})
    assert (first.has_failed, disk.told) == (True, 1)
    again = disk.done(None)
    assert again.is_late
    await again.task
    assert disk.acked == [1]
    disk.failures = [MetaUnavailable("away"), MetaUnavailable("still")]
    disk.done(2)
    with pytest.raises(MetaUnavailable):
        await disk.acks.settle(ME, ME_NOW)
    with pytest.raises(MetaUnavailable):
        await disk.acks.settle(ME, ME_NOW)
    await disk.acks.settle(ME, ME_NOW)
    assert disk.acked == [1, 2]


@story
async def test_what_cannot_be_acked_is_no_later_calls_failure(disk: Disk) -> None:
    disk.failures = [BatchNotFound("acked"), SubscriberReplaced("by another one")]
    await disk.done(1).task
    replaced = disk.done(2)
    with pytest.raises(SubscriberReplaced):
        await replaced.task
    await disk.done(3).task
    assert disk.acked == [3]


@story
async def test_another_holder_acks_nothing_of_the_one_before(disk: Disk) -> None:
    disk.failures = [MetaUnavailable("away")]
    await asyncio.wait({disk.done(1).task})
    assert disk.done(None, "another") is None
    await disk.acks.settle(ME, "another")
    assert disk.acked == []


@story
async def test_an_ack_of_the_holder_before_fails_no_call_of_another_one(disk: Disk) -> None:
    """Its cursor was not written; then another one has subscribed, and acks, without a loop."""
    disk.failures = [MetaUnavailable("away"), SubscriberReplaced("by another one")]
    await asyncio.wait({disk.done(1).task})
    await disk.acks.settle(ME, "another")
    with pytest.raises(SubscriberReplaced):
        await disk.acks.settle(ME, ME_NOW)
    assert disk.acked == []


@story
async def test_what_was_given_back_is_not_acked(disk: Disk) -> None:
    disk.failures = [MetaUnavailable("away")]
    await asyncio.wait({disk.done(1).task})
    disk.acks.forget(ME, 2)
    disk.acks.forget(ME, 1)
    await disk.acks.settle(ME, ME_NOW)
    assert disk.acked == []
