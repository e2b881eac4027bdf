"""Logins of Arrow Flight: tokens that end, headers that are none."""

from __future__ import annotations

import base64
from types import SimpleNamespace
from typing import Any

import pytest
from pyarrow import flight

from ray_canal.config import FlightConfig
from ray_canal.flight.logins import FlightLogins
from ray_canal.server.access import Access

HANDSHAKE = SimpleNamespace(method=flight.FlightMethod.HANDSHAKE)
CALL = SimpleNamespace(method=flight.FlightMethod.DO_GET)


def basic(name: str, password: str) -> dict[str, list[str]]:
    text = base64.b64encode(f"{name}:{password}".encode()).decode()
    return {"Authorization": [f"Basic {text}"]}


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def logins(clock: Clock, tokens_max: int = 2, **config: Any) -> FlightLogins:
    access = Access(FlightConfig(**{"password": "p:q", **config}))
    return FlightLogins(access, 10.0, tokens_max, clock)


def bearer(call: Any) -> dict[str, list[str]]:
    return {"authorization": [call.sending_headers()["authorization"]]}


def test_a_token_lasts_while_it_is_used() -> None:
    clock = Clock()
    access = logins(clock)
    token = bearer(access.start_call(HANDSHAKE, basic("anybody", "p:q")))
    for _ in range(3):
        clock.now += 9
        assert access.start_call(CALL, token).user.may("admin")
    clock.now += 11
    with pytest.raises(flight.FlightUnauthenticatedError, match="expired"):
        access.start_call(CALL, token)


def test_the_token_that_was_not_used_for_longest_ends_first() -> None:
    access = logins(Clock())
    first, second = (bearer(access.start_call(HANDSHAKE, basic("", "p:q"))) for _ in range(2))
    access.start_call(CALL, first)
    third = bearer(access.start_call(HANDSHAKE, basic("", "p:q")))
    for token in (first, third):
        access.start_call(CALL, token)
    with pytest.raises(flight.FlightUnauthenticatedError):
        access.start_call(CALL, second)


@pytest.mark.parametrize(
    "header",
    ["", "Basic", "Basic ?", "Basic gICA", "Bearer", "Digest x", "Basic " + "A" * 4096],
)
def test_a_header_that_is_none_lets_nobody_in(header: str) -> None:
    with pytest.raises(flight.FlightUnauthenticatedError):
        logins(Clock()).start_call(CALL, {"authorization": [header]})


def test_without_a_password_everybody_of_this_machine_may_come() -> None:
    access = logins(Clock(), password="")
    assert access.start_call(CALL, {}).user.may("admin")
    assert FlightConfig().listens_on == "127.0.0.1"
