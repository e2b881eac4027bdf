"""Calls over TCP that their caller ends before they are answered, or before they are made."""

from __future__ import annotations

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import ray_canal as canal
from ray_canal.client.connector import AsyncConnector
from ray_canal.client.tcp import TcpTransport
from ray_canal.client.tcp_wire import Address, Wire
from ray_canal.demo import binlog_files
from ray_canal.offline import decode_entries
from tests.served_destination import Decoded, ServedDestination, decoded
from tests.serving_thread import serving_thread


@pytest.fixture(scope="module")
def shop() -> Decoded:
    return decoded(binlog_files())


def test_the_answer_of_an_interrupted_call_is_nobodys(
    shop: Decoded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C during a get: its answer was read as that of the next call, an ack's say."""
    store, read = ServedDestination(shop), Wire.read

    def interrupted(*_: object) -> Any:
        monkeypatch.setattr(Wire, "read", read)
        raise KeyboardInterrupt

    with (
        serving_thread({"shop": store}) as serving,
        canal.connect("shop", 7, address=serving.address) as connector,
    ):
        connector.subscribe()
        monkeypatch.setattr(Wire, "read", interrupted)
        with pytest.raises(KeyboardInterrupt):
            connector.get_without_ack(10)
        found = []
        while message := connector.get_without_ack(1000):
            found.append(message.entry_bytes)
            assert store.outstanding(7) == [message.id]
            connector.ack(message.id)
            assert store.outstanding(7) == []
        assert b"".join(found) == b"".join(decode_entries(binlog_files()))


def test_a_call_that_is_given_up_before_it_begins_is_not_made(
    shop: Decoded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would have the batch of the get that is made next, or wait without end."""
    store, begun, call = ServedDestination(shop), threading.Event(), TcpTransport._call

    def noted(*arguments: Any) -> Any:
        begun.set()
        return call(*arguments)

    async def receive(address: str) -> None:
        # With one thread the next call begins when this one has ended.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        transport = TcpTransport("shop", Address.parse(address))
        async with AsyncConnector(transport, 7) as connector:
            await connector.subscribe()
            monkeypatch.setattr(TcpTransport, "_call", noted)
            begun.clear()
            with transport._lock:
                getting = asyncio.ensure_future(connector.get_without_ack(10))
                while not begun.is_set():
                    await asyncio.sleep(0.01)
                getting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await getting
            message = await connector.get_without_ack(10)
            assert (store.takes, store.outstanding(7)) == (1, [message.id])
            await connector.ack(message.id)

    with serving_thread({"shop": store}) as serving:
        asyncio.run(receive(serving.address))


def test_connectors_of_one_loop_do_not_wait_for_each_other(shop: Decoded) -> None:
    """A loop has a few threads of its own: so many gets that waited kept all other calls from
    being made."""
    store = ServedDestination(shop)

    async def story(address: str) -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        one, other = (
            AsyncConnector(TcpTransport("shop", Address.parse(address)), client_id)
            for client_id in (1, 2)
        )
        async with one, other:
            await one.subscribe()
            while await one.get(100000):
                pass
            waiting = asyncio.ensure_future(one.get_without_ack(100000, 30.0))
            await asyncio.sleep(0.2)
            await asyncio.wait_for(other.subscribe(), 20)
            waiting.cancel()

    with serving_thread({"shop": store}) as serving:
        asyncio.run(story(serving.address))


def test_a_server_whose_machine_is_gone_is_noticed_within_a_minute() -> None:
    """Linux asks for the first time after two hours. (Between two network namespaces, one of which
    went away, it took 59 s.)"""
    with socket.create_server(("127.0.0.1", 0)) as server:
        wire = Wire(Address("127.0.0.1", server.getsockname()[1]))
        kept, level = wire._socket.getsockopt, socket.IPPROTO_TCP
        assert kept(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        silence_s = kept(level, socket.TCP_KEEPIDLE)
        questions = kept(level, socket.TCP_KEEPINTVL) * kept(level, socket.TCP_KEEPCNT)
        assert silence_s + questions <= 60
        wire.close()
