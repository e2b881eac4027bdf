"""How a stage logs: as whoever began it, in the name of its destination."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from ray_canal import logs
from ray_canal.actors import log_settings
from ray_canal.actors.log_settings import LogTerms, StageActor, log_terms, take_over
from ray_canal.config.log import LogConfig


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The formats and levels that this process was told to write."""
    found: list[Any] = []
    monkeypatch.setattr(log_settings, "write_to_stderr", lambda *given: found.append(given))
    monkeypatch.setattr(log_settings, "_taken", None)
    monkeypatch.setattr(log_settings, "_terms", None)
    monkeypatch.setattr(logs, "_of_process", {})
    return found


def test_without_a_section_nothing_is_passed_on(written: list[Any]) -> None:
    take_over(None)
    assert log_terms() is None
    assert written == []


def test_terms_are_taken_once_and_passed_on(
    written: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    terms = LogTerms(LogConfig(format="json", level="debug"), {"destination": "orders"})
    StageActor().log_as(terms, "parser")
    take_over(terms)
    assert written == [("json", "debug")]
    assert "the parser has begun" in caplog.text
    passed = log_terms()
    assert passed is not None
    assert passed.config == terms.config
    take_over(LogTerms(LogConfig(level="error"), {}))
    assert written == [("json", "debug"), ("text", "error")]
