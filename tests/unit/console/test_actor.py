"""The console's actor as the plain class that it is, and what `serve_console` is given."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from ray_canal.config import ConsoleConfig, load
from ray_canal.console import actor as module
from ray_canal.console.actor import ConsoleActor, plan_console, serve_console
from ray_canal.errors import ConfigError
from tests.unit.console.played import Played

INSTANCE = {"destination": "x", "source": {"address": "db:3306"}}


def given(**console: Any) -> str:
    return ConsoleConfig.model_validate({"port": 0, **console}).model_dump_json()


@pytest.fixture
def actor(monkeypatch: pytest.MonkeyPatch) -> Iterator[ConsoleActor]:
    monkeypatch.setattr(module, "Cluster", lambda namespace: Played(2))
    monkeypatch.setattr(module, "give_way", lambda: None)
    monkeypatch.setattr(module, "take_up_log_settings", lambda namespace: None)
    made = ConsoleActor(given(refresh_s=0.2), "ns")
    yield made
    made.stop()


def test_it_serves_from_its_constructor_on(actor: ConsoleActor) -> None:
    with urllib.request.urlopen(f"{actor.address()}/healthz", timeout=30) as answer:
        assert answer.status == 200


def test_keys_that_differ_are_named(actor: ConsoleActor) -> None:
    assert actor.differs(given(refresh_s=0.2)) == []
    assert actor.differs(given(refresh_s=0.3, logins_max=7)) == ["refresh_s", "logins_max"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # uvicorn's
def test_a_port_that_is_taken_is_an_error_of_the_configuration(actor: ConsoleActor) -> None:
    port = int(actor.address().rpartition(":")[2])
    with pytest.raises(ConfigError, match=str(port)):
        ConsoleActor(given(port=port), "ns")


def test_a_console_without_its_section_is_refused_before_ray_is_asked() -> None:
    config = load({"instance": [INSTANCE]})
    for asked in (serve_console, plan_console):
        with pytest.raises(ConfigError, match=r"no \[console\] section"):
            asked(config)


def test_no_password_leaves_in_clear_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the actor is made of lies in Ray's store."""
    told: list[str] = []
    monkeypatch.setattr(module, "port_plan", lambda name, text, namespace: told.append(text))
    user = {"username": "ada", "password": "s3cret", "rights": ["admin"]}
    plan_console(load({"instance": [INSTANCE], "console": {"user": [user]}}))
    assert "s3cret" not in told[0]
    assert json.loads(told[0])["user"][0]["username"] == "ada"
