"""Calls over a store process's local socket: a real socket between threads, an actor that answers
as Ray's does."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
import ray
import uvloop

from ray_canal.actors import local_server, store_calls
from ray_canal.actors.local_server import LocalServer
from ray_canal.actors.store_calls import CallFailed, LocalCall
from ray_canal.errors import BatchNotFound, InstanceNotRunning
from ray_canal.model.message import MessageHead, MessagePart

TRACKED = MessageHead(7, 1, (MessagePart("a reference that Ray tracks", 0, 1, None),))


class Reference:
    """Refers to what a call of the actor returned."""

    def __init__(self, answer: Future[Any]) -> None:
        self.answer = answer

    def future(self) -> Future[Any]:
        return self.answer

    def __await__(self) -> Any:
        return asyncio.wrap_future(self.answer).__await__()


class Method:
    def __init__(self, begin: Callable[..., Future[Any]]) -> None:
        self._begin = begin

    def remote(self, *arguments: Any) -> Reference:
        return Reference(self._begin(*arguments))


class Actor:
    """A store process: its event loop is a thread of this one."""

    def __init__(self, new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self.new_loop, self.loop = new_loop, new_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        self.server = LocalServer(self._call)
        self.cancelled = 0
        self.has_socket = True
        self.local_socket = Method(lambda node: self.run(self._name()))
        self.collect = Method(lambda number: self.run(self._collect(number)))

    def run(self, work: Any) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    async def _name(self) -> str:
        return await self.server.name() if self.has_socket else ""

    async def _collect(self, number: int) -> Any:
        return self.server.collect(number)

    async def _call(self, destination: str, method: str, *arguments: Any) -> Any:
        if method == "wait":
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        if method == "fail":
            raise BatchNotFound("no such batch")
        if method == "get":
            return TRACKED
        return destination, method, arguments

    def close(self) -> None:
        """End its socket and connections."""

        async def close() -> None:
            self.server.close()
            await asyncio.sleep(0.05)

        self.run(close()).result()

    def end(self) -> None:
        self.close()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def actor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Actor]:
    """Ray's actors run on uvloop where it is installed, else on asyncio's event loop."""
    monkeypatch.setattr(store_calls, "actor_id", lambda actor: str(id(actor)))
    monkeypatch.setattr(store_calls, "_known", {})
    monkeypatch.setattr(store_calls, "this_node", lambda: "here")
    monkeypatch.setattr(store_calls, "_may_try", lambda: True)
    monkeypatch.setattr(local_server, "is_portable", lambda answer: answer is not TRACKED)
    monkeypatch.setattr(ray, "get", lambda reference: reference.answer.result(60))
    made = Actor(request.param)
    yield made
    for calls in list(store_calls._known.values()):
        calls.close()
    made.end()


def begun(actor: Actor, method: str, *arguments: Any) -> LocalCall:
    """The first call asks for the socket, and goes by Ray."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        call = store_calls.begin(actor, "orders", method, arguments)
        if call is not None:
            return call
        time.sleep(0.001)
    raise AssertionError("the socket was not found")


def both(actor: Actor, method: str, *arguments: Any) -> Iterator[Callable[[], Any]]:
    """Blocking, and on an event loop."""
    yield lambda: begun(actor, method, *arguments).result()

    async def awaited() -> Any:
        return await begun(actor, method, *arguments).wait()

    yield lambda: asyncio.run(awaited())


def test_the_first_call_goes_by_ray_the_others_over_the_socket(actor: Actor) -> None:
    assert store_calls.begin(actor, "orders", "ack", (1,)) is None
    for _ in range(3):
        for call in both(actor, "ack", 1, "x" * 500_000):
            assert call() == ("orders", "ack", (1, "x" * 500_000))
    assert len(store_calls._known[str(id(actor))]._idle) == 1  # one connection did for all


def test_what_the_store_raises_is_told(actor: Actor) -> None:
    for call in both(actor, "fail"):
        with pytest.raises(CallFailed, match="no such batch") as told:
            call()
        assert isinstance(told.value.cause, BatchNotFound)


def test_an_answer_with_references_is_collected_by_ray(actor: Actor) -> None:
    for call in both(actor, "get"):
        assert call() == TRACKED
    assert not actor.server._kept


def test_an_answer_that_nobody_collects_is_forgotten(actor: Actor) -> None:
    actor.collect = Method(lambda number: _failed(InstanceNotRunning("gone")))
    for call in both(actor, "get"):
        with pytest.raises(InstanceNotRunning):
            call()
    deadline = time.monotonic() + 10
    while actor.server._kept and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not actor.server._kept


def _failed(error: Exception) -> Future[Any]:
    found: Future[Any] = Future()
    found.set_exception(error)
    return found


def test_a_cancelled_call_ends_in_the_store_and_the_connection_goes_on(actor: Actor) -> None:
    async def test() -> Any:
        call = begun(actor, "wait")
        waiting = asyncio.ensure_future(call.wait())
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        call.cancel()
        with pytest.raises(CallFailed, match="cancelled"):
            await call.wait()
        return await begun(actor, "ack").wait()

    assert asyncio.run(test()) == ("orders", "ack", ())
    assert actor.cancelled == 1


def test_a_call_that_is_cancelled_before_the_store_has_begun_it_is_answered(actor: Actor) -> None:
    """Call and cancellation arrive together where the store's event loop is busy."""

    async def test() -> Any:
        call = begun(actor, "wait")
        actor.loop.call_soon_threadsafe(time.sleep, 0.3)
        waiting = asyncio.ensure_future(call.wait())
        await asyncio.sleep(0.05)
        call.cancel()
        with pytest.raises(CallFailed, match="cancelled"):
            await asyncio.wait_for(waiting, 10)
        return await begun(actor, "ack").wait()

    assert asyncio.run(test()) == ("orders", "ack", ())


def test_a_connection_that_ends_cancels_its_call(actor: Actor) -> None:
    call = begun(actor, "wait")
    thread = threading.Thread(target=_lost, args=[call])
    thread.start()
    time.sleep(0.05)
    call._connection.shutdown(2)
    thread.join(10)
    deadline = time.monotonic() + 10
    while not actor.cancelled and time.monotonic() < deadline:
        time.sleep(0.01)
    assert actor.cancelled == 1


def _lost(call: LocalCall) -> None:
    with pytest.raises(InstanceNotRunning):
        call.result()


def test_a_process_that_ended_is_looked_for_again(actor: Actor) -> None:
    for call in both(actor, "ack"):
        assert call() == ("orders", "ack", ())
        actor.close()
        with pytest.raises(InstanceNotRunning, match="has ended"):
            call()
        actor.server = LocalServer(actor._call)  # its next life
        assert call() == ("orders", "ack", ())


def test_a_process_that_ended_keeps_no_connection_open(actor: Actor) -> None:
    """A driver that starts and stops destinations ran out of file descriptors."""
    assert begun(actor, "ack").result()
    second = Actor(actor.new_loop)
    try:
        begun(second, "ack").result()
        assert set(store_calls._known) == {str(id(actor)), str(id(second))}
        actor.close()
        third = Actor(actor.new_loop)
        try:
            begun(third, "ack").result()
            assert set(store_calls._known) == {str(id(second)), str(id(third))}
            assert begun(second, "ack").result() == ("orders", "ack", ())
        finally:
            third.end()
    finally:
        second.end()


def test_a_process_without_a_socket_is_called_by_ray(actor: Actor) -> None:
    actor.has_socket = False
    assert [store_calls.begin(actor, "orders", "ack", ()) for _ in range(3)] == [None] * 3
