"""How connectors wait for their transport."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from ray_canal.client.message import Message
from ray_canal.client.waiting import InThread, OnLoop, Waiting
from ray_canal.destination.api import ClientRequest, DestinationApi
from ray_canal.destination.blocking import complete
from ray_canal.model.message import MessageHead, MessagePart


class Transport:
    """Answers with the name of the thread that calls."""

    def call(self, method: Any, request: Any, *, once: bool = False) -> Any:
        return "call", method.__name__, request.client_id

    async def call_async(self, method: Any, request: Any) -> Any:
        await asyncio.sleep(0)
        return "call_async", method.__name__, request.client_id


def message(seen: list[str], *, untracked: bool) -> Message:
    def load(payloads: list[Any]) -> list[Any]:
        seen.append(threading.current_thread().name)
        return payloads

    return Message(MessageHead(1, 1, (MessagePart(5, 0, 1, None),), untracked=untracked), load)


async def _story(waiting: Waiting) -> list[Any]:
    seen: list[Any] = [await waiting.call(DestinationApi.touch, ClientRequest(client_id=7))]
    await waiting.fetch(message(seen, untracked=True), always=False)
    await waiting.fetch(message(seen, untracked=False), always=False)
    await waiting.fetch(message(seen, untracked=False), always=True)

    async def work() -> None:
        seen.append("worked")

    async with waiting.turn:
        begun = await waiting.start(work())
    if begun is not None:
        await begun
    return seen


def test_in_a_thread_everything_is_done_there() -> None:
    here = threading.current_thread().name
    transport: Any = Transport()
    assert complete(_story(InThread(transport))) == [("call", "touch", 7), here, here, "worked"]


def test_on_a_loop_chunks_are_fetched_in_another_thread() -> None:
    transport: Any = Transport()
    called, *threads, worked = asyncio.run(_story(OnLoop(transport)))
    assert (called, worked) == (("call_async", "touch", 7), "worked")
    assert len(threads) == 2
    assert threading.current_thread().name not in threads


def test_turns_come_one_after_the_other() -> None:
    transport: Any = Transport()
    waiting, order = InThread(transport), []

    async def get(name: str, inside: threading.Event, go_on: threading.Event) -> None:
        async with waiting.turn:
            order.append(name)
            inside.set()
            assert go_on.wait(30)
            order.append(name)

    first, second, go_on = threading.Event(), threading.Event(), threading.Event()
    threads = [
        threading.Thread(target=lambda: complete(get("first", first, go_on))),
        threading.Thread(target=lambda: complete(get("second", second, go_on))),
    ]
    threads[0].start()
    assert first.wait(30)
    threads[1].start()
    assert not second.wait(0.1)
    go_on.set()
    for thread in threads:
        thread.join(30)
    assert order == ["first", "first", "second", "second"]
