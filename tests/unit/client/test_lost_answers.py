"""Answers that are lost, calls that are cancelled: a real Store, over calls that fail as Ray's."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ray_canal.client import transport
from ray_canal.client.connector import AsyncConnector
from ray_canal.client.transport import RayTransport
from ray_canal.destination.api import DestinationApi
from ray_canal.destination.supervisor import FINISHED, RUNNING
from ray_canal.errors import InstanceRestarted
from tests.driven_connector import both_connectors
from tests.lossy_calls import (
    ANSWER_LOST,
    DELIVERED,
    LATE,
    REQUEST_LOST,
    LossyCalls,
)
from tests.unit.client.conftest import Row, client_ids, connected, rows_of


@both_connectors
def test_a_get_whose_answer_is_lost_brings_the_same_batch_again(
    connector_of: Any, lossy: LossyCalls, every_row: list[Row]
) -> None:
    """A5, b12: a get that is made again does not skip what the first one handed out, and who keeps
    the highest id misses nothing."""
    connector, taken = connected(connector_of), []
    lossy.fates["poll"].extend([DELIVERED, DELIVERED, ANSWER_LOST])
    for message in connector.messages(20, 0.1):
        taken += rows_of(message)
        assert lossy.outstanding(connector.client_id) == [message.id]
    assert taken == every_row


@pytest.mark.parametrize("kind", ["get_without_ack", "get"])
@both_connectors
def test_several_batches_stay_outstanding_where_an_answer_is_lost(
    connector_of: Any, lossy: LossyCalls, every_row: list[Row], kind: str
) -> None:
    """A5, b12: what the client has stays outstanding, what it has not comes again."""
    connector = connected(connector_of)
    known = [connector.get_without_ack(10, 0.1) for _ in range(3)]
    if kind == "get":
        for message in known:
            connector.ack(message.id)
    lossy.fates[kind].extend([ANSWER_LOST, LATE, ANSWER_LOST])
    fourth = getattr(connector, kind)(10, 0.1)
    lossy.let_late_ones_come()
    rows = [row for message in (*known, fourth) for row in rows_of(message)]
    assert rows == every_row[: len(rows)]
    if kind == "get":
        assert connector.list_batch_ids() == lossy.outstanding(connector.client_id) == []
    else:
        ids = [message.id for message in (*known, fourth)]
        assert connector.list_batch_ids() == lossy.outstanding(connector.client_id) == ids
        for batch_id in ids:
            connector.ack(batch_id)


@both_connectors
def test_an_ack_of_which_nobody_knows_whether_it_was_done(
    connector_of: Any, lossy: LossyCalls, every_row: list[Row]
) -> None:
    """A5: "what was not acked will be delivered again" is true, and no later ack is out of turn."""
    for fate in (REQUEST_LOST, ANSWER_LOST, LATE):
        connector, taken = connected(connector_of), []
        for number in itertools.count():
            message = connector.get_without_ack(50, 0.1)
            if not message:
                break
            lossy.let_late_ones_come()
            if number == 2:
                lossy.fates["ack"].append(fate)
                with pytest.raises(InstanceRestarted, match="delivered again"):
                    connector.ack(message.id)
                if fate == ANSWER_LOST:
                    taken += rows_of(message)
            else:
                taken += rows_of(message)
                connector.ack(message.id)
        assert taken == every_row


@both_connectors
def test_get_returns_what_arrived_though_its_ack_failed(
    connector_of: Any, lossy: LossyCalls, every_row: list[Row], caplog: pytest.LogCaptureFixture
) -> None:
    """A5: get acks what has arrived; where the ack's answer is lost, the message is not."""
    for fate in (REQUEST_LOST, ANSWER_LOST):
        connector, taken, number = connected(connector_of), set[Row](), 0
        while message := connector.get(50, 0.1):
            taken |= set(rows_of(message))
            lossy.fates["ack"].append(fate if (number := number + 1) % 3 else DELIVERED)
        assert sorted(taken) == every_row
    assert "may come again" in caplog.text


def test_a_loop_that_is_interrupted_while_it_waits_goes_on_where_it_was(
    lossy: LossyCalls, every_row: list[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A5: the ack of the message that a loop was done with is not forgotten with the loop."""
    connector, taken, really, calls = connected(), [], lossy.submit, itertools.count(1)
    interrupted = [2, 5]

    def submit(method: Any, *arguments: Any) -> Any:
        reply = really(method, *arguments)
        if method is DestinationApi.poll and next(calls) in interrupted:
            raise KeyboardInterrupt
        return reply

    monkeypatch.setattr(lossy, "submit", submit)
    for _ in range(3):
        with contextlib.suppress(KeyboardInterrupt):
            for message in connector.messages(50, 0.1):
                taken += rows_of(message)
    assert taken == every_row
    assert next(calls) > 8


# --- asyncio -----------------------------------------------------------------------------------


def connected_async() -> AsyncConnector:
    return AsyncConnector(RayTransport("x"), next(client_ids))


@pytest.mark.parametrize("told", [True, False], ids=["Ray cancels it", "it goes on"])
def test_a_get_that_is_given_up_leaves_nothing_outstanding(
    lossy: LossyCalls,
    every_row: list[Row],
    quiet: Quiet,
    monkeypatch: pytest.MonkeyPatch,
    told: bool,
) -> None:
    """A5, D19: asyncio.wait_for around a get; its batch comes with the next one."""
    if not told:
        monkeypatch.setattr("ray.cancel", lambda _: None)

    async def test() -> None:
        async with connected_async() as connector:
            await connector.subscribe()
            first = await connector.get_without_ack(10, 1.0)
            quiet.begin()
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(connector.get_without_ack(10, 10.0), 0.05)
            quiet.end()
            await wake(lossy)
            assert await connector.list_batch_ids() == [first.id]
            second = await connector.get_without_ack(10, 1.0)
            assert lossy.outstanding(connector.client_id) == [first.id, second.id]
            rows = rows_of(first) + rows_of(second)
            assert rows == every_row[: len(rows)]
            await connector.ack(first.id)
            await connector.ack(second.id)

    asyncio.run(test())


def test_a_cancelled_loop_goes_on_where_it_was(
    lossy: LossyCalls, every_row: list[Row], quiet: Quiet
) -> None:
    """A5, D19: an `async for` that is cancelled while it waits, or in its body."""

    async def test() -> None:
        taken: list[Row] = []
        async with connected_async() as connector:
            await connector.subscribe()

            async def read(count: int, body_s: float) -> None:
                async for message in connector.messages(50, 10.0):
                    if not (count := count - 1):
                        await asyncio.sleep(body_s)  # cancelled there, the message comes again
                        quiet.begin()
                    taken.extend(rows_of(message))

            for body_s in (0.0, 10.0, 0.0):
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(read(3, body_s), 1.0)
                quiet.end()
                await wake(lossy)
            async for message in connector.messages(50, 0.1):
                taken.extend(rows_of(message))
        assert taken == every_row

    asyncio.run(test())


def test_a_cancelled_get_with_its_ack_loses_nothing(
    lossy: LossyCalls, every_row: list[Row]
) -> None:
    """A5: AsyncConnector.get, cancelled at any moment."""

    async def test() -> None:
        taken: set[Row] = set()
        async with connected_async() as connector:
            await connector.subscribe()
            for ticks in itertools.cycle(range(12)):
                getting = asyncio.ensure_future(connector.get(40, 0.1))
                for _ in range(ticks):
                    await asyncio.sleep(0.0005)
                if ticks:
                    getting.cancel()
                try:
                    message = await getting
                except asyncio.CancelledError:
                    continue
                if not message:
                    break
                taken |= set(rows_of(message))
            assert await connector.list_batch_ids() == []
        assert lossy.outstanding(connector.client_id) == []
        assert sorted(taken) == every_row

    asyncio.run(test())


def test_the_bodys_error_comes_out_of_an_async_loop(
    lossy: LossyCalls, every_row: list[Row]
) -> None:
    """D10, b13: not the error of the rollback behind it."""

    async def test() -> None:
        async with connected_async() as connector:
            await connector.subscribe()
            lossy.fates["rollback"].append(REQUEST_LOST)
            messages = connector.messages(10, 0.1)
            first = await anext(messages)
            with pytest.raises(ZeroDivisionError):
                await messages.athrow(ZeroDivisionError())  # type: ignore[attr-defined]
            again = await connector.get_without_ack(10, 0.1)
            assert rows_of(again) == rows_of(first)
            assert await connector.list_batch_ids() == [again.id]

    asyncio.run(test())


def test_a_new_cluster_is_joined_beside_the_event_loop(
    lossy: LossyCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D10: looking for the store in another cluster takes up to a minute; other tasks go on."""
    joined, went_on = threading.Event(), threading.Event()

    def keep_joined(timeout: float) -> None:
        assert went_on.wait(30)
        joined.set()

    async def test() -> None:
        async with connected_async() as connector:
            await connector.subscribe()
            monkeypatch.setattr(transport, "keep_joined", keep_joined)
            monkeypatch.setattr(transport, "times_joined", lambda: 1)
            getting = asyncio.ensure_future(connector.get_without_ack(10, 1.0))
            await asyncio.sleep(0.01)
            assert not joined.is_set()
            went_on.set()
            assert await getting
            assert joined.is_set()

    asyncio.run(test())


class Quiet:
    """The log seems to have nothing more, and not to be at its end: as of a quiet server."""

    def __init__(self, lossy: LossyCalls) -> None:
        self._supervisor = lossy.destination.state.supervisor
        self._log: Any = lossy.destination.state.log.pipeline.store  # type: ignore[union-attr]

    def begin(self) -> None:
        self._log.ready = lambda *_, **__: False
        self._supervisor.state = RUNNING

    def end(self) -> None:
        vars(self._log).pop("ready", None)
        self._supervisor.state = FINISHED


@pytest.fixture
def quiet(lossy: LossyCalls) -> Iterator[Quiet]:
    quiet = Quiet(lossy)
    yield quiet
    quiet.end()


async def wake(lossy: LossyCalls) -> None:
    lossy.ask(lossy.destination.state.changed.wake())
    await asyncio.sleep(0.05)
