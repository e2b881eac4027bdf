"""A store process, without Ray: which destinations it holds, and what becomes of their calls."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from ray_canal.actors import store_actor as module
from ray_canal.actors.placement_table import Home, PlacementRecord, PlacementTable
from ray_canal.actors.registry import CONTROLLER_NAME
from ray_canal.actors.store_actor import StoreActor
from ray_canal.config import InstanceConfig, MetaConfig, kept_secrets
from ray_canal.demo import binlog_files
from ray_canal.destination.api import SubscribeRequest
from ray_canal.errors import InstanceNotRunning, InstanceRestarted
from tests.local_destination import ALL, instance
from tests.local_runtime import LocalRuntime
from tests.unit.actors.small_cluster import Handle, SmallCluster

HERE, ELSEWHERE = "canal-store:1", "canal-store:2"
SUBSCRIBE = SubscribeRequest(client_id=7, filter=ALL)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SmallCluster:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(module, "RayRuntime", lambda shared: LocalRuntime())
    monkeypatch.setattr(module, "_load_everything", lambda: None)
    monkeypatch.setattr(module, "this_node", lambda: "here")
    monkeypatch.setattr(kept_secrets, "_told", {})
    return SmallCluster(monkeypatch)


def placed(folder: Path, name: str, process: str, **source: Any) -> None:
    config = instance().model_copy(update={"destination": name})
    if source:
        config = InstanceConfig.model_validate({"destination": name, "source": source})
    meta = MetaConfig(path=str(folder / "meta.db"))
    PlacementTable("ns").put(name, PlacementRecord.of(Home(process, 1), config, meta))


def owners(*names: str) -> dict[str, str]:
    """What the controller tells a process of destinations that have their place in it."""
    places = PlacementTable("ns").all()
    return {name: places[name].owner for name in names}


async def made(shared: bool = False) -> StoreActor:
    actor = StoreActor.__new__(StoreActor)
    await StoreActor.__init__(actor, HERE, "ns", shared)  # type: ignore[misc]
    await actor._recovery
    return actor


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 60))


def test_its_constructor_takes_up_what_has_its_place_here(
    cluster: SmallCluster, tmp_path: Path
) -> None:
    async def story() -> None:
        placed(tmp_path, "a", HERE)
        placed(tmp_path, "b", ELSEWHERE)
        actor = await made()
        assert list(await actor.reconcile(owners("a", "b"))) == ["a"]
        assert await actor.call("a", "subscribe", SUBSCRIBE)
        found = await actor.call("a", "subscribers")
        assert [each["client_id"] for each in found] == [7]
        with pytest.raises(InstanceRestarted, match=f"b is not held by {HERE}"):
            await actor.call("b", "status")
        await actor.stop()

    run(story())


def test_one_that_is_placed_later_is_taken_up_by_its_first_call(
    cluster: SmallCluster, tmp_path: Path
) -> None:
    async def story() -> None:
        actor = await made()
        placed(tmp_path, "late", HERE)
        assert await actor.call("late", "subscribe", SUBSCRIBE)
        assert list(actor._destinations) == ["late"]
        await actor.stop()

    run(story())


def test_while_rays_head_does_not_answer_what_runs_here_goes_on(
    cluster: SmallCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a node has died together with the head, and clients look for what was there."""
    is_back = threading.Event()
    get = PlacementTable.get

    async def story() -> None:
        placed(tmp_path, "a", HERE)
        actor = await made()
        placed(tmp_path, "late", HERE)

        def waiting(table: PlacementTable, name: str) -> PlacementRecord | None:
            assert is_back.wait(20)
            return get(table, name)

        monkeypatch.setattr(PlacementTable, "get", waiting)
        calls = [asyncio.ensure_future(actor.call("late", "status")) for _ in range(50)]
        calls.append(asyncio.ensure_future(actor.reconcile({"a": "another start", "late": "x"})))
        for _ in range(3):
            assert await asyncio.wait_for(actor.call("a", "status"), 5)
        assert not any(call.done() for call in calls)
        is_back.set()
        await asyncio.gather(*calls)
        assert list(actor._destinations) == ["a", "late"]
        await actor.stop()

    run(story())


def test_what_is_dropped_is_begun_again_by_renew(cluster: SmallCluster, tmp_path: Path) -> None:
    async def story() -> None:
        placed(tmp_path, "a", HERE)
        actor = await made()
        before = actor._destinations["a"]
        await actor.renew("a")
        assert actor._destinations["a"] is not before
        PlacementTable("ns").remove("a")
        await actor.drop("a")
        with pytest.raises(InstanceRestarted):
            await actor.call("a", "status")
        await actor.stop()

    run(story())


def test_what_a_controller_that_died_has_not_told_is_made_up_for(
    cluster: SmallCluster, tmp_path: Path
) -> None:
    """It was killed between its note of a change, a move or a stop and the word to this process:
    what ran here went on with the old configuration, or without anybody knowing it."""

    async def story() -> None:
        for name in "abcd":
            placed(tmp_path, name, HERE)
        actor = await made()
        await actor.reconcile(owners(*"abcd"))
        before, known = dict(actor._destinations), owners(*"abcd")
        assert list(before) == list("abcd")
        placed(tmp_path, "b", HERE)  # begun with another configuration
        placed(tmp_path, "c", ELSEWHERE)
        PlacementTable("ns").remove("d")
        assert list(await actor.reconcile(owners("a", "b"))) == ["a", "b"]
        assert actor._destinations["a"] is before["a"]
        assert actor._destinations["b"] is not before["b"]
        after = dict(actor._destinations)
        # A word that was on its way meanwhile changes nothing.
        assert list(await actor.reconcile(known)) == ["a", "b"]
        assert list(await actor.reconcile({})) == ["a", "b"]
        assert actor._destinations == after
        await actor.stop()

    run(story())


def test_one_that_is_renewed_begins_where_the_log_of_nobody_began(
    cluster: SmallCluster, tmp_path: Path
) -> None:
    """Another password, say: the first subscriber misses nothing of what was there for it."""

    async def story() -> None:
        files = [str(Path(shutil.copy(path, tmp_path))) for path in binlog_files()]
        placed(tmp_path, "a", HERE, files=files[1:])
        actor = await made()
        await actor.call("a", "wait_running", 30)
        began = (await actor.call("a", "status"))["start"].partition(": ")[0]
        placed(tmp_path, "a", HERE, files=files)
        await actor.renew("a")
        await actor.call("a", "wait_running", 30)
        assert (await actor.call("a", "status"))["start"].partition(": ")[0] == began
        await actor.stop()

    run(story())


def test_only_calls_of_the_api_reach_a_destination(
    cluster: SmallCluster, tmp_path: Path
) -> None:
    async def story() -> None:
        placed(tmp_path, "a", HERE)
        actor = await made()
        for method in ("state", "_report", "__init_subclass__x"):
            with pytest.raises(AttributeError, match=f"DestinationApi has no {method}"):
                await actor.call("a", method)
        await actor.stop()

    run(story())


def test_secrets_of_another_machine_are_asked_of_the_controller(
    cluster: SmallCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        placed(tmp_path, "a", HERE, address="127.0.0.1:1", password="s3cret")
        place = PlacementTable("ns").get("a")
        assert place is not None
        [reference] = place.secrets
        kept_secrets.drop([reference])  # they are kept elsewhere
        actor = await made()
        with pytest.raises(InstanceNotRunning, match="controller, which has the secrets"):
            await actor.call("a", "status")
        cluster.actors[CONTROLLER_NAME] = Handle(
            CONTROLLER_NAME, answers={"secrets": {reference: "s3cret"}}
        )
        begun: list[bool] = []
        monkeypatch.setattr(module, "RayRuntime", lambda it: begun.append(it) or LocalRuntime())
        for found in await asyncio.gather(*(actor.call("a", "status") for _ in range(2))):
            assert found["destination"] == "a"
        assert len(begun) == 1, "both calls reach one store"
        assert kept_secrets.read(reference) == "s3cret"
        await actor.stop()

    run(story())


def test_a_process_of_several_notes_its_starts(cluster: SmallCluster, tmp_path: Path) -> None:
    async def story() -> None:
        for shared, starts in ((False, 0), (True, 1), (True, 2)):
            await (await made(shared)).stop()
            assert len(module.Starts("ns")._begun_s(HERE)) == starts

    run(story())


def test_one_that_cannot_be_taken_up_hides_no_other(cluster: SmallCluster, tmp_path: Path) -> None:
    """The process answers all the same, so that it is noticed when it does not."""

    async def story() -> None:
        placed(tmp_path, "a", HERE)
        placed(tmp_path, "b", HERE, address="127.0.0.1:1", password="s3cret")
        place = PlacementTable("ns").get("b")
        assert place is not None
        kept_secrets.drop(place.secrets)  # they are kept elsewhere, where nobody is
        actor = await made()
        assert list(await actor.reconcile(owners("b", "a"))) == ["a"]
        await actor.stop()

    run(story())


def test_callers_on_other_nodes_are_told_no_socket(cluster: SmallCluster) -> None:
    """A client waits at no socket of a process that stands still with its node: Ray tells it."""

    async def story() -> None:
        actor = await made()
        assert await actor.local_socket("here")
        assert await actor.local_socket("elsewhere") == ""
        await actor.stop()

    run(story())
