"""Calls about Canal's TCP port and a destination while the port's process sleeps, and so does the
controller, which would replace it: they come to an end."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import ray_canal as canal
from ray_canal.client import api, controller_calls, succession
from ray_canal.client import apply as applying
from ray_canal.errors import InstanceNotRunning
from tests.integration.test_tcp import deployment
from tests.processes import CONTROLLER, SERVER, running, stopped
from tests.servers.run import free_port

pytestmark = pytest.mark.usefixtures("local_ray")


def refused_by_the_controller(config: dict[str, Any], name: str) -> None:
    """Every call that asks it something: they say what is wrong, and where."""
    for call in (
        lambda: canal.stop("tcp-shop", namespace=name),
        lambda: canal.start(config, timeout=0.5),
        lambda: canal.apply(config),
        lambda: canal.plan(config),
    ):
        with pytest.raises(InstanceNotRunning, match=r"does not answer.*nothing was changed"):
            call()
    with pytest.raises(InstanceNotRunning, match="does not answer"):
        canal.standing(namespace=name)


def test_nobody_waits_for_ever_for_a_port_that_sleeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They hung for as long as it slept."""
    name, others = "port_sleeps", {*running(SERVER), *running(CONTROLLER)}
    config = {**deployment(tmp_path, free_port()), "ray": {"namespace": name}}
    canal.start(config)
    sleeping = {*running(SERVER), *running(CONTROLLER)} - others
    assert len(sleeping) == 2
    monkeypatch.setattr(api, "_ANSWER_S", 5.0)
    begun = time.monotonic()
    with stopped(*sleeping):
        (found,) = canal.server_status(namespace=name)
        assert "does not answer" in found["error"]
        canal.stop_serving(namespace=name)
        assert time.monotonic() - begun < 90
        with monkeypatch.context() as shorter:
            for limit in ("BUSY_S", "BEGIN_S", "_ANSWER_S"):
                for module in (controller_calls, api, applying, succession):
                    shorter.setattr(module, limit, 0.5, raising=False)
            refused_by_the_controller(config, name)
        assert time.monotonic() - begun < 120
    assert canal.server_status(namespace=name) == []
    canal.stop("tcp-shop", namespace=name)
