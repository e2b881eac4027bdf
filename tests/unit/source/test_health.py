"""When a server is taken for dead: after failures in a row, and only with a standby."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from ray_canal.config import SourceConfig
from ray_canal.errors import ConnectionLost
from ray_canal.source import health
from ray_canal.source.health import HealthCheck


class Checked:
    """A server that answers each check with the next of `answers`; the last one goes on."""

    def __init__(self, *answers: bool) -> None:
        self._answers = list(answers)
        self.checks = threading.Semaphore(0)
        self.limits: SourceConfig | None = None

    def __call__(self, config: SourceConfig) -> Checked:
        self.limits = config
        return self

    def rows(self, sql: str) -> list[Any]:
        if sql.startswith("SHOW"):  # what cluster it is in
            return []
        well = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        self.checks.release()
        if not well:
            raise ConnectionLost("it does not answer")
        return []

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[HealthCheck, Checked, Any]]:
    def begun(*answers: bool, **more: Any) -> tuple[HealthCheck, Checked, Any]:
        server, dead = Checked(*answers), threading.Event()
        monkeypatch.setattr(health, "Catalog", server)
        config = SourceConfig(address="a:1", detect_interval_s=0.001, detect_failures=3, **more)
        return HealthCheck(config, dead.set), server, dead

    return begun


def checked(server: Checked, times: int) -> None:
    for _ in range(times):
        assert server.checks.acquire(timeout=30)


def test_so_many_failures_in_a_row_are_a_dead_server(check: Any) -> None:
    one, _, dead = check(False, False, True, False, standby=("b:1",))
    assert dead.wait(30)
    assert isinstance(one.failure, ConnectionLost)
    assert one.failures == 5  # two, an answer, and three in a row
    one.close()


def test_without_a_standby_failures_are_counted_alone(check: Any) -> None:
    one, server, dead = check(False)
    checked(server, 10)
    one.close()
    assert one.failures >= 9
    assert one.failure is None
    assert not dead.is_set()


def test_a_check_is_not_waited_for_longer_than_until_the_next(check: Any) -> None:
    one, server, _ = check(True, connect_timeout_s=60.0)
    assert server.limits is not None
    assert server.limits.connect_timeout_s == 1.0
    one.close()
