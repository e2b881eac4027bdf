"""The Flight server's actor as the plain class that it is, and what `serve_flight` is given."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pyarrow import flight

from ray_canal.client.flight import FlightAddress
from ray_canal.config import FlightConfig, load
from ray_canal.errors import ConfigError
from ray_canal.flight import actor as module
from ray_canal.flight.actor import FlightActor, plan_flight, serve_flight
from ray_canal.source.port import SourceStatus

INSTANCE = {"destination": "x", "source": {"address": "db:3306"}}


def given(**changed: Any) -> str:
    return FlightConfig.model_validate(
        {"host": "127.0.0.1", "port": 0, **changed}
    ).model_dump_json()


@pytest.fixture
def actor(monkeypatch: pytest.MonkeyPatch) -> Iterator[FlightActor]:
    monkeypatch.setattr(module, "take_up_log_settings", lambda namespace: None)
    monkeypatch.setattr(module, "keep_freed_memory", lambda: None)
    monkeypatch.setattr(module, "destinations", lambda namespace: ["orders", namespace])
    made = FlightActor(given(), "ns")
    yield made
    made.stop()


def test_it_serves_the_destinations_of_its_namespace(actor: FlightActor) -> None:
    with flight.connect(f"grpc://{actor.address()}") as client:
        [found] = client.do_action(flight.Action("destinations", b""))
        assert json.loads(found.body.to_pybytes()) == {"destinations": ["orders", "ns"]}


def test_no_proxy_of_the_web_is_asked_for_the_port(
    actor: FlightActor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `connect` ended with 'ipv4:127.0.0.1:9: Connection refused' where http_proxy was set."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    for name in ("no_proxy", "grpc_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    address = FlightAddress.of(f"grpc://{actor.address()}", "", "", None)
    with address.opened() as client:
        assert list(client.do_action(flight.Action("destinations", b"")))
    monkeypatch.setenv("grpc_proxy", "http://127.0.0.1:9")
    with address.opened() as client, pytest.raises(flight.FlightUnavailableError):
        list(client.do_action(flight.Action("destinations", b"")))


def test_the_reach_is_that_of_the_status_in_its_namespace(
    actor: FlightActor, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched = SourceStatus("bin.000007", 500, end=("bin.000008", 90))
    said = {"timeline": 0, "connected": True, "fetched": fetched}
    monkeypatch.setattr(module, "status", lambda name, namespace: {name: {**said, "ns": namespace}})
    found = actor._reach("x", 1)
    assert found is not None
    assert found.end is not None
    assert (found.read.position, found.end.number) == (500, 8)


def test_keys_that_differ_are_named(actor: FlightActor) -> None:
    assert actor.differs(given()) == []
    assert actor.differs(given(subscribers_max=7)) == ["subscribers_max"]


def test_a_port_that_is_taken_is_an_error_of_the_configuration(actor: FlightActor) -> None:
    port = int(actor.address().rpartition(":")[2])
    with pytest.raises(ConfigError, match=str(port)):
        FlightActor(given(port=port), "ns")


def test_a_port_without_its_section_is_refused_before_ray_is_asked() -> None:
    config = load({"instance": [INSTANCE]})
    for asked in (serve_flight, plan_flight):
        with pytest.raises(ConfigError, match=r"no \[flight\] section"):
            asked(config)


def test_no_password_leaves_in_clear_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the actor is made of lies in Ray's store."""
    told: list[str] = []
    monkeypatch.setattr(module, "port_plan", lambda name, text, namespace: told.append(text))
    user = {"username": "ada", "password": "s3cret", "rights": ["read"]}
    plan_flight(load({"instance": [INSTANCE], "flight": {"user": [user]}}))
    assert "s3cret" not in told[0]
    assert json.loads(told[0])["user"][0]["username"] == "ada"
