"""Batches that were taken from the log and cannot be sent."""

from __future__ import annotations

import pytest

from ray_canal.canal import packet as packets
from tests.canal_client import RawClient
from tests.served_destination import Decoded, ServedDestination
from tests.unit.server.conftest import run, serving
from tests.unit.server.test_connection import rendered


def test_a_batch_that_cannot_be_sent_comes_with_the_next_get(
    shop: Decoded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A get of less is what its error asks for; that brought what comes after the batch."""

    async def test() -> None:
        store = ServedDestination(shop)
        async with serving({"shop": store}) as server:
            client = await RawClient.logged_in(server.port)
            await client.subscribe("shop")
            first = await client.get("shop", fetch_size=3)
            with monkeypatch.context() as patch:
                patch.setattr(packets, "FRAME_BYTES_MAX", 100_000)
                client.ask("shop", fetch_size=1 << 20)
                assert "get smaller batches" in (await client.ack()).error_message
            assert store.outstanding(1001) == [first.batch_id]
            found = list(first.messages)
            client.confirm("shop", first.batch_id)
            while (message := await client.get("shop", fetch_size=1000)).batch_id != -1:
                found += message.messages
                client.confirm("shop", message.batch_id)
            assert found == rendered(shop)
            await client.close()

    run(test)
