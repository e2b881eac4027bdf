"""What the controller begins, ends and replaces, over actors that answer what a test says."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from ray.exceptions import ActorDiedError

from ray_canal.actors import launch, log_settings
from ray_canal.actors.control import controller as module
from ray_canal.actors.control import homes
from ray_canal.actors.control.balance import Node
from ray_canal.actors.control.controller import Controller
from ray_canal.actors.control.process_starts import ENDS_MAX, Starts
from ray_canal.actors.control.succession import STOPPED
from ray_canal.actors.placement_table import PlacementTable
from ray_canal.config import CanalConfig, kept_secrets, load
from ray_canal.errors import ConfigError, InstanceNotFound
from tests.unit.actors.small_cluster import SILENT, SmallCluster, until

HEAD = Node("head" * 14, 8, 8e9, is_head=True)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SmallCluster:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(log_settings, "_taken", None)
    monkeypatch.setattr(module, "_ANSWER_S", 20.0)  # a busy machine is late
    monkeypatch.setattr(module, "share_here", lambda wanted, *_: 1 if wanted == "auto" else wanted)
    for each in (module, homes):
        monkeypatch.setattr(each, "cluster_nodes", lambda: [HEAD])
    found = SmallCluster(monkeypatch)
    found.born = lambda actor: {"reconcile": {}}
    return found


def config(*names: str, share: int = 1, stall_s: float = 5.0, **source: Any) -> CanalConfig:
    source = {"address": "db:3306", "password": "s3cret", **source}
    return load(
        {
            "ray": {"destinations_per_process": share, "stall_s": stall_s},
            "instance": [{"destination": name, "source": source} for name in names],
        }
    )


def run(
    story: Callable[[Controller], Coroutine[Any, Any, None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own beat stands still: a test calls `_check`."""

    async def still(_: Controller) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Controller, "_keep_running", still)

    async def whole() -> None:
        actor = Controller.__new__(Controller)
        await Controller.__init__(actor, "ns", False)  # type: ignore[misc]
        await story(actor)
        actor._watch.cancel()

    asyncio.run(asyncio.wait_for(whole(), 60))


def test_every_destination_has_its_process(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(actor: Controller) -> None:
        assert await actor.apply(config("a", "b").model_dump_json()) == {}
        places = PlacementTable("ns").all()
        assert {place.process for place in places.values()} == set(cluster.actors)
        assert len(cluster.actors) == 2
        assert await actor.destinations() == ["a", "b"]
        assert "s3cret" not in str(cluster.values) + str([each.made for each in cluster.made])
        before = dict(cluster.actors)
        await actor.apply(config("a", "b").model_dump_json())
        assert cluster.actors == before, "nothing has changed"

    run(story, monkeypatch)


def test_a_changed_one_is_begun_again_or_refused(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(actor: Controller) -> None:
        await actor.apply(config("a").model_dump_json())
        other = config("a", password="other").model_dump_json()
        with pytest.raises(ConfigError, match=r"a \(source.password\)"):
            await actor.apply(other, False)
        [process] = cluster.actors.values()
        assert process.called("renew") == []
        assert await actor.apply(other) == {"a": ["source.password"]}
        assert process.called("renew") == [["a"]]
        process.answers["renew"] = ActorDiedError()
        assert await actor.apply(config("a").model_dump_json()), "it finds it when it is back"
        assert cluster.killed == []
        process.answers["renew"] = SILENT
        await actor.apply(config("a", stall_s=1.0, password="third").model_dump_json())
        assert cluster.killed == [(process.name, False)], "stopped: Ray restarts it"

    run(story, monkeypatch)


def test_a_stopped_one_leaves_its_process_to_others(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(actor: Controller) -> None:
        await actor.apply(config("a", "b", share=2).model_dump_json())
        [process] = cluster.actors.values()
        await actor.stop("a")
        assert process.called("drop") == [["a", True]]
        assert cluster.killed == []
        assert await actor.destinations() == ["b"]
        with pytest.raises(InstanceNotFound, match="'a'"):
            await actor.stop("a")
        await actor.stop("b")
        assert cluster.killed == [(process.name, True)], "nothing is left in it"

    run(story, monkeypatch)


def test_one_without_a_process_can_be_stopped(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its node has ended, and no other one fits."""

    async def story(actor: Controller) -> None:
        await actor.apply(config("a").model_dump_json())
        kept: dict[str, str] = {}

        async def keep(texts: dict[str, str]) -> None:
            kept.update(texts)

        monkeypatch.setattr(actor._succession, "keep", keep)
        cluster.actors.clear()
        await actor.stop("a")
        assert await actor.destinations() == []
        assert kept == {"a": STOPPED}, "a standby does not begin it"
        assert cluster.actors == {}

    run(story, monkeypatch)


def test_a_process_that_cannot_be_told_to_drop_one_begins_again_without_it(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(actor: Controller) -> None:
        await actor.apply(config("a", "b", share=2, stall_s=1.0).model_dump_json())
        [process] = cluster.actors.values()
        process.answers["drop"] = SILENT
        await actor.stop("a")
        assert cluster.killed == [(process.name, False)]

    run(story, monkeypatch)


def test_one_that_answered_and_does_not_now_is_replaced(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(actor: Controller) -> None:
        await actor.apply(config("a", stall_s=1.0).model_dump_json())
        actor._stall_s = 0.05
        [process] = cluster.actors.values()
        process.answers["reconcile"] = SILENT
        await actor._check()
        assert cluster.killed == [], "it has not answered yet: it may still be starting"
        process.answers["reconcile"] = {}
        await actor._check()
        process.answers["reconcile"] = ActorDiedError()
        await actor._check()
        assert cluster.killed == [], "Ray restarts it"
        process.answers["reconcile"] = {}
        await actor._check()
        process.answers["reconcile"] = SILENT
        await actor._check()
        await actor._check()
        assert cluster.killed == [(process.name, False)], "once: the next life may take its time"

    run(story, monkeypatch)


def test_one_that_is_gone_is_made_again(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(actor: Controller) -> None:
        await actor.apply(config("a").model_dump_json())
        before = set(cluster.actors)
        cluster.actors.clear()
        await actor._check()
        assert set(cluster.actors) == before

    run(story, monkeypatch)


def test_of_a_process_that_ends_often_each_gets_its_own(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(actor: Controller) -> None:
        await actor.apply(config("a", "b", share=2).model_dump_json())
        [common] = cluster.actors.values()
        for _ in range(ENDS_MAX + 1):
            await actor._check()
            assert list(cluster.actors.values()) == [common]
            Starts("ns").note(common.name)
        await actor._check()
        assert cluster.killed == [(common.name, True)]
        held = {each.name: each.called("reconcile") for each in cluster.actors.values()}
        assert sorted([*given[0][0]] for given in held.values()) == [["a"], ["b"]]

    run(story, monkeypatch)


def test_a_process_that_holds_nothing_for_long_ends(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller was killed in the midst of a stop: what should not run went on, and nobody
    could stop it."""

    async def story(actor: Controller) -> None:
        await actor.apply(config("a", "b").model_dump_json())
        left = PlacementTable("ns").all()["a"].process
        PlacementTable("ns").remove("a")
        await actor._check()
        await actor._check()
        assert cluster.killed == [], "a start makes processes before their places"
        monkeypatch.setattr(module, "_STRAY_S", 0.0)
        monkeypatch.setattr(actor._homes, "coming", lambda: {left})
        await actor._check()
        assert cluster.killed == [], "it waits for one that is still elsewhere"
        monkeypatch.setattr(actor._homes, "coming", set)
        await actor._check()
        await actor._check()
        assert cluster.killed == [(left, True)]

    run(story, monkeypatch)


def test_secrets_in_use_are_kept_though_they_look_old(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine slept for a week, or its clock was put right, before the controller's restart."""

    async def begin(actor: Controller) -> None:
        await actor.apply(config("a").model_dump_json())

    async def look(_: Controller) -> None:
        [reference] = PlacementTable("ns").all()["a"].secrets
        assert kept_secrets.read(reference) == "s3cret"

    run(begin, monkeypatch)
    long_ago_s = time.time() - 2 * kept_secrets.FORGOTTEN_S
    for path in kept_secrets._folder().iterdir():
        os.utime(path, (long_ago_s, long_ago_s))
    run(look, monkeypatch)


def test_an_active_head_begins_all_and_ends_all(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(actor: Controller) -> None:
        ports = {"server": {"port": 0, "host": "127.0.0.1"}, "notify": {}}
        source = {"address": "db:3306"}
        await actor.begin(load({"instance": [{"destination": "a", "source": source}], **ports}))
        names = set(cluster.actors)
        [place] = PlacementTable("ns").all().values()
        store = cluster.actors[place.process]
        assert {launch.NOTIFIER_NAME, f"{launch.SERVER_PREFIX}0"} < names
        await actor.end()
        assert store.called("drop") == [["a", False]], "nobody has stopped it"
        assert cluster.actors == {}
        assert {name for name, _ in cluster.killed} == names

    run(story, monkeypatch)


def test_one_that_is_stopped_while_others_begin_again(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two people: one applies another configuration, the other one stops a destination of it."""

    async def story(actor: Controller) -> None:
        await actor.apply(config("a", "b").model_dump_json())
        kept: dict[str, str] = {}

        async def keep(texts: dict[str, str]) -> None:
            kept.update(texts)

        monkeypatch.setattr(actor._succession, "keep", keep)
        first, second = (cluster.actors[PlacementTable("ns").all()[name].process] for name in "ab")
        first.answers["renew"] = SILENT
        applying = asyncio.create_task(
            actor.apply(config("a", "b", stall_s=1.0, password="other").model_dump_json())
        )
        await until(lambda: first.called("renew"))
        await actor.stop("b")
        assert set(await applying) == {"a", "b"}
        assert await actor.destinations() == ["a"]
        assert second.called("renew") == []
        assert (kept["b"], bool(kept["a"])) == (STOPPED, True), "a standby does the same"
        assert second.name not in cluster.actors

    run(story, monkeypatch)


def test_one_that_is_started_while_it_is_stopped(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(actor: Controller) -> None:
        await actor.apply(config("a", stall_s=1.0).model_dump_json())
        kept: list[dict[str, str]] = []

        async def keep(texts: dict[str, str]) -> None:
            kept.append(texts)

        monkeypatch.setattr(actor._succession, "keep", keep)
        [process] = cluster.actors.values()
        process.answers["drop"] = SILENT
        stopping = asyncio.create_task(actor.stop("a"))
        await until(lambda: process.called("drop"))
        await actor.apply(config("a").model_dump_json())
        await stopping
        assert await actor.destinations() == ["a"]
        assert [*kept[-1].values()] != [STOPPED], "a standby does the same"

    run(story, monkeypatch)


def test_a_silent_process_keeps_nobody_waiting(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its node sleeps, say; what another node's end means is done meanwhile."""

    async def story(actor: Controller) -> None:
        await actor.apply(config("a", "b", stall_s=60.0).model_dump_json())
        first, second = (cluster.actors[PlacementTable("ns").all()[name].process] for name in "ab")
        await actor._check()
        monkeypatch.setattr(module, "_ANSWER_S", 0.1)
        first.answers["reconcile"] = SILENT
        while len(second.called("reconcile")) < 4:
            await asyncio.wait_for(actor._check(), 20)
        assert len(first.called("reconcile")) == 2, "it is asked once, until it answers"

    run(story, monkeypatch)
