"""Metrics are published while a destination lives, whatever its status; then that it ended."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from ray_canal.destination.status import publish


class Published(list[str]):
    def publish(self, status: dict[str, Any]) -> None:
        self.append(status["state"])

    def gone(self) -> None:
        self.append("gone")


async def published(states: list[str]) -> list[str]:
    """What is published of a destination that is in these states, and fails at an empty one."""
    found, left = Published(), iter(states)

    async def status() -> dict[str, Any]:
        state = next(left, None)
        if state is None:
            task.cancel()
        if not state:
            raise RuntimeError("it is being opened")
        return {"state": state}

    task = asyncio.create_task(publish.publish_metrics(found, "orders", status))
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.wait_for(task, 30)
    return found


def test_a_status_that_fails_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(publish, "FIRST_S", 0.0)
    monkeypatch.setattr(publish, "PERIOD_S", 0.0)
    assert asyncio.run(published(["running", "", "running"])) == ["running", "running", "gone"]
    assert "orders: no metrics: it is being opened" in caplog.text
