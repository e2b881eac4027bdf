"""Acks that a client of Canal's protocol sends just before it closes its connection."""

from __future__ import annotations

import asyncio

import pytest

from tests.canal_client import RawClient
from tests.served_destination import Decoded, ServedDestination
from tests.unit.server.conftest import run, serving


@pytest.mark.parametrize("waits", [False, True])
def test_acks_that_a_client_sends_before_it_closes_are_carried_out(
    shop: Decoded, waits: bool
) -> None:
    """Acks have no answer, so Canal's clients need not wait for any. `waits`: a get of the client
    is before them."""

    async def test() -> None:
        store = ServedDestination(shop, released=6)
        async with serving({"shop": store}) as server:
            one = await RawClient.logged_in(server.port)
            await one.subscribe("shop")
            got = [await one.get("shop", fetch_size=3) for _ in range(4)]
            if waits:
                one.ask("shop", fetch_size=1 << 30, timeout=0)  # so many never come
            for message in got[:3]:
                one.confirm("shop", message.batch_id)
            await one.close()
            while server.status()["connections"]:
                await asyncio.sleep(0.01)
            other = await RawClient.logged_in(server.port)
            await other.subscribe("shop")
            again = await other.get("shop", fetch_size=3)
            assert list(again.messages) == list(got[3].messages)
            await other.close()

    run(test)
