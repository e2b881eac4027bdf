"""Explain asks for subscribers only where somebody can answer, and goes on where nobody does."""

from __future__ import annotations

from typing import Any

import pytest

from ray_canal.client import explain as questions
from ray_canal.errors import InstanceNotRunning


def asked(
    monkeypatch: pytest.MonkeyPatch,
    status: dict[str, Any],
    answer: Any,
    client_id: int | None = None,
) -> tuple[str, list[str]]:
    """What is explained, and whose subscribers were asked for."""
    found: list[str] = []

    def subscribers(destination: str, **_: Any) -> dict[str, Any]:
        found.append(destination)
        if isinstance(answer, Exception):
            raise answer
        return {destination: answer}

    monkeypatch.setattr(questions, "status", lambda name, **_: {name: status})
    monkeypatch.setattr(questions, "subscribers", subscribers)
    return str(questions.explain("orders", client_id)), found


def test_of_a_process_that_starts_again_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    text, found = asked(monkeypatch, {"state": "restarting", "error": "no answer"}, [])
    assert found == []
    assert "orders" in text


def test_that_nobody_answers_keeps_the_status_from_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    status = {"state": "failed", "error": "PositionPurged: bin.000001 is gone"}
    text, found = asked(monkeypatch, status, InstanceNotRunning("it starts"))
    assert found == ["orders"]
    assert "bin.000001" in text


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ({"state": "restarting", "error": "no answer"}, "its process is being started again"),
        ({"state": "failed", "error": "MetaUnavailable: refused"}, "MetaUnavailable: refused"),
        ({"state": "running", "connected": True}, "all that the server has written was read"),
    ],
)
def test_a_subscriber_that_nobody_can_ask_about_is_not_said_to_be_missing(
    monkeypatch: pytest.MonkeyPatch, status: dict[str, Any], reason: str
) -> None:
    text, _ = asked(monkeypatch, status, InstanceNotRunning("the cursors' server is away"), 1001)
    assert reason in text
    assert "no subscriber" not in text
    assert "nobody has subscribed" not in text


def test_a_subscriber_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    text, _ = asked(monkeypatch, {"state": "running", "connected": True}, [], 1001)
    assert "there is no subscriber 1001" in text
