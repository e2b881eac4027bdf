"""The TCP server's actor as the plain class that it is, over real sockets."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from ray_canal.actors import tcp_server_actor as module
from ray_canal.actors.tcp_server_actor import TcpServerActor
from ray_canal.config import ServerConfig
from ray_canal.errors import ConfigError
from tests.unit.actors.small_cluster import SmallCluster

ANYBODY = {"host": "127.0.0.1", "port": 0}


def given(**changed: Any) -> str:
    return ServerConfig.model_validate({**ANYBODY, **changed}).model_dump_json()


@pytest.fixture(autouse=True)
def _no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    SmallCluster(monkeypatch)
    monkeypatch.setattr(module, "keep_freed_memory", lambda: None)
    monkeypatch.setattr(module, "_RETRY_S", 0.05)


async def made(**config: Any) -> TcpServerActor:
    actor = TcpServerActor.__new__(TcpServerActor)
    await TcpServerActor.__init__(actor, given(**config), "ns")  # type: ignore[misc]
    return actor


def test_it_listens_until_it_is_stopped() -> None:
    async def story() -> None:
        actor = await made()
        host, _, port = (await actor.address(20)).rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        assert await reader.readexactly(4), "Canal's server speaks first"
        assert (await actor.status())["logging_in"] == 1
        writer.close()
        await writer.wait_closed()
        await actor.stop()
        with pytest.raises(OSError, match=port):
            await asyncio.open_connection(host, int(port))

    asyncio.run(story())


def test_a_port_that_is_not_free_is_not_waited_for_as_a_server_that_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A Canal that still runs has 11111: `start` said nothing for a minute and a half."""
    monkeypatch.setattr(module, "_FAILURE_WAIT_S", 0.1)

    async def story() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            actor = await made(port=taken.getsockname()[1])
            with pytest.raises(ConfigError, match="cannot listen on 127"):
                await asyncio.wait_for(actor.address(3600), 60)
            await actor.stop()

    asyncio.run(story())


def test_a_port_that_becomes_free_is_taken() -> None:
    async def story() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            actor = await made(port=port)
            with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}"):
                await actor.address(0.3)
            assert "cannot listen" in (await actor.status())["error"]
        assert await actor.address(20) == f"127.0.0.1:{port}"
        await actor.stop()

    asyncio.run(story())


def test_keys_that_differ_are_named_before_and_while_it_listens() -> None:
    async def story() -> None:
        actor = await made()
        changed = given(connections_max=7)
        assert await actor.compare(changed) == ["connections_max"]
        await actor.address(20)
        assert await actor.compare(changed) == ["connections_max"]
        assert await actor.compare(given()) == []
        await actor.stop()

    asyncio.run(story())
