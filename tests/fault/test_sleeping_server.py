"""Calls come to an end while what they ask sleeps: Canal's TCP port together with the controller,
which would replace it; Ray's head."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray

import ray_canal as canal
from ray_canal.actors import registry
from ray_canal.client import api, controller_calls, joining, succession
from ray_canal.client import apply as applying
from ray_canal.errors import InstanceNotRunning
from ray_canal.sinks.records import CommittedPlaces, asked_records
from tests.integration.test_tcp import deployment
from tests.processes import CONTROLLER, GCS, SERVER, running, stopped
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


@pytest.mark.timed
def test_nobody_waits_for_ever_for_a_port_that_sleeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They hung for as long as it slept."""
    name, others = tmp_path.name, {*running(SERVER), *running(CONTROLLER)}
    config = {**deployment(tmp_path, free_port()), "ray": {"namespace": name}}
    canal.start(config)
    sleeping = {*running(SERVER), *running(CONTROLLER)} - others
    assert len(sleeping) == 2
    monkeypatch.setattr(api, "ANSWER_S", 5.0)
    begun = time.monotonic()
    with stopped(*sleeping):
        (found,) = canal.server_status(namespace=name)
        assert "does not answer" in found["error"]
        canal.stop_serving(namespace=name)
        assert time.monotonic() - begun < 90
        with monkeypatch.context() as shorter:
            for limit in ("BUSY_S", "BEGIN_S", "ANSWER_S"):
                for module in (controller_calls, api, applying, succession):
                    shorter.setattr(module, limit, 0.5, raising=False)
            refused_by_the_controller(config, name)
        assert time.monotonic() - begun < 120
    assert canal.server_status(namespace=name) == []
    canal.stop("tcp-shop", namespace=name)


def head_at(address: str) -> int:
    """The process id of the head: one that did not start in time may be there, too."""
    port = int(address.rpartition(":")[2])
    (found,) = (
        pid
        for pid in running(GCS)
        if port in {each.laddr.port for each in psutil.Process(pid).net_connections() if each.laddr}
    )
    return found


def test_nobody_waits_for_ever_for_a_head_that_sleeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls waited for as long as it slept, or ended with an error of Ray's after a minute."""
    name, address = tmp_path.name, ray.get_runtime_context().gcs_address
    config = {**deployment(tmp_path, 0), "ray": {"namespace": name}}
    del config["server"]
    canal.start(config)
    with canal.connect("tcp-shop", 7, namespace=name) as connector:
        connector.subscribe()
        with stopped(head_at(address)), monkeypatch.context() as shorter:
            for module in (registry, joining):
                shorter.setattr(module, "HEAD_S", 1.0)
            shorter.setattr(joining, "_FIRST_JOIN_LIMIT_S", 1.0)
            for call in (
                lambda: registry.find_store("tcp-shop", name),
                lambda: canal.status(namespace=name),
                lambda: canal.nodes(namespace=name),
                lambda: canal.connect("tcp-shop", namespace=name),
                lambda: canal.sink_status(namespace=name),
            ):
                with pytest.raises(InstanceNotRunning, match=r"head does not answer .*gcs_server"):
                    call()
            shorter.setattr(registry, "HEAD_S", 0.1)
            records = asked_records(name)  # the head may fall asleep behind `connect_ray`'s look
            for call in (
                records.names,
                lambda: records.get("s"),
                lambda: records.put("s", {}, paused=False),
                lambda: records.remove("s"),
                lambda: CommittedPlaces(name).forget("s"),
            ):
                with pytest.raises(InstanceNotRunning, match=r"head does not answer .*gcs_server"):
                    call()
            assert joining._answer(address) is None  # nobody joins it
            assert connector.get(100, timeout=60)  # whoever has found its destination goes on
        assert canal.status(namespace=name)["tcp-shop"]["state"] == "finished"  # all was read
        records.put("s", {"destination": "tcp-shop"}, paused=True)
        assert records.get("s") == {"config": {"destination": "tcp-shop"}, "paused": True}
        records.remove("s")
        assert records.names() == []
    canal.stop("tcp-shop", namespace=name)
