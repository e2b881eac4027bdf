"""Waiting for a snapshot: until it has ended, over restarts, and no longer than one wants."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ray_canal.client import snapshots
from ray_canal.client.snapshots import SnapshotControl
from ray_canal.errors import ConfigError, InstanceNotRunning

RUNNING, DONE = {"state": "running"}, {"state": "done", "rows": 7}


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "_POLL_S", 0.0)


def told(answers: Iterator[Any]) -> Callable[..., Any]:
    def call(*_: Any) -> Any:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return call


@pytest.fixture
def wait(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    def run(*answers: Any, timeout: float | None = None) -> Any:
        monkeypatch.setattr(snapshots, "call_once", told(iter(answers)))
        return SnapshotControl("orders", 7, "n").wait(timeout)

    return run


def test_it_ends_with_the_snapshot_also_over_a_restart(wait: Any) -> None:
    assert wait(RUNNING, InstanceNotRunning("it starts"), RUNNING, DONE) == DONE


def test_a_destination_that_stays_away_is_told(wait: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "_AWAY_S", -1.0)
    with pytest.raises(InstanceNotRunning, match="it starts"):
        wait(RUNNING, InstanceNotRunning("it starts"))


def test_it_waits_no_longer_than_it_should(wait: Any) -> None:
    with pytest.raises(TimeoutError, match="not ended in 0 s"):
        wait(RUNNING, RUNNING, RUNNING, timeout=0.0)


def test_that_there_is_none_is_told_at_once(wait: Any) -> None:
    with pytest.raises(ConfigError, match="no snapshot"):
        wait(ConfigError("there is no snapshot"))
