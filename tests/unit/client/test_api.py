"""What a failed call of an actor becomes, and when a change of the TCP port is one."""

from __future__ import annotations

from typing import Any

import pytest
import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayTaskError

from ray_canal.client import api
from ray_canal.client.api import call_actor
from ray_canal.errors import ConfigError, InstanceNotRunning


class Method:
    """An actor's method: each call refers to its arguments."""

    def remote(self, *arguments: Any) -> Any:
        return arguments


@pytest.mark.parametrize(
    ("raised", "kind", "text"),
    [
        (RayTaskError("call", "", ConfigError("no such table")), ConfigError, "no such table"),
        (ActorUnavailableError("gone", None), InstanceNotRunning, "went away during the call"),
        (GetTimeoutError("late"), InstanceNotRunning, "does not answer; try again"),
    ],
)
def test_failures_are_our_own_errors(
    raised: Exception, kind: type[Exception], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def get(reference: Any, timeout: float | None = None) -> Any:
        raise raised

    monkeypatch.setattr(ray, "get", get)
    with pytest.raises(kind, match=text):
        call_actor(Method(), 1)


def test_without_a_controller_it_is_said_how_to_start_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str, namespace: str) -> Any:
        raise ValueError(name)

    monkeypatch.setattr(ray, "get_actor", none)
    with pytest.raises(InstanceNotRunning, match="ray-canal start CONFIG"):
        api._controller("n")
