"""The server against many and against hostile clients: they end, others never notice."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import struct
import time
from pathlib import Path
from typing import Any

import pytest
import uvloop

from ray_canal.canal import packet as packets
from ray_canal.canal.generated import CanalProtocol_pb2 as pb
from ray_canal.config import ServerConfig
from ray_canal.errors import ConfigError
from ray_canal.server import listener
from ray_canal.server.listener import TcpServer
from tests.canal_client import RawClient
from tests.certificates import make_certificate
from tests.open_files import no_more_files
from tests.pace import Pace
from tests.served_destination import Decoded, ServedDestination, opener
from tests.unit.server.conftest import run, serving

# SELECT SHA1(UNHEX(SHA1('canal')))
HASH = "E3619321C1A937C46A0D8BD1DAC39F93B27D4458"


@pytest.mark.parametrize("kept", [{"password": "canal"}, {"password_hash": HASH}])
def test_both_forms_of_the_password(shop: Decoded, kept: dict[str, str]) -> None:
    async def test() -> None:
        async with serving({"shop": ServedDestination(shop)}, username="canal", **kept) as server:
            for username, password, text in (
                ("canal", "canal", ""),
                ("canal", "wrong", "auth failed for user:canal"),
                ("canal", None, "auth failed for user:canal"),
                ("canal", "", "auth failed for user:canal"),
                ("eve", "canal", "auth failed for user:eve"),
            ):
                client = await RawClient.open(server.port)
                answer = await client.log_in(username, password)
                assert (answer.error_code, answer.error_message) == (400 if text else 0, text)
                if text:
                    assert await client.ended()
                else:
                    await client.close()

    run(test)


def test_a_password_without_a_name_admits_any_name(shop: Decoded) -> None:
    async def test() -> None:
        async with serving({}, password="canal") as server:
            client = await RawClient.open(server.port)
            assert (await client.log_in("anybody", "canal")).error_code == 0
            await client.close()

    run(test)


@pytest.mark.parametrize("loop", [asyncio, uvloop], ids=["asyncio", "uvloop"])
def test_tls(shop: Decoded, tmp_path: Path, loop: Any) -> None:
    cert, key = make_certificate(tmp_path)

    async def test() -> None:
        tls = {"cert": str(cert), "key": str(key)}
        async with serving({"shop": ServedDestination(shop)}, tls=tls, login_timeout_s=1) as server:
            context = ssl.create_default_context(cafile=str(cert))
            client = await RawClient.logged_in(
                server.port, ssl=context, server_hostname="localhost"
            )
            await client.subscribe("shop")
            message = await client.get("shop", fetch_size=1 << 20)
            assert len(message.messages) > 1000
            _, plain = await asyncio.open_connection("127.0.0.1", server.port)
            plain.write(packets.framed(pb.HEARTBEATS))
            await client.get("shop")
            plain.close()
            await client.close()

    run(test, run=loop.run)


def test_tls_files_that_are_none_are_named(tmp_path: Path) -> None:
    path = tmp_path / "cert.pem"
    path.write_text("nothing")
    for cert in (path, tmp_path / "missing.pem"):
        with pytest.raises(ConfigError, match=str(cert)):
            TcpServer(ServerConfig.model_validate({"tls": {"cert": str(cert)}}), opener({}))


def test_a_port_that_is_taken_is_named() -> None:
    async def test() -> None:
        async with serving({}) as server:
            second = TcpServer(ServerConfig(host="127.0.0.1", port=server.port), opener({}))
            with pytest.raises(ConfigError, match=f"127.0.0.1:{server.port}"):
                await second.start()
            await second.close()

    run(test)


def test_no_more_open_files_are_told_once_and_clients_wait(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It was a line a second, which did not say what to do."""
    monkeypatch.setattr(listener, "_ACCEPT_AGAIN_S", 0.01)

    async def test() -> None:
        async with serving({}) as server:
            with socket.socket() as client:
                with no_more_files():
                    client.connect(("127.0.0.1", server.port))
                    await asyncio.sleep(0.2)
                client.setblocking(False)
                assert await asyncio.get_running_loop().sock_recv(client, 4)

    run(test)
    told = [each.getMessage() for each in caplog.records if "accepted" in each.getMessage()]
    assert len(told) == 1
    assert "Too many open files; " in told[0]
    assert "`ulimit -n`" in told[0]


def test_an_address_that_the_machine_has_not_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """localhost may be ::1, too, where the kernel has no IPv6: the port was not opened."""
    kind = (socket.SOCK_STREAM, 6, "")
    found: list[Any] = [
        (socket.AF_INET6, *kind, ("2001:db8::1", 0, 0, 0)),
        (socket.AF_INET, *kind, ("127.0.0.1", 0)),
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)

    async def test() -> None:
        server = TcpServer(ServerConfig(host="localhost", port=0), opener({}))
        await server.start()
        assert server.port
        await server.close()
        found.pop()
        with pytest.raises(ConfigError, match="cannot listen on localhost:0"):
            await server.start()

    run(test, run=asyncio.run)


def hostile(seed: int) -> bytes:
    """What is no login: noise, lengths out of range, half packets, packets out of order."""
    choice = random.Random(seed)
    return choice.choice(
        [
            choice.randbytes(choice.randrange(1, 400)),
            struct.pack(">i", choice.choice([-1, 1 << 30, 1 << 21])),
            struct.pack(">i", 100) + b"x" * choice.randrange(100),
            packets.framed(choice.randrange(14)),
            packets.framed(pb.CLIENTAUTHENTICATION)[:-1] + b"\xff",
            b"GET / HTTP/1.1\r\nHost: canal\r\n\r\n",
            struct.pack(">i", 0) * 500,
        ]
    )


@pytest.mark.timed
def test_hostile_peers_are_closed_and_a_client_never_notices(shop: Decoded) -> None:
    async def attack(port: int, seed: int, ended: list[int]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(hostile(seed))
            await writer.drain()
            await asyncio.wait_for(reader.read(), 20)
        except ConnectionError:
            pass
        ended.append(seed)
        writer.close()
        try:
            await writer.wait_closed()
        except ConnectionError:
            return

    async def test() -> None:
        stores = {"shop": ServedDestination(shop)}
        options = {"login_timeout_s": 0.5, "logins_max": 20, "username": "u", "password": "p"}
        async with serving(stores, **options) as server:
            client = await RawClient.open(server.port)
            await client.log_in("u", "p")
            await client.subscribe("shop")
            ended: list[int] = []
            attacks = [
                asyncio.ensure_future(attack(server.port, seed, ended)) for seed in range(150)
            ]
            slowest_s, received = 0.0, 0
            while len(ended) < len(attacks) or received <= 100:
                with Pace() as pace:
                    message = await client.get("shop", fetch_size=20)
                slowest_s = max(slowest_s, pace.seconds)
                if message.batch_id == -1:
                    client.send(
                        pb.CLIENTROLLBACK, pb.ClientRollback(destination="shop", client_id="1001")
                    )
                received += len(message.messages)
            await asyncio.gather(*attacks)
            assert slowest_s < 3
            assert server.status()["connections"] == 1
            assert server.status()["logging_in"] == 0
            assert server.status()["buffered_bytes"] == 0
            await client.close()

    run(test)


def test_a_flood_of_wrong_logins_and_of_silent_peers_keeps_nobody_out(shop: Decoded) -> None:
    async def test() -> None:
        options = {"logins_max": 10, "password": "p", "login_timeout_s": 30}
        async with serving({"shop": ServedDestination(shop)}, **options) as server:
            silent = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(40)]
            for _ in range(20):
                client = await RawClient.open(server.port)
                assert (await client.log_in("u", "wrong")).error_code == 400
                await client.close()
            client = await RawClient.open(server.port)
            assert (await client.log_in("u", "p")).error_code == 0
            assert server.status()["logging_in"] <= 10
            for _, writer in silent:
                writer.close()
            await client.close()

    run(test)


def test_peers_that_never_negotiate_tls_have_no_more_places(shop: Decoded, tmp_path: Path) -> None:
    """D11: a connection counts from its first moment, so `logins_max` bounds these, too."""
    cert, key = make_certificate(tmp_path)

    async def test() -> None:
        tls = {"cert": str(cert), "key": str(key)}
        options = {"logins_max": 10, "login_timeout_s": 30, "tls": tls}
        async with serving({"shop": ServedDestination(shop)}, **options) as server:
            silent = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(40)]
            displaced = [reader for reader, _ in silent[:30]]
            ended = asyncio.gather(*(reader.read() for reader in displaced), return_exceptions=True)
            await asyncio.wait_for(ended, 20)
            assert server.status()["logging_in"] == 10
            context = ssl.create_default_context(cafile=str(cert))
            client = await RawClient.logged_in(
                server.port, ssl=context, server_hostname="localhost"
            )
            assert (await client.subscribe("shop")).error_code == 0
            assert server.status()["logging_in"] < 10
            for _, writer in silent:
                writer.close()
            await client.close()

    run(test)


@pytest.mark.parametrize("garbage", [b"", b"GET / HTTP/1.0\r\n\r\n", b"\x16\x03\x01\x00"])
def test_peers_whose_tls_is_none_leave_nothing(tmp_path: Path, garbage: bytes) -> None:
    """D11: their places are given back."""
    cert, key = make_certificate(tmp_path)

    async def test() -> None:
        tls = {"cert": str(cert), "key": str(key)}
        async with serving({}, tls=tls, login_timeout_s=1) as server:
            for _ in range(5):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(garbage)
                assert b"Traceback" not in await asyncio.wait_for(reader.read(), 20)
                writer.close()
            while server.status()["logging_in"]:
                await asyncio.sleep(0.01)

    run(test)


def test_too_many_clients_are_told_so(shop: Decoded) -> None:
    async def test() -> None:
        async with serving({}, connections_max=2) as server:
            clients = [await RawClient.logged_in(server.port) for _ in range(2)]
            third = await RawClient.open(server.port)
            assert "too many connections" in (await third.log_in()).error_message
            assert await third.ended()
            await clients[0].close()
            while server.status()["connections"] == 2:
                await asyncio.sleep(0.01)
            third = await RawClient.logged_in(server.port)
            for client in (third, clients[1]):
                await client.close()

    run(test)


@pytest.mark.timed
def test_who_does_not_log_in_and_who_is_idle_is_closed(shop: Decoded) -> None:
    async def test() -> None:
        stores = {"shop": ServedDestination(shop, released=0)}
        async with serving(stores, login_timeout_s=0.2) as server:
            began = time.monotonic()
            assert await (await RawClient.open(server.port)).ended()
            assert 0.2 < time.monotonic() - began < 50
        async with serving(stores) as server:
            idle = await RawClient.open(server.port)
            await idle.log_in(net_read_timeout=300, net_write_timeout=60_000)
            began = time.monotonic()
            assert await idle.ended()
            waiting = await RawClient.open(server.port)
            await waiting.log_in(net_read_timeout=2000, net_write_timeout=60_000)
            await waiting.subscribe("shop")
            waiting.ask("shop", timeout=0)
            assert await waiting.ended()
            assert 2.0 < time.monotonic() - began < 50

    run(test)


async def stalled_reader(port: int) -> RawClient:
    """Asks for everything, over and over, and reads nothing."""
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.setblocking(False)
    await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=raw, limit=4096)
    client = RawClient(reader, writer)
    await client.read()
    await client.log_in()
    await client.subscribe("shop", str(writer.get_extra_info("sockname")[1]))
    for _ in range(3):
        client.ask("shop", str(writer.get_extra_info("sockname")[1]), fetch_size=1 << 20)
    return client


@pytest.mark.timed
def test_slow_readers_hold_no_more_than_the_budget_and_are_left(shop: Decoded) -> None:
    budget = 16 << 20  # two of the shop's whole logs

    async def test() -> None:
        stores = {"shop": ServedDestination(shop)}
        options = {"buffer_bytes_max": budget, "stall_timeout_s": 2}
        async with serving(stores, **options) as server:
            readers = [await stalled_reader(server.port) for _ in range(8)]
            good = await RawClient.logged_in(server.port)
            await good.subscribe("shop")
            most = 0
            began = time.monotonic()
            while server.status()["connections"] > 1:
                assert time.monotonic() - began < 40
                message = await good.get("shop", fetch_size=5)
                if message.batch_id == -1:
                    await good.subscribe("shop")
                most = max(most, server.status()["buffered_bytes"])
                await asyncio.sleep(0.02)
            assert 0 < most <= budget
            assert (await good.get("shop", fetch_size=1)) is not None
            for client in (*readers, good):
                await client.close()

    run(test)


def test_requests_that_pile_up_end_their_connection_alone(shop: Decoded) -> None:
    async def test() -> None:
        stores = {"shop": ServedDestination(shop, released=0)}
        async with serving(stores, requests_max=10) as server:
            client = await RawClient.logged_in(server.port)
            await client.subscribe("shop")
            client.ask("shop", timeout=200)
            client.writer.write(packets.framed(pb.HEARTBEATS) * 50)
            assert (await client.messages()).batch_id == -1
            codes = [(await client.ack()).error_code for _ in range(11)]
            assert codes == [0] * 11 or codes[-1] == 400
            assert await client.ended()

    run(test)


@pytest.mark.parametrize(
    ("clients", "destinations"), [(60, 4), pytest.param(1000, 20, marks=pytest.mark.soak)]
)
def test_a_crowd_of_clients_over_some_destinations(
    shop: Decoded, clients: int, destinations: int
) -> None:
    """Each receives everything, in its own order of gets and acks."""

    async def client(port: int, number: int) -> int:
        destination, client_id = f"shop{number % destinations}", str(1000 + number)
        one = await RawClient.logged_in(port)
        one.patience_s = 120  # the others' answers are rendered first
        await one.subscribe(destination, client_id)
        choice, received = random.Random(number), 0
        while True:
            size = choice.choice([50, 200, 1000])
            message = await one.get(destination, client_id, fetch_size=size, timeout=1)
            if message.batch_id == -1:
                break
            if choice.random() < 0.1:
                one.send(
                    pb.CLIENTROLLBACK,
                    pb.ClientRollback(destination=destination, client_id=client_id),
                )
                continue
            received += len(message.messages)
            one.confirm(destination, message.batch_id, client_id)
        await one.close()
        return received

    async def test() -> None:
        stores = {f"shop{i}": ServedDestination(shop) for i in range(destinations)}
        # None may wait for its login longer than all logins take: they share one processor here.
        async with serving(stores, logins_max=clients, login_timeout_s=120) as server:
            found = await asyncio.gather(*(client(server.port, i) for i in range(clients)))
            assert set(found) == {sum(len(info.entries) for info, _ in shop)}
            assert server.status()["buffered_bytes"] == 0

    run(test, 500)
