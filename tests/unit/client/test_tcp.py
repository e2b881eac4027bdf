"""Our connector over TCP: the same promises as by a Ray handle, on loopback and a real log."""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ray_canal as canal
from ray_canal.client.connector import Connector
from ray_canal.client.port import Transport
from ray_canal.client.tcp import TcpTransport
from ray_canal.client.tcp_message import TcpHead
from ray_canal.client.tcp_wire import Address
from ray_canal.demo import binlog_files
from ray_canal.destination.api import DestinationApi, PollRequest, SubscribeRequest
from ray_canal.errors import (
    AuthenticationFailed,
    BatchesUnacked,
    BatchNotFirst,
    BatchNotFound,
    ConfigError,
    ConnectionLost,
    ConsumerError,
    InstanceNotFound,
    InstanceRestarted,
    NotSubscribed,
)
from ray_canal.offline import decode_entries
from tests.certificates import make_certificate
from tests.driven_connector import both_connectors, both_connects
from tests.served_destination import Decoded, ServedDestination, decoded
from tests.serving_thread import ServingThread, serving_thread


@pytest.fixture(scope="module")
def shop() -> Decoded:
    return decoded(binlog_files())


@both_connects
def test_everything_arrives_and_acks_are_done_when_they_return(connect: Any, shop: Decoded) -> None:
    store = ServedDestination(shop)
    with (
        serving_thread({"shop": store}) as serving,
        connect("shop", 7, address=serving.address) as connector,
    ):
        connector.subscribe()
        found = b""
        while message := connector.get_without_ack(100):
            found += message.entry_bytes
            assert store.outstanding(7) == connector.list_batch_ids() == [message.id]
            assert len(list(message.entries)) == len(message) == message.entry_count
            connector.ack(message.id)
            assert store.outstanding(7) == []
        assert found == b"".join(decode_entries(binlog_files()))
        assert connector.get().id == -1


def test_a_loop_asks_our_server_once_a_message(shop: Decoded) -> None:
    """Rows that are less than a memory unit end the wait; the question acks, too."""
    store = ServedDestination(shop, released=0)
    with (
        serving_thread({"shop": store}) as serving,
        canal.connect("shop", 7, address=serving.address) as connector,
    ):
        connector.subscribe()
        messages = connector.messages(1000, poll=30.0)
        for number in (1, 2, 3):
            threading.Timer(0.2, lambda: serving.do(store.release(1))).start()
            assert (next(messages).id, store.takes) == (number, number)
            assert number < 3 or 1 not in store.outstanding(7)
        messages.close()
        assert store.outstanding(7) == []
        assert store.takes == 3


def test_a_loop_does_not_wait_long_for_rows_that_are_less_than_a_unit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Canal's get gives less than it was asked for when its time is over."""
    asked: list[tuple[int, float | None]] = []
    there = iter([-1, -1, -1, 7])

    def take(_: TcpTransport, client_id: int, batch_size: int, timeout: float | None) -> TcpHead:
        asked.append((batch_size, timeout))
        return TcpHead(next(there), 1)

    monkeypatch.setattr(TcpTransport, "_take", take)
    transport = TcpTransport.__new__(TcpTransport)
    transport._is_ours = False
    request = PollRequest(client_id=1, batch_size=1000, timeout=10.0)
    assert transport._poll(request).id == 7
    assert asked == [(1000, None), (1, 0.25), (1, 0.25), (1, 0.25)]
    asked.clear()
    there = iter([-1] * 9)
    assert transport._poll(replace(request, timeout=0.6)).id == -1
    assert sum(timeout or 0 for _, timeout in asked) == pytest.approx(0.6)


def test_a_message_has_rows_and_no_arrow(shop: Decoded) -> None:
    with (
        serving_thread({"shop": ServedDestination(shop)}) as serving,
        canal.connect("shop", address=serving.address) as connector,
    ):
        connector.subscribe()
        message = connector.get_without_ack(1 << 20)
        assert message.row_count == sum(int(i.entries["rows"].sum()) for i, _ in shop)
        with pytest.raises(ConsumerError, match="no Arrow batches"):
            _ = message.batches


@both_connects
def test_errors_are_the_same_classes(connect: Any, shop: Decoded) -> None:
    with serving_thread({"shop": ServedDestination(shop)}) as serving:
        with connect("shop", address=serving.address) as connector:
            with pytest.raises(NotSubscribed):
                connector.get_without_ack()
            with pytest.raises(ConfigError):
                connector.subscribe("(")
            with pytest.raises(ConfigError, match="work on Arrow batches"):
                connector.subscribe(where="after.id > 1")
            with pytest.raises(ConfigError, match=r"no policy, .* snapshot: .* Flight"):
                connector.subscribe(snapshot="initial")
            connector.subscribe()
            for _ in range(2):
                connector.get_without_ack(1)
            with pytest.raises(ConfigError, match="no mark"):
                connector.ack(1, mark="kept nowhere")
            with pytest.raises(BatchNotFirst, match="firstly:1"):
                connector.ack(2)
            with pytest.raises(BatchNotFound):
                connector.ack(9)
            with pytest.raises(BatchesUnacked):
                connector.get()
            connector.rollback(2)
            assert connector.list_batch_ids() == [1]
            connector.rollback()
            assert connector.get_without_ack(1).id == 3
            connector.unsubscribe()
            with pytest.raises(NotSubscribed):
                connector.get_without_ack()
        with (
            connect("none", address=serving.address) as connector,
            pytest.raises(InstanceNotFound, match="should start first"),
        ):
            connector.subscribe()


@both_connects
def test_the_loop_over_messages_acks_and_rolls_back(connect: Any, shop: Decoded) -> None:
    store = ServedDestination(shop, released=6)
    with (
        serving_thread({"shop": store}) as serving,
        connect("shop", address=serving.address) as connector,
    ):
        keeper = SubscribeRequest(client_id=0, filter="")  # the log keeps all for it
        serving.do(store.call_async(DestinationApi.subscribe, keeper))
        connector.subscribe()
        stopped = threading.Event()
        count = 0
        for message in connector.messages(64, poll=0.2, stopped=stopped):
            count += len(message)
            if count == sum(len(info.entries) for info, _ in shop[:6]):
                serving.do(store.release(4))
            if count == sum(len(info.entries) for info, _ in shop):
                stopped.set()
        assert store.outstanding(1001) == []
        connector.unsubscribe()
        connector.subscribe()  # from the log's beginning again

        def fail() -> None:
            for message in connector.messages(1, poll=0.1):
                assert store.outstanding(1001) == [message.id]
                raise KeyError("the sink failed")

        with pytest.raises(KeyError):
            fail()
        assert store.outstanding(1001) == []


@both_connects
def test_a_takeover_is_told_when_batches_are_out_and_else_not_noticed(
    connect: Any, shop: Decoded
) -> None:
    store = ServedDestination(shop)
    with (
        serving_thread({"shop": store}) as serving,
        connect("shop", address=serving.address) as connector,
    ):
        connector.subscribe()
        connector.ack(connector.get_without_ack(5).id)
        serving.do(store.restart())
        first = connector.get_without_ack(5)
        serving.do(store.restart())
        with pytest.raises(InstanceRestarted):
            connector.ack(first.id)
        again = connector.get_without_ack(5)
        assert again.entry_bytes == first.entry_bytes
        connector.ack(again.id)


@both_connects
def test_a_server_that_dies_and_comes_back(connect: Any, shop: Decoded) -> None:
    store = ServedDestination(shop)
    with serving_thread({"shop": store}) as serving:
        port = serving.server.port
        connector = connect("shop", address=serving.address)
        connector.subscribe()
        connector.ack(connector.get_without_ack(5).id)
        held = connector.get_without_ack(5)
    with pytest.raises(InstanceRestarted):
        connector.ack(held.id)
    with serving_thread({"shop": store}, port=port):
        again = connector.get_without_ack(5)
        assert again.entry_bytes == held.entry_bytes
        connector.ack(again.id)
        connector.close()


def test_a_loop_waits_for_a_server_that_comes_back(shop: Decoded) -> None:
    """b6: connections that are refused are tried again, up to the promised minute."""
    store = ServedDestination(shop)
    with serving_thread({"shop": store}) as serving:
        port = serving.server.port
        connector = canal.connect("shop", address=serving.address)
        connector.subscribe()
        messages = connector.messages(64, poll=0.2)
        found = [next(messages).entry_bytes]
    back = threading.Event()

    def come_back() -> None:
        time.sleep(2)
        with serving_thread({"shop": store}, port=port):
            back.wait(60)

    server = threading.Thread(target=come_back)
    server.start()
    try:
        for message in messages:
            found.append(message.entry_bytes)
            if len(found) > 1 and b"".join(found[1:]) == b"".join(decode_entries(binlog_files())):
                break
        connector.close()
    finally:
        back.set()
        server.join(60)
    # The ack of the first message went with the server, so it came once more.
    assert found[1] == found[0]


@pytest.mark.parametrize("call", ["get_without_ack", "get", "subscribe"])
def test_a_server_that_stays_away_is_told_by_its_name(
    shop: Decoded, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """b6: after that minute, the error says what could not be reached."""
    monkeypatch.setattr("ray_canal.client.tcp._REPEAT_S", 0.5)
    with serving_thread({"shop": ServedDestination(shop)}) as serving:
        connector = canal.connect("shop", address=serving.address)
        connector.subscribe()
        address = serving.address
    began = time.monotonic()
    with pytest.raises((ConnectionLost, InstanceRestarted)):
        getattr(connector, call)()  # the connection that was
    with pytest.raises(ConnectionLost, match=f"cannot connect to {address}"):
        getattr(connector, call)()
    assert time.monotonic() - began > 0.5
    connector.close()


def test_login_and_addresses(shop: Decoded) -> None:
    with serving_thread({"shop": ServedDestination(shop)}, username="u", password="p") as serving:
        canal.connect("shop", address=serving.address, username="u", password="p").close()
        for username, password in (("u", "x"), ("u", ""), ("", "p")):
            with pytest.raises(AuthenticationFailed, match="auth failed"):
                canal.connect("shop", address=serving.address, username=username, password=password)
        address = serving.address
    with pytest.raises(ConnectionLost, match=address):
        canal.connect("shop", address=address)
    with pytest.raises(ConfigError, match="address="):
        canal.connect("shop", password="p")


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("db", "db", 11111),
        ("db:5", "db", 5),
        ("[::1]:5", "::1", 5),
        ("[::1]", "::1", 11111),
        ("::1", "::1", 11111),
    ],
)
def test_an_address(text: str, host: str, port: int) -> None:
    assert (Address.parse(text).host, Address.parse(text).port) == (host, port)


def test_an_address_does_not_show_its_password() -> None:
    assert "secret" not in repr(Address.parse("db", username="u", password="secret"))


@pytest.mark.parametrize("text", ["", ":5", "db:", "db:x", "db:0", "db:70000"])
def test_no_address(text: str) -> None:
    with pytest.raises(ConfigError, match="host:port"):
        Address.parse(text)


def test_tls_and_its_refusal(shop: Decoded, tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path)
    tls = {"cert": str(cert), "key": str(key)}
    with serving_thread({"shop": ServedDestination(shop)}, tls=tls) as serving:
        context = ssl.create_default_context(cafile=str(cert))
        with canal.connect("shop", address=serving.address, tls=context) as connector:
            connector.subscribe()
            assert len(connector.get_without_ack(1 << 20)) > 1000
        with pytest.raises(ConnectionLost, match="certificate"):
            canal.connect("shop", address=serving.address, tls=ssl.create_default_context())


def test_asyncio(shop: Decoded) -> None:
    async def receive(address: str) -> int:
        count = 0
        async with canal.connect_async("shop", address=address) as connector:
            await connector.subscribe(r"shop\..*")
            async for message in connector.messages(500, poll=0.1):
                count += len(message)
                if count > 3000:
                    break
        return count

    with serving_thread({"shop": ServedDestination(shop)}) as serving:
        assert asyncio.run(receive(serving.address)) > 3000


@pytest.mark.timed
def test_a_get_waits_for_its_time(shop: Decoded) -> None:
    with serving_thread({"shop": ServedDestination(shop, released=0)}) as serving:
        connector = Connector(TcpTransport("shop", Address.parse(serving.address)))
        connector.subscribe()
        began = time.monotonic()
        assert not connector.get_without_ack(1, timeout=0.3)
        assert 0.25 < time.monotonic() - began < 20
        connector.close()


# With something in hand the connection is kept, so that the next call waits for the first.
@pytest.mark.parametrize(("timeout", "in_hand"), [(0, 0), (30.0, 0), (0, 2), (1.0, 2)])
def test_a_get_that_is_given_up_leaves_nothing_outstanding(
    shop: Decoded, timeout: float, in_hand: int
) -> None:
    """D19: the batch of a cancelled get comes with the next one, and a get without end does not
    keep the connection."""
    store = ServedDestination(shop, released=4)
    everything = b"".join(decode_entries(binlog_files()))

    async def receive(address: str, serving: ServingThread) -> None:
        async with canal.connect_async("shop", 7, address=address) as connector:
            await connector.subscribe()
            held = [await connector.get_without_ack(1) for _ in range(in_hand)]
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(connector.get_without_ack(1 << 20, timeout), 0.2)
            serving.do(store.release(1000))
            if timeout == 0 and held:  # its connection had to end
                with pytest.raises(InstanceRestarted):
                    await connector.ack(held[0].id)
                held.clear()
            assert await connector.list_batch_ids() == [message.id for message in held]
            while message := await connector.get_without_ack(1 << 20):
                held.append(message)
                assert await connector.list_batch_ids() == [message.id for message in held]
            assert store.outstanding(7) == [message.id for message in held]
            assert b"".join(message.entry_bytes for message in held) == everything
            for message in held:
                await connector.ack(message.id)

    with serving_thread({"shop": store}) as serving:
        asyncio.run(receive(serving.address, serving))


@both_connectors
def test_get_acks_what_has_arrived(connector_of: Any, shop: Decoded) -> None:
    """A5: where the connection ends before the ack is told, the message is not lost."""
    store = ServedDestination(shop)
    with serving_thread({"shop": store}) as serving:
        transport: Transport = TcpTransport("shop", Address.parse(serving.address))
        connector, really = connector_of(transport, 7), transport._ack

        def ack(*batch: object) -> None:
            transport._ack = really  # type: ignore[method-assign]
            raise EOFError("the connection ended")

        connector.subscribe()
        transport._ack = ack  # type: ignore[assignment]
        first, second = connector.get(100), connector.get(100)
        assert first.entry_bytes == second.entry_bytes != connector.get(100).entry_bytes
        assert connector.list_batch_ids() == store.outstanding(7) == []
        connector.close()
