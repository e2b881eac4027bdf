"""What connections of one server share."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

import pytest

from ray_canal.server import frames
from tests.canal_client import RawClient
from tests.served_destination import Decoded, ServedDestination
from tests.unit.server.conftest import run, serving


def test_a_small_batch_is_rendered_at_once_when_nothing_has_to_be_loaded(
    shop: Decoded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loading kernels, or compiling them, would keep all connections waiting."""
    rendered, threads = frames.rendered, list[int]()

    def noted(*batch: Any) -> Any:
        threads.append(threading.get_ident())
        return rendered(*batch)

    monkeypatch.setattr(frames, "rendered", noted)

    async def test() -> None:
        async with serving({"shop": ServedDestination(shop)}) as server:
            client = await RawClient.logged_in(server.port)
            await client.subscribe("shop")
            for is_loaded in (False, True):
                loading = server._shared.loading = Future[None]()
                if is_loaded:
                    loading.set_result(None)
                assert (await client.get("shop", fetch_size=1)).batch_id > 0
                assert (threads.pop() == threading.get_ident()) == is_loaded
            await client.close()

    run(test)
