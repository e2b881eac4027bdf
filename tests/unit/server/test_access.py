"""Who may come in over the port, and what for."""

from __future__ import annotations

import secrets
import socket
from pathlib import Path
from typing import Any

import pytest

from ray_canal.canal.generated import CanalProtocol_pb2 as pb
from ray_canal.canal.scramble import scramble411
from ray_canal.canal.session import Ack, Get, Identity, Rollback, Subscribe, Unsubscribe
from ray_canal.config import ServerConfig
from ray_canal.destination.api import ClientRequest, DestinationApi
from ray_canal.errors import AccessDenied, ConfigError
from ray_canal.server.access import EVERYBODY, Access, User
from ray_canal.server.listener import TcpServer
from tests.canal_client import RawClient
from tests.served_destination import Decoded, ServedDestination, opener
from tests.unit.server.conftest import run, serving

ANN = {"username": "ann", "password": "a", "destinations": ["shop", "crm_*"], "client_ids": "7-8"}
BOB = {"username": "bob", "password": "b", "rights": ["read"]}


def entering(config: dict[str, Any], name: str, password: str) -> User | None:
    seed = secrets.token_bytes(8)
    answer = scramble411(password, seed).hex().encode()
    return Access(ServerConfig.model_validate(config)).login(name, seed, answer)


@pytest.mark.parametrize(
    ("name", "password", "who"),
    [
        ("ann", "a", "ann"),
        ("ann", "b", None),
        ("ann", "one", None),  # the server's password is not hers
        ("bob", "b", "bob"),
        ("canal", "one", ""),
        ("eve", "one", None),
        ("", "", None),
    ],
)
def test_each_user_has_a_password(name: str, password: str, who: str | None) -> None:
    config = {"username": "canal", "password": "one", "user": [ANN, BOB]}
    found = entering(config, name, password)
    assert (None if found is None else found.name) == who


def test_with_users_alone_nobody_else_comes_in() -> None:
    assert entering({"user": [ANN]}, "", "") is None
    assert entering({"user": [ANN]}, "eve", "") is None
    assert entering({}, "eve", "") is EVERYBODY


def requests(destination: str, client_id: int) -> dict[str, Any]:
    who = Identity(destination, client_id)
    return {
        "get": Get(who, 1, None, False),
        "auto": Get(who, 1, None, True),
        "ack": Ack(who, 1),
        "rollback": Rollback(who, None),
        "subscribe": Subscribe(who, ""),
        "unsubscribe": Unsubscribe(who),
    }


@pytest.mark.parametrize(
    ("user", "destination", "client_id", "refused"),
    [
        ({}, "shop", 1, "unsubscribe"),
        ({"client_ids": "1-3"}, "shop", 1, ""),
        ({"client_ids": "1-3, 9"}, "shop", 9, ""),
        ({"client_ids": "1-3"}, "shop", 4, "all"),
        ({"rights": ["read"]}, "shop", 1, "auto ack unsubscribe"),
        ({"rights": ["read", "ack"]}, "shop", 1, "unsubscribe"),
        ({"rights": ["ack"]}, "shop", 1, "all"),
        ({"rights": ["admin"]}, "shop", 1, ""),
        ({"destinations": ["shop"]}, "crm", 1, "all"),
        ({"destinations": ["crm_*", "shop"]}, "crm_eu", 1, "unsubscribe"),
        ({"destinations": ["crm_*", "shop"]}, "Shop", 1, "all"),
    ],
)
def test_rights(user: dict[str, Any], destination: str, client_id: int, refused: str) -> None:
    """C1: rights per destination and client id."""
    found = entering({"user": [{"username": "u", "password": "p", **user}]}, "u", "p")
    assert found is not None
    for name, request in requests(destination, client_id).items():
        if refused == "all" or name in refused.split():
            with pytest.raises(AccessDenied, match="user 'u' may not"):
                found.refuse(request)
        else:
            found.refuse(request)


@pytest.mark.parametrize("name", ["get", "auto", "ack", "rollback", "subscribe", "unsubscribe"])
def test_the_one_password_has_all_rights(name: str) -> None:
    EVERYBODY.refuse(requests("shop", 1)[name])


async def logged_in(port: int, name: str, password: str) -> RawClient:
    client = await RawClient.open(port)
    assert (await client.log_in(name, password)).error_code == 0
    return client


def test_what_a_user_may_not_do_is_not_done(shop: Decoded) -> None:
    """C1: over the port, with the errors that a client sees."""
    store, other = ServedDestination(shop), ServedDestination(shop)
    seven = ClientRequest(client_id=7)

    async def test() -> None:
        async with serving({"shop": store, "crm": other}, user=[ANN, BOB]) as server:
            ann = await logged_in(server.port, "ann", "a")
            bob = await logged_in(server.port, "bob", "b")
            denied = await ann.subscribe("crm", "7")
            assert denied.error_code == 400
            assert "AccessDenied: user 'ann' may not read this destination" in denied.error_message
            await ann.ack()  # the subscription's own answer, behind the rollback's
            assert "be client 9" in (await ann.subscribe("shop", "9")).error_message
            await ann.ack()
            # Bob may read as a subscriber that there is, and as no other.
            assert "make a client id" in (await bob.subscribe("shop", "7")).error_message
            assert (await ann.subscribe("shop", "7", r"shop\.customers")).error_code == 0
            assert "change its filter" in (await bob.subscribe("shop", "7", r".*")).error_message
            assert (await bob.subscribe("shop", "7")).error_code == 0
            assert (await bob.subscribe("shop", "7", r"shop\.customers")).error_code == 0
            assert await store.call_async(DestinationApi.filter_of, seven) == r"shop\.customers"
            message = await bob.get("shop", "7", fetch_size=3)
            bob.confirm("shop", message.batch_id, "7")
            assert "may not acknowledge" in (await bob.ack()).error_message
            assert store.outstanding(7) == [message.batch_id]
            bob.ask("shop", "7", fetch_size=1, auto_ack=True)
            assert "may not acknowledge" in (await bob.ack()).error_message
            assert store.outstanding(7) == [message.batch_id]
            bob.send(pb.UNSUBSCRIPTION, pb.Unsub(destination="shop", client_id="7"))
            assert "may not remove" in (await bob.ack()).error_message
            # The id is Ann's own, once she has subscribed last.
            assert (await ann.subscribe("shop", "7")).error_code == 0
            ann.send(pb.UNSUBSCRIPTION, pb.Unsub(destination="shop", client_id="7"))
            assert (await ann.ack()).error_code == 0
            assert await store.call_async(DestinationApi.filter_of, seven) is None
            await ann.close()
            await bob.close()

    run(test)


def test_without_a_password_the_port_is_this_machines_alone(caplog: Any) -> None:
    """C1: who says nothing about clients opens nothing to the network, and is told."""
    config = ServerConfig(port=0)

    async def test() -> None:
        server = TcpServer(config, opener({}))
        await server.start()
        assert server.status()["address"] == f"127.0.0.1:{server.port}"
        assert "no password is set" in server.status()["warning"]
        with pytest.raises(ConnectionRefusedError), socket.socket() as other:
            other.connect(("127.0.0.2", server.port))  # this machine's, too, but not that address
        await server.close()

    run(test)
    assert "no password is set, so the port listens on 127.0.0.1 alone" in caplog.text


def test_a_name_writes_no_line_into_the_log(caplog: Any) -> None:
    async def test() -> None:
        async with serving({}, password="right") as server:
            client = await RawClient.open(server.port)
            await client.log_in("x\nERROR all is lost", "wrong")
            assert await client.ended()

    with caplog.at_level("INFO", "ray_canal.server"):
        run(test)
    told = [each.getMessage() for each in caplog.records if "auth failed" in each.getMessage()]
    assert len(told) == 1
    assert "\n" not in told[0]


def test_an_empty_secret_is_no_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C1: `env:X` with an X that is set, but empty, lets nobody in by the empty password."""
    monkeypatch.setenv("CANAL_TEST_EMPTY", "")
    (tmp_path / "empty").write_text("\n")
    for value in ("env:CANAL_TEST_EMPTY", f"file:{tmp_path / 'empty'}"):
        for config in (
            {"password": value},
            {"password_hash": value},
            {"user": [{"username": "u", "password": value}]},
        ):
            with pytest.raises(ConfigError, match="is empty"):
                TcpServer(ServerConfig.model_validate(config), opener({}))
