"""`start --standby` says which head is active, opens ports while it is this one, and leaves."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import ray_canal as canal
from ray_canal.cli import ports, standby
from ray_canal.config import load
from ray_canal.errors import ConfigError, InstanceNotRunning

META = {"backend": "mysql", "address": "127.0.0.1:3306"}


def config(**sections: Any) -> dict[str, Any]:
    source = {"address": "127.0.0.1:3306", "password": "in clear text"}
    return {"meta": META, "instance": [{"destination": "d", "source": source}], **sections}


def test_the_option_is_the_key() -> None:
    given = load(config(ray={"node": "any", "lease_s": 2.0}))
    assert standby.with_standby(given) == load(
        config(ray={"node": "any", "lease_s": 2.0, "standby": True})
    )


def test_cursors_that_no_other_head_has_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ray\.standby"):
        standby.with_standby(load(config(meta={"path": str(tmp_path / "meta.db")})))


class Cluster:
    """States of a head, one at each look; then a signal comes."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *states: dict[str, Any] | InstanceNotRunning | None
    ) -> None:
        self.calls: list[str] = []
        self._states = list(states)
        self._stopped = threading.Event()
        monkeypatch.setattr(canal, "standing", self._standing)
        monkeypatch.setattr(canal, "leave", lambda **_: self.calls.append("leave"))
        monkeypatch.setattr(ports, "open_ports", self._open)
        monkeypatch.setattr(ports, "close_ports", lambda _: self.calls.append("close"))
        monkeypatch.setattr(standby, "until_signal", self._until_signal)
        monkeypatch.setattr(standby, "_LOOK_S", 0.01)

    def _open(self, _: Any) -> dict[str, str]:
        self.calls.append("open")
        return {"Arrow Flight": "127.0.0.1:1"}

    def _standing(self, **_: Any) -> dict[str, Any] | None:
        state = self._states.pop(0)
        if not self._states:
            self._stopped.set()
        if isinstance(state, InstanceNotRunning):
            raise state
        return state

    @contextmanager
    def _until_signal(self) -> Iterator[threading.Event]:
        yield self._stopped


def state(*, active: bool, head: str = "other", error: str = "") -> dict[str, Any]:
    return {"active": active, "head": head, "error": error, "begins": False}


def test_changes_are_said_once_and_ports_follow(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    waits, active = state(active=False), state(active=True)
    away = state(active=False, error="no connection")
    cluster = Cluster(monkeypatch, waits, waits, active, active, away)
    standby.stand_by(load(config()), detach=False, as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "this head waits; other is active",
        "this head is active",
        "Arrow Flight: 127.0.0.1:1",
        "this head waits; other is active (no connection)",
    ]
    assert cluster.calls == ["open", "close", "leave"]


def test_while_the_controller_sleeps_that_is_said_and_ports_stay(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    active = state(active=True)
    cluster = Cluster(monkeypatch, active, InstanceNotRunning("it does not answer"), active)
    standby.stand_by(load(config()), detach=False, as_json=False)
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "it does not answer",
        "this head is active",
    ]
    assert cluster.calls == ["open", "leave"]


def test_detached_it_looks_once_and_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, state(active=True), None)
    standby.stand_by(load(config()), detach=True, as_json=False)
    assert cluster.calls == ["open"]


def test_for_programs_each_change_is_a_line_of_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    states = state(active=False), state(active=True)
    Cluster(monkeypatch, *states)
    standby.stand_by(load(config()), detach=False, as_json=True)
    told = capsys.readouterr()
    assert [json.loads(line) for line in told.out.splitlines()] == list(states)
    assert "Arrow Flight: 127.0.0.1:1" in told.err


def test_a_head_that_waits_says_so_in_status(monkeypatch: pytest.MonkeyPatch) -> None:
    Cluster(monkeypatch, None, state(active=True), state(active=False))
    assert [standby.waiting_text("ns") for _ in range(3)] == [
        "", "", "this head waits; other is active",
    ]  # fmt: skip
