"""The Flight transport against a real port: broken connections, and what may be repeated."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.client import flight as client_flight
from ray_canal.client import flight_wire
from ray_canal.client.connector import AsyncConnector, Connector
from ray_canal.client.flight import FlightAddress, FlightTransport
from ray_canal.config import FlightConfig
from ray_canal.demo import binlog_files
from ray_canal.destination.api import ClientRequest, GetRequest, SubscribeRequest
from ray_canal.errors import ConfigError, ConnectionLost, InstanceNotRunning, InstanceRestarted
from ray_canal.flight import server as flight_server
from ray_canal.flight.remote_calls import RemoteCalls
from ray_canal.flight.server import FlightServer
from ray_canal.flight.spark_reads import SparkReads
from ray_canal.model.message import MessageHead, MessagePart
from ray_canal.offline import decode_chunks

(_, CHUNK), *_ = [each for each in decode_chunks(binlog_files()) if each[1].layout.tables]


class Store:
    """Hands out the demo's chunk; counts calls by their method's name."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.callers: list[Any] = []
        self.errors: list[Exception] = []
        self.batches = 0
        self.answers = threading.Event()
        self.answers.set()

    def submit(self, destination: str, method: Any, request: ClientRequest) -> Any:
        self.calls.append(method.__name__)
        error = self.errors.pop() if self.errors else None
        if isinstance(request, GetRequest):
            self.callers.append(request.caller)
            assert self.answers.wait(60)
        if error is not None:
            raise error
        if isinstance(request, GetRequest):
            part = MessagePart("here", 0, CHUNK.layout.event_count, None)
            self.batches += 1
            return MessageHead(self.batches, 1, (part, part))
        return 1 if isinstance(request, SubscribeRequest) else None

    def opened(self, port: int = 0) -> FlightServer:
        remote = RemoteCalls(self.submit, lambda payloads: [CHUNK for _ in payloads], 10)
        config = FlightConfig(host="127.0.0.1", port=port)
        connect: Any = lambda *_: Connector(None)  # type: ignore[arg-type]  # noqa: E731
        spark = SparkReads(connect, lambda *_: None, lambda *_: None, lambda *_: "", 10, 60.0)
        return FlightServer(config, connect, lambda: ["d"], remote, spark)


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def server(store: Store) -> Iterator[FlightServer]:
    with store.opened() as opened:
        yield opened


def transport(server: FlightServer, repeat_s: float = 20.0) -> FlightTransport:
    return FlightTransport("d", FlightAddress(f"grpc://127.0.0.1:{server.port}"), repeat_s)


def test_a_message_is_fetched_chunk_by_chunk(server: FlightServer) -> None:
    with Connector(transport(server), 7) as connector:
        connector.subscribe()
        message = connector.get_without_ack()
        assert [chunk.arena.tobytes() for chunk in message.chunks] == [CHUNK.arena.tobytes()] * 2
        assert sum(batch.num_rows for batch in message.batches) > 0


def test_a_port_that_was_away_is_called_again_and_chunks_come_again(store: Store) -> None:
    server = store.opened()
    connector = Connector(transport(server), 7)
    connector.subscribe()
    message = connector.get_without_ack()
    port = server.port
    server.close()
    server = store.opened(port)
    try:
        with pytest.raises(InstanceRestarted, match="delivered again"):
            assert message.batches
        connector.get_without_ack()
        assert store.callers[-1].received == message.id - 1  # it did not arrive
    finally:
        connector.close()
        server.close()


def test_a_cancelled_call_is_not_repeated(server: FlightServer, store: Store) -> None:
    """Its repetition would be newer than the get that was made since, and have its batch."""

    calling = transport(server)

    async def receive() -> None:
        async with AsyncConnector(calling, 7) as connector:
            await connector.subscribe()
            store.answers.clear()
            store.errors = [InstanceNotRunning("starting")]
            getting = asyncio.ensure_future(connector.get_without_ack())
            while not store.callers:
                await asyncio.sleep(0.01)
            getting.cancel()
            await asyncio.wait([getting])
            store.answers.set()
            await connector.get_without_ack()
            calling._callers.shutdown()  # waits for the one that was cancelled
            assert store.calls == ["subscribe", *["get_without_ack"] * 2]

    asyncio.run(receive())


def test_what_may_not_be_repeated_is_told(store: Store) -> None:
    server = store.opened()
    connector = Connector(transport(server, repeat_s=0.5), 7)
    connector.subscribe()
    message = connector.get_without_ack()
    server.close()
    with pytest.raises(InstanceRestarted, match="delivered again"):
        connector.ack(message.id)
    with pytest.raises(InstanceRestarted, match="not answered"):
        connector.get_without_ack()
    connector.close()


def test_a_destination_that_restarts_is_waited_for(server: FlightServer, store: Store) -> None:
    with Connector(transport(server), 7) as connector:
        connector.subscribe()
        store.errors = [InstanceNotRunning("starting"), InstanceNotRunning("starting")]
        assert connector.get_without_ack().id == 1
        assert store.calls == ["subscribe", *["get_without_ack"] * 3]
        store.errors = [InstanceNotRunning("starting")]
        with pytest.raises(InstanceRestarted):
            connector.ack(1)
        connector.get_without_ack()
        assert store.callers[-1].received == 0


def test_what_a_cancelled_get_brings_comes_with_the_next_one(
    server: FlightServer, store: Store
) -> None:
    """The answer that comes later is nobody's."""

    async def receive() -> None:
        # With one thread the next call begins when this one has ended.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        async with AsyncConnector(transport(server), 7) as connector:
            await connector.subscribe()
            store.answers.clear()
            getting = asyncio.ensure_future(connector.get_without_ack(10, 30.0))
            while not store.callers:
                await asyncio.sleep(0.01)
            getting.cancel()
            store.answers.set()
            with pytest.raises(asyncio.CancelledError):
                await getting
            await connector.get_without_ack()
            assert [caller.received for caller in store.callers] == [0, 0]

    asyncio.run(receive())


def test_addresses() -> None:
    with pytest.raises(ConfigError, match="give tls="):
        FlightAddress.of("grpc+tls://h:1", "", "", {"root": "x"})
    with pytest.raises(ConfigError, match="belongs to"):
        FlightAddress.of("grpc://h:1", "", "", {"ca": "x"})
    address = FlightAddress.of("grpc+tls://h:1/", "u", "secret", {"ca": "/nowhere/ca.pem"})
    assert "secret" not in repr(address)
    with pytest.raises(ConfigError, match=r"/nowhere/ca\.pem"):
        address.opened()
    with pytest.raises(ConnectionLost, match=r"127\.0\.0\.1:1:"):
        FlightTransport("d", FlightAddress("grpc://127.0.0.1:1"))


_HTTP2_SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


def test_a_login_that_nobody_answers_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process that was stopped accepts connections; its calls had a limit, its login none."""
    monkeypatch.setattr(client_flight, "_ANSWER_S", 0.5)
    told: list[BaseException] = []
    with socket.create_server(("127.0.0.1", 0)) as silent:

        def accept() -> None:
            connection, _ = silent.accept()
            with connection, contextlib.suppress(OSError):
                connection.sendall(_HTTP2_SETTINGS)
                while connection.recv(1 << 16):
                    pass

        def log_in() -> None:
            address = FlightAddress(f"grpc://127.0.0.1:{silent.getsockname()[1]}", "ann", "secret")
            try:
                FlightTransport("d", address)
            except BaseException as error:
                told.append(error)

        threads = [threading.Thread(target=each, daemon=True) for each in (accept, log_in)]
        for thread in threads:
            thread.start()
        threads[1].join(30)
    assert [type(each) for each in told] == [ConnectionLost]


def test_a_chunk_over_a_slow_line_comes_at_last(
    store: Store, server: FlightServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was given up after a minute, and came again, indefinitely."""

    def slowly(chunk: DecodedChunk) -> pa.RecordBatchReader:
        reader = flight_wire.chunk_reader(chunk)

        def pieces() -> Iterator[pa.RecordBatch]:
            for piece in reader:
                yield piece
                time.sleep(0.1)

        return pa.RecordBatchReader.from_batches(reader.schema, pieces())

    monkeypatch.setattr(flight_wire, "PIECE_BYTES", -(-CHUNK.arena.size // 8))
    monkeypatch.setattr(flight_server, "chunk_reader", slowly)
    monkeypatch.setattr(client_flight, "_ANSWER_S", 0.35)
    connected = transport(server)
    got = Connector(connected)
    got.subscribe()
    (part, *_) = got.get_without_ack(timeout=None).head.parts
    for _ in range(10):  # a busy machine may send nothing at all in so short a time
        with contextlib.suppress(ConnectionLost):
            assert connected._fetched(part.payload).arena.tobytes() == CHUNK.arena.tobytes()
            return
    pytest.fail("it never came")


def test_connectors_of_one_loop_do_not_wait_for_each_other(
    store: Store, server: FlightServer
) -> None:
    """A loop has a few threads of its own: so many gets that waited kept all other calls from
    being made."""

    async def story() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        one, other = (AsyncConnector(transport(server), client_id) for client_id in (1, 2))
        await one.subscribe()
        store.answers.clear()
        waiting = asyncio.ensure_future(one.get_without_ack(timeout=30.0))
        while not store.callers:
            await asyncio.sleep(0.01)
        try:
            await asyncio.wait_for(other.subscribe(), 20)
        finally:
            store.answers.set()
        await waiting

    asyncio.run(story())


def test_a_message_is_read_after_its_connector_was_closed(server: FlightServer) -> None:
    with Connector(transport(server), 7) as connector:
        connector.subscribe()
        message = connector.get_without_ack()
    assert [chunk.arena.tobytes() for chunk in message.chunks] == [CHUNK.arena.tobytes()] * 2
