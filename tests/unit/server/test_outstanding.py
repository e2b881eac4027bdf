"""Calls that the server makes of itself around a batch, and that fail: the destination is away."""

from __future__ import annotations

from typing import Any

import pytest

from ray_canal.canal import packet as packets
from ray_canal.destination.api import DestinationApi, Method, Q, R
from ray_canal.errors import InstanceNotRunning
from tests.canal_client import RawClient
from tests.served_destination import Decoded, ServedDestination
from tests.unit.server.conftest import run, serving
from tests.unit.server.test_connection import rendered


class Unreachable(ServedDestination):
    """A destination of which some calls fail, so often as `failures` says by their name."""

    def __init__(self, chunks: Decoded, **options: Any) -> None:
        super().__init__(chunks, **options)
        self.failures: dict[str, int] = {}

    async def call_async(self, method: Method[Q, R], request: Q) -> R:
        left = self.failures.get(method.__name__, 0)
        if left:
            self.failures[method.__name__] = left - 1
            raise InstanceNotRunning("no answer from the destination's process")
        return await super().call_async(method, request)


ACK, ROLLBACK = DestinationApi.ack.__name__, DestinationApi.rollback.__name__


async def all_of(client: RawClient, **fields: Any) -> list[bytes]:
    """Get and ack until nothing is left; return the entries."""
    found: list[bytes] = []
    while (message := await client.get("shop", **fields)).batch_id != -1:
        found += message.messages
        if not fields.get("auto_ack"):
            client.confirm("shop", message.batch_id)
    return found


@pytest.mark.parametrize("failures", [1, 2])
def test_a_batch_that_could_not_be_given_back_comes_with_the_next_get(
    shop: Decoded, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    """It stayed outstanding, and acks of all later ones were refused with BatchNotFirst."""

    async def test() -> None:
        store = Unreachable(shop)
        async with serving({"shop": store}) as server:
            client = await RawClient.logged_in(server.port)
            await client.subscribe("shop")
            first = await client.get("shop", fetch_size=3)
            store.failures[ROLLBACK] = failures
            with monkeypatch.context() as patch:
                patch.setattr(packets, "FRAME_BYTES_MAX", 100_000)
                client.ask("shop", fetch_size=1 << 20)
                assert "get smaller batches" in (await client.ack()).error_message
            for _ in range(failures - 1):
                client.ask("shop")
                assert "no answer from" in (await client.ack()).error_message
            client.confirm("shop", first.batch_id)
            assert list(first.messages) + await all_of(client) == rendered(shop)
            assert store.outstanding(1001) == []
            await client.close()

    run(test)


@pytest.mark.parametrize("goes_on_by", ["get", "ack"])
def test_an_automatic_ack_that_fails_is_no_second_answer(shop: Decoded, goes_on_by: str) -> None:
    """The client took the error for the answer to its next request, and so on."""

    async def test() -> None:
        store = Unreachable(shop)
        async with serving({"shop": store}) as server:
            client = await RawClient.logged_in(server.port)
            await client.subscribe("shop")
            store.failures[ACK] = 2
            first = await client.get("shop", fetch_size=3, auto_ack=True)
            client.ask("shop", auto_ack=True)  # the ack comes first, and fails again
            assert "no answer from" in (await client.ack()).error_message
            assert store.outstanding(1001) == [first.batch_id]
            if goes_on_by == "ack":
                client.confirm("shop", first.batch_id)
            found = await all_of(client, auto_ack=True)
            assert list(first.messages) + found == rendered(shop)
            assert store.outstanding(1001) == []
            await client.close()

    run(test)


@pytest.mark.parametrize("rolled_back", [None, 0, 1])
def test_a_rollback_takes_back_what_an_automatic_ack_has_not_reached(
    shop: Decoded, rolled_back: int | None
) -> None:
    """`rolled_back`: all, or the batch so far after the one that is not acked."""

    async def test() -> None:
        store = Unreachable(shop)
        async with serving({"shop": store}) as server:
            client = await RawClient.logged_in(server.port)
            await client.subscribe("shop")
            store.failures[ACK] = 1
            first = await client.get("shop", fetch_size=3, auto_ack=True)
            found = list(first.messages) if rolled_back else []
            client.roll_back("shop", None if rolled_back is None else first.batch_id + rolled_back)
            if rolled_back:
                assert "is not exist" in (await client.ack()).error_message
            assert found + await all_of(client, auto_ack=True) == rendered(shop)
            await client.close()

    run(test)


def test_an_automatic_ack_that_failed_is_made_when_the_client_has_gone(shop: Decoded) -> None:
    async def test() -> None:
        store = Unreachable(shop)
        async with serving({"shop": store}) as server:
            client = await RawClient.logged_in(server.port)
            await client.subscribe("shop")
            store.failures[ACK] = 1
            first = await client.get("shop", fetch_size=3, auto_ack=True)
            await client.close()
            other = await RawClient.logged_in(server.port)
            await other.subscribe("shop")
            assert list(first.messages) + await all_of(other) == rendered(shop)
            await other.close()

    run(test)


def test_a_get_with_auto_ack_is_refused_while_batches_are_outstanding(shop: Decoded) -> None:
    """As Canal's `get` has it: its ack would be refused, for another batch comes first."""

    async def test() -> None:
        store = ServedDestination(shop)
        async with serving({"shop": store}) as server:
            client = await RawClient.logged_in(server.port)
            await client.subscribe("shop")
            first = await client.get("shop", fetch_size=3)
            client.ask("shop", auto_ack=True)
            refusal = (await client.ack()).error_message
            assert "BatchesUnacked" in refusal, refusal
            assert store.outstanding(1001) == [first.batch_id]
            client.confirm("shop", first.batch_id)
            found = await all_of(client, auto_ack=True)
            assert list(first.messages) + found == rendered(shop)
            await client.close()

    run(test)
