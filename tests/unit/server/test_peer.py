"""A client's socket: its time limits, and what happens when the client goes away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from ray_canal.canal.session import Session
from ray_canal.config import ServerConfig
from ray_canal.server.access import Access
from ray_canal.server.limits import MemoryBudget, Places
from ray_canal.server.peer import Gone, Peer
from ray_canal.server.shared import Shared
from tests.unit.server.conftest import run

Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def with_peer(test: Callable[[Peer, Client], Awaitable[None]], **options: float) -> None:
    """Run a test with a server's peer and the client that it is connected to."""
    config = ServerConfig(host="127.0.0.1", port=0, **options)

    async def opened(_: str) -> None:
        raise AssertionError("no store is asked for")

    accepted: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
    server = await asyncio.start_server(lambda *pair: accepted.set_result(pair), "127.0.0.1", 0)
    client = await asyncio.open_connection(*server.sockets[0].getsockname())
    with ThreadPoolExecutor(1) as executor:
        budget, places = MemoryBudget(1 << 20), Places(1, 1)
        shared = Shared(config, Access(config), opened, executor, budget, places)
        peer = Peer(shared, Session(1 << 20, 10), *await accepted)
        try:
            await test(peer, client)
        finally:
            await peer.close()
            client[1].close()
            server.close()


def test_a_client_that_closes_is_gone() -> None:
    async def test(peer: Peer, client: Client) -> None:
        client[1].close()
        with pytest.raises(Gone, match="closed the connection"):
            await peer.receive()

    run(lambda: with_peer(test))


def test_a_call_is_cancelled_when_its_client_goes_away() -> None:
    async def test(peer: Peer, client: Client) -> None:
        ended = asyncio.Event()

        async def call() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                ended.set()

        waiting = asyncio.ensure_future(peer.while_there(call()))
        await asyncio.sleep(0)
        client[1].close()
        with pytest.raises(Gone):
            await waiting
        assert ended.is_set()

    run(lambda: with_peer(test))


def test_a_login_and_a_quiet_client_have_their_time() -> None:
    async def silent(peer: Peer, _: Client) -> None:
        with pytest.raises(Gone, match="no login in time"):
            await peer.receive()

    async def idle(peer: Peer, _: Client) -> None:
        peer.logged_in(0.05, 0)
        with pytest.raises(Gone, match="idle for too long"):
            await peer.receive()

    run(lambda: with_peer(silent, login_timeout_s=0.05))
    run(lambda: with_peer(idle))


def test_what_is_sent_arrives() -> None:
    async def test(peer: Peer, client: Client) -> None:
        data = bytes(range(256)) * 4096
        reading = asyncio.ensure_future(client[0].readexactly(len(data)))
        await peer.send(data)
        assert await reading == data

    run(lambda: with_peer(test))
