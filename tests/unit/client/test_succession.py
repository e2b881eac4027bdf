"""A head's turn: at once, after the one before has ended, or later: then it says whom it awaits."""

from __future__ import annotations

from typing import Any

import pytest
import ray

from ray_canal.client import succession
from ray_canal.client.succession import take_part
from ray_canal.config import CanalConfig

CANAL = CanalConfig.model_validate(
    {"instance": [], "meta": {"shared": True}, "ray": {"standby": True, "lease_s": 0.5}}
)


class Calls:
    """A controller of which each call returns its own answers; the last one goes on."""

    def __init__(self, *states: dict[str, Any]) -> None:
        self._states = list(states)
        self.stand_by, self.standing = self, self

    def remote(self, *given: Any) -> Any:
        if given:
            return None
        return self._states.pop(0) if len(self._states) > 1 else self._states[0]


def state(active: bool, error: str = "") -> dict[str, Any]:
    return {"active": active, "head": "other", "error": error, "begins": False}


@pytest.fixture(autouse=True)
def _answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "get", lambda answer, timeout: answer)
    monkeypatch.setattr(succession, "_MOMENT_S", 0.3)
    monkeypatch.setattr(succession, "_LEASES", 0.2)


def test_it_is_active_when_the_one_before_has_ended() -> None:
    assert take_part(CANAL, Calls(state(True)))
    assert take_part(CANAL, Calls(state(False), state(True)))


def test_else_it_waits_as_a_standby_and_says_for_whom(caplog: pytest.LogCaptureFixture) -> None:
    assert not take_part(CANAL, Calls(state(False)))
    assert "waits as a standby; other is active" in caplog.text
    assert not take_part(CANAL, Calls(state(False, "the lease cannot be read")))
    assert "the lease cannot be read" in caplog.text
