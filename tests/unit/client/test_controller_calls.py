"""What a failed call of an actor becomes, and how long the controller is waited for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayTaskError

from ray_canal.client.controller_calls import answer, ask_controller, running_controller
from ray_canal.errors import ConfigError, InstanceNotRunning

LATE = GetTimeoutError("late")


class Controller:
    """Each wait for an answer to a call finds the next one of `answers`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **answers: list[Any]) -> None:
        self.answers = answers
        self.limits: list[float | None] = []
        monkeypatch.setattr(ray, "get", self._get)

    def __getattr__(self, method: str) -> Any:
        return SimpleNamespace(remote=lambda *arguments: (method, *arguments))

    def _get(self, reference: Any, timeout: float | None = None) -> Any:
        self.limits.append(timeout)
        found = self.answers[reference[0]].pop(0)
        if isinstance(found, Exception):
            raise found
        return found


@pytest.mark.parametrize(
    ("raised", "kind", "text"),
    [
        (RayTaskError("call", "", ConfigError("no such table")), ConfigError, "no such table"),
        (ActorUnavailableError("gone", None), InstanceNotRunning, "went away during the call"),
        (LATE, InstanceNotRunning, "does not answer; try again"),
    ],
)
def test_failures_are_our_own_errors(
    raised: Exception, kind: type[Exception], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = Controller(monkeypatch, apply=[raised])
    with pytest.raises(kind, match=text):
        answer(controller.apply.remote(1))


def test_without_a_controller_it_is_said_how_to_start_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str, namespace: str) -> Any:
        raise ValueError(name)

    monkeypatch.setattr(ray, "get_actor", none)
    with pytest.raises(InstanceNotRunning, match="ray-canal start CONFIG"):
        running_controller("n")


def test_one_that_works_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = Controller(monkeypatch, standing=[None] * 3, apply=[LATE, LATE, "done"])
    assert ask_controller(controller, "apply", first_s=7.0) == "done"
    assert controller.limits[0] == 7.0
    assert None not in controller.limits


def test_one_that_sleeps_is_asked_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = Controller(monkeypatch, standing=[LATE], apply=["done"])
    with pytest.raises(InstanceNotRunning, match=r"for 60 s, and nothing was changed: .*head node"):
        ask_controller(controller, "apply")
    assert controller.answers["apply"] == ["done"]


def test_one_that_falls_asleep_may_still_do_it(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = Controller(monkeypatch, standing=[None, LATE], apply=[LATE])
    with pytest.raises(InstanceNotRunning, match="may still do what it was asked for"):
        ask_controller(controller, "apply")
