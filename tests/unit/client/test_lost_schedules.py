"""Any schedule of calls and losses: rows arrive, in order, and nothing is outstanding in vain."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ray_canal.client.connector import AsyncConnector, Connector
from ray_canal.client.message import Message
from ray_canal.client.transport import RayTransport
from ray_canal.errors import InstanceRestarted
from tests.lossy_calls import ANSWER_LOST, DELIVERED, LATE, REQUEST_LOST, LossyCalls
from tests.unit.client.conftest import Row, client_ids, rows_of

FATES = st.lists(
    st.sampled_from([DELIVERED, DELIVERED, ANSWER_LOST, REQUEST_LOST, LATE]), max_size=3
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["take", "take", "take", "ack", "ack", "roll back", "roll back from", "loop", "get"]
        ),
        st.integers(1, 60),
        FATES,
    ),
    min_size=5,
    max_size=40,
)


class Consumer:
    """Follows the documented recipe, and checks what it is promised."""

    def __init__(self, lossy: LossyCalls, connector: Any, every_row: list[Row]) -> None:
        self.lossy = lossy
        self.connector = connector
        self.every_row = every_row
        self.known: list[Message] = []
        self.taken: list[Row] = []
        self.acked: Row = ()

    def take(self, message: Message) -> None:
        """Keep the highest id, skip what is not above it."""
        for row in rows_of(message):
            assert row > self.acked, "what is acked does not come again"
            if not self.taken or row > self.taken[-1]:
                self.taken.append(row)

    def check(self) -> None:
        assert self.taken == self.every_row[: len(self.taken)], "a row was left out"
        mine = [message.id for message in self.known]
        assert self.lossy.outstanding(self.connector.client_id) == mine

    def forget(self) -> None:
        self.known.clear()


Step = Callable[[Consumer, int], Awaitable[None]]


async def _done(answer: Any) -> Any:
    """Of a connector that blocks, or of one that is awaited."""
    return await answer if asyncio.iscoroutine(answer) else answer


async def _take(consumer: Consumer, size: int) -> None:
    message = await _done(consumer.connector.get_without_ack(size, 0.0005))
    consumer.take(message)
    if message:
        consumer.known.append(message)
    consumer.check()


async def _ack(consumer: Consumer, size: int) -> None:
    if not consumer.known:
        return
    first = consumer.known[0]
    try:
        await _done(consumer.connector.ack(first.id))
    except InstanceRestarted:
        consumer.forget()
        return
    del consumer.known[0]
    consumer.acked = max([consumer.acked, *rows_of(first)])
    consumer.check()


async def _roll_back(consumer: Consumer, size: int) -> None:
    try:
        await _done(consumer.connector.rollback())
    except InstanceRestarted:
        return
    finally:
        consumer.forget()
    consumer.check()


async def _roll_back_from(consumer: Consumer, size: int) -> None:
    if not consumer.known:
        return
    at = size % len(consumer.known)
    batch_id = consumer.known[at].id
    try:
        await _done(consumer.connector.rollback(batch_id))
    except InstanceRestarted:
        # It may not have been carried out: these come again with the next get.
        del consumer.known[at:]
        return
    del consumer.known[at:]
    consumer.check()


async def _loop(consumer: Consumer, size: int) -> None:
    if consumer.known:
        return
    count, messages = 1 + size % 5, consumer.connector.messages(size, 0.0005)
    if isinstance(messages, Iterator):
        for message in itertools.islice(messages, count):
            consumer.take(message)
        messages.close()  # type: ignore[attr-defined]
    else:
        async with contextlib.aclosing(messages) as closing:
            async for message in closing:
                consumer.take(message)
                if not (count := count - 1):
                    break


async def _get(consumer: Consumer, size: int) -> None:
    if not consumer.known:
        consumer.take(await _done(consumer.connector.get(size, 0.0005)))


DO: dict[str, Step] = {
    "take": _take,
    "ack": _ack,
    "roll back": _roll_back,
    "roll back from": _roll_back_from,
    "loop": _loop,
    "get": _get,
}
CALLS = {"take": "get_without_ack", "ack": "ack", "loop": "poll", "get": "get"}


async def run(consumer: Consumer, steps: list[tuple[str, int, list[str]]]) -> None:
    lossy = consumer.lossy
    await _done(consumer.connector.subscribe())
    for step, size, fates in steps:
        call = CALLS.get(step, "rollback")
        # A rollback that is carried out late takes back what was handed out since: not asked here.
        lossy.fates[call].extend(f for f in fates if call != "rollback" or f != LATE)
        await DO[step](consumer, size)
        lossy.fates.clear()
        if size % 3:
            lossy.let_late_ones_come()
    lossy.let_late_ones_come()
    await _done(consumer.connector.rollback())
    consumer.forget()
    while message := await _done(consumer.connector.get_without_ack(1 << 16, 0.0005)):
        consumer.take(message)
        await _done(consumer.connector.ack(message.id))
    assert consumer.taken == consumer.every_row
    await _done(consumer.connector.unsubscribe())


@settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=STEPS, waits=st.booleans())
def test_any_schedule_of_calls_and_losses(
    lossy: LossyCalls, every_row: list[Row], steps: list[tuple[str, int, list[str]]], waits: bool
) -> None:
    """A5, b12, D10: each row arrives, in order; nothing is outstanding that the client does not
    know after its next get; what it acked does not come again; the documented recipe loses
    nothing."""
    kind = AsyncConnector if waits else Connector
    connector = kind(RayTransport("x"), next(client_ids))
    asyncio.run(run(Consumer(lossy, connector, every_row), steps))
