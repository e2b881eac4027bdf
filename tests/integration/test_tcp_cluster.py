"""Canal's TCP port of a cluster, point by point: each thing that a client or an enemy may do."""

from __future__ import annotations

import asyncio
import ssl
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ray_canal as canal
from ray_canal.canal import packet as packets
from ray_canal.canal.generated import CanalProtocol_pb2 as pb
from ray_canal.canal.generated import EntryProtocol_pb2 as entry_pb
from tests.canal_client import RawClient
from tests.certificates import make_certificate
from tests.integration.test_tcp import deployment, until
from tests.servers.run import free_port

NAME = "tcp-shop"
LIMITS = {
    "username": "u",
    "password": "p",
    "login_timeout_s": 2,
    "connections_max": 6,
    "logins_max": 4,
    "requests_max": 20,
    "packet_bytes_max": 4096,
}


class Guarded:
    """A port with TLS, a login and low limits."""

    def __init__(self, port: int, cert: Path) -> None:
        self.port = port
        context = ssl.create_default_context(cafile=str(cert))
        self.tls: dict[str, Any] = {"ssl": context, "server_hostname": "localhost"}

    async def client(self, **login: Any) -> RawClient:
        client = await RawClient.open(self.port, **self.tls)
        client.patience_s = 30
        assert (await client.log_in("u", "p", **login)).error_code == 0
        return client


@pytest.fixture(scope="module")
def guarded(local_ray: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder, port = tmp_path_factory.mktemp("guarded"), free_port()
    cert, key = make_certificate(folder)
    tls = {"cert": str(cert), "key": str(key)}
    canal.start(deployment(folder, port, tls=tls, **LIMITS))
    yield Guarded(port, cert)
    canal.stop_serving()
    canal.stop(NAME)


def tables(messages: Any) -> set[str]:
    parsed = (entry_pb.Entry.FromString(raw) for raw in messages.messages)
    return {entry.header.tableName for entry in parsed if entry.header.tableName}


def test_clients_filters_rollback_on_connect_and_canals_errors(guarded: Guarded) -> None:
    async def test() -> None:
        one = await guarded.client()
        await one.subscribe(NAME, "21", r"SHOP\.customers")
        await one.subscribe(NAME, "22", r"shop\..*")
        narrow = await one.get(NAME, "21", fetch_size=1 << 20, timeout=5000)
        wide = await one.get(NAME, "22", fetch_size=1 << 20, timeout=5000)
        assert tables(narrow) == {"customers"}
        assert tables(wide) > {"customers"}
        assert (narrow.batch_id, wide.batch_id) == (1, 1)

        other = await guarded.client()  # connects while the old one's batches are out
        await other.subscribe(NAME, "22", r"shop\..*")
        again = await other.get(NAME, "22", fetch_size=1 << 20, timeout=5000)
        assert list(again.messages)[: len(wide.messages)] == list(wide.messages)
        assert (await one.get(NAME, "21", timeout=-1)).batch_id == -1  # 21 was left alone

        refusals: list[tuple[int, Any, int, str]] = [
            (pb.GET, pb.Get(destination=NAME, client_id="99"), 400, "should subscribe first"),
            (pb.GET, pb.Get(destination="no", client_id="1"), 400, "should start first"),
            (pb.GET, pb.Get(destination=NAME), 401, "destination or clientId is null"),
            (pb.SUBSCRIPTION, pb.Sub(client_id="1"), 401, "destination or clientId is null"),
            (pb.CLIENTACK, pb.ClientAck(destination=NAME, client_id="22"), 402, "batchId should"),
            (
                pb.CLIENTACK,
                pb.ClientAck(destination=NAME, client_id="22", batch_id=again.batch_id + 9),
                400,
                "is not exist",
            ),
            (pb.DUMP, None, 400, "NOT supported"),
        ]
        for kind, body, code, text in refusals:
            other.send(kind, body)
            answer = await other.ack()
            assert answer.error_code == code, answer
            assert text in answer.error_message
        other.confirm(NAME, -1, "22")  # is ignored
        other.confirm(NAME, again.batch_id, "22")
        other.send(pb.HEARTBEATS)
        assert (await other.ack()).error_code == 0
        await one.close()
        await other.close()

    asyncio.run(test())


def hostile(number: int) -> bytes:
    kinds = (
        struct.pack(">i", 1 << 30),
        struct.pack(">i", -1),
        struct.pack(">i", 4097),
        b"GET / HTTP/1.1\r\n\r\n",
        packets.framed(pb.GET, pb.Get(destination=NAME, client_id="1")),
        packets.framed(pb.CLIENTAUTHENTICATION, pb.ClientAuth(username="u", password=b"x" * 40)),
        struct.pack(">i", 100) + b"half a packet",
    )
    return kinds[number % len(kinds)]


def test_enemies_are_closed_and_a_client_never_notices(guarded: Guarded) -> None:
    """Without TLS, with TLS and garbage, wrong logins, and silence: each ends by itself."""

    async def enemy(number: int) -> None:
        tls = {} if number % 5 == 0 else guarded.tls
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", guarded.port, **tls)
            writer.write(b"" if number % 9 == 0 else hostile(number))
            await asyncio.wait_for(reader.read(), 120)  # until it is closed
            writer.close()
            await writer.wait_closed()
        except (ConnectionError, ssl.SSLError):
            return

    async def test() -> None:
        client = await guarded.client()
        await client.subscribe(NAME, "31")
        enemies = asyncio.gather(*(enemy(number) for number in range(40)))
        rounds = 0
        while not enemies.done() or rounds < 5:
            message = await client.get(NAME, "31", fetch_size=50, timeout=200)
            rounds += 1
            if message.batch_id == -1:
                await client.subscribe(NAME, "31")
        await enemies
        fellows = [await guarded.client() for _ in range(LIMITS["connections_max"] - 1)]  # type: ignore[operator]
        late = await RawClient.open(guarded.port, **guarded.tls)
        assert "connections_max" in (await late.log_in("u", "p")).error_message
        fellows[0].writer.write(packets.framed(pb.HEARTBEATS) * 2000)
        fellows[1].writer.write(struct.pack(">i", 4097))
        assert "packet_bytes_max" in (await fellows[1].ack()).error_message
        for fellow in fellows[:2]:
            assert await fellow.ended()
        await client.subscribe(NAME, "31")  # it may have read all there is
        assert (await client.get(NAME, "31", fetch_size=1, timeout=1000)).batch_id > 0
        for fellow in (*fellows[2:], client):
            await fellow.close()

    asyncio.run(test())
    until(lambda: canal.server_status()[0]["connections"] == 0)
    status = canal.server_status()[0]
    assert (status["logging_in"], status["buffered_bytes"]) == (0, 0)


def test_an_idle_client_is_closed_after_its_own_time(guarded: Guarded) -> None:
    async def test() -> None:
        client = await guarded.client(net_read_timeout=700, net_write_timeout=60_000)
        await client.subscribe(NAME, "41")
        began = time.monotonic()
        assert await client.ended()
        assert time.monotonic() - began > 0.5

    asyncio.run(test())
