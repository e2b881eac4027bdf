"""How the processes of an upstream are begun: what they belong to, and what they are told."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from ray_canal.actors import log_settings
from ray_canal.actors.log_settings import LogTerms
from ray_canal.actors.placement import CONTROL_GROUP, HEALTH_GROUP
from ray_canal.actors.upstream import stages
from ray_canal.config import InstanceConfig
from ray_canal.config.log import LogConfig
from ray_canal.model.position import EntryPosition
from tests.unit.actors.small_cluster import NODE, Handle, SmallCluster

CONFIG = InstanceConfig.model_validate(
    {"destination": "x", "source": {"address": "db:3306", "password": "s3cret"}}
)
BEGIN: dict[str, Callable[[], Any]] = {
    "FetcherActor": lambda: stages.fetcher(CONFIG, False),
    "Parser": lambda: stages.parser(CONFIG),
    "TransactionBufferActor": lambda: stages.transaction_buffer(CONFIG, EntryPosition("b"), ""),
    "Spiller": lambda: stages.spiller("/tmp/x"),
}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> SmallCluster:
    monkeypatch.setattr(log_settings, "_taken", None)
    return SmallCluster(monkeypatch)


@pytest.mark.parametrize("name", BEGIN)
def test_a_stage_dies_with_its_owner_and_holds_no_cpu(cluster: SmallCluster, name: str) -> None:
    """It has no name and no restarts: the store makes another one."""
    stage: Handle = BEGIN[name]()
    actor, options, _ = stage.made
    assert actor.__name__ == name
    assert (options["num_cpus"], options["max_restarts"]) == (0, 0)
    assert not options.keys() & {"name", "lifetime", "namespace"}
    strategy = options["scheduling_strategy"]
    assert (strategy.node_id, strategy.soft) == (NODE, name != "Spiller")


@pytest.mark.parametrize("name", ["FetcherActor", "Parser"])
def test_a_password_is_told_and_never_kept_by_ray(cluster: SmallCluster, name: str) -> None:
    """What an actor is made with lies in Ray's store."""
    stage: Handle = BEGIN[name]()
    given = json.loads(stage.made[2][0])
    assert "s3cret" not in str(stage.made)
    [[told]] = stage.called("remember")
    assert told == {given["source"]["password"]: "s3cret"}


def test_who_reads_no_server_is_told_no_password(cluster: SmallCluster) -> None:
    stage: Handle = BEGIN["TransactionBufferActor"]()
    assert "s3cret" not in str(stage.made) + str(stage.calls)


def test_health_and_control_pass_a_call_that_waits(cluster: SmallCluster) -> None:
    groups = {name: BEGIN[name]().made[1].get("concurrency_groups", {}) for name in BEGIN}
    assert groups["FetcherActor"] == {CONTROL_GROUP: 1, HEALTH_GROUP: 1}
    assert groups["Parser"] == groups["TransactionBufferActor"] == {HEALTH_GROUP: 1}


def test_stages_log_as_whoever_begins_them(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert BEGIN["Parser"]().called("log_as") == []
    terms = LogTerms(LogConfig(level="debug"), {"destination": "x"})
    monkeypatch.setattr(stages, "log_terms", lambda: terms)
    assert BEGIN["Spiller"]().called("log_as") == [[terms, "spiller"]]


def test_a_standby_outlives_its_maker(cluster: SmallCluster) -> None:
    found: Handle = stages.spare("canal-spare:1", NODE)
    _, options, given = found.made
    assert (options["name"], options["lifetime"]) == ("canal-spare:1", "detached")
    assert options["scheduling_strategy"].node_id == NODE
    assert given == ("canal-spare:1", NODE)


def test_one_that_cannot_be_told_to_end_is_left(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage: Handle = BEGIN["Spiller"]()
    stages.end(stage)  # type: ignore[arg-type]
    assert cluster.killed == [("Spiller", True)]
    stages.end(None)  # type: ignore[arg-type]  # Ray would raise
