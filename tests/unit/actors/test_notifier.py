"""Looks at every destination, over handles that answer what a test says; a real web server."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError

from ray_canal.actors import notifier as module
from ray_canal.actors import registry
from ray_canal.actors.notifier import NotifierActor
from ray_canal.config.notify import NotifyConfig
from ray_canal.destination.api import DestinationApi
from tests.http_receiver import HttpReceiver
from tests.unit.actors.small_cluster import SILENT, Reply, SmallCluster, until

RUNNING = {"state": "running", "connected": True}
FAILED = {"state": "failed", "error": "PositionPurged: gone"}


class Stores:
    """Destinations by name: their status, an error, or SILENT."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **status: Any) -> None:
        self.status, self.asked = status, list[str]()
        monkeypatch.setattr(registry, "find_stores", self.find)

    def find(self, namespace: str) -> dict[str, Any]:
        return {name: SimpleNamespace(submit=self._asking(name)) for name in sorted(self.status)}

    def _asking(self, name: str) -> Any:
        def submit(method: object) -> Reply:
            assert method is DestinationApi.status
            self.asked.append(name)
            return Reply(self.status[name])

        return submit


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    SmallCluster(monkeypatch)
    monkeypatch.setattr(module, "ANSWER_S", 0.1)


async def made(url: str = "") -> NotifierActor:
    config = NotifyConfig.model_validate({"url": url and "env:NOTIFY_URL", "every_s": 1})
    actor = NotifierActor.__new__(NotifierActor)
    await NotifierActor.__init__(actor, config.model_dump_json(), "ns")  # type: ignore[misc]
    actor._every_s = 0.02
    return actor


def test_what_changes_is_sent_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(receiver: HttpReceiver) -> None:
        stores = Stores(monkeypatch, orders=FAILED, audit=RUNNING)
        monkeypatch.setenv("NOTIFY_URL", receiver.url)
        actor = await made(receiver.url)
        await until(lambda: actor._looks >= 3)
        stores.status["orders"] = RUNNING
        await until(lambda: len(receiver.requests) == 2)
        looks = await actor.looks()
        await until(lambda: actor._looks > looks + 2)
        actor._watch.cancel()
        told = [json.loads(body) for _, body in receiver.requests]
        assert [(each["destination"], each["kind"]) for each in told] == [
            ("orders", "changed"), ("orders", "changed"),
        ]  # fmt: skip
        assert "orders is failed" in told[0]["text"]
        assert "orders is running, it was failed" in told[1]["text"]
        assert all(each["namespace"] == "ns" and each["at"] > 0 for each in told)

    with HttpReceiver() as receiver:
        asyncio.run(story(receiver))


@pytest.mark.parametrize("answer", [SILENT, ActorDiedError()])
def test_one_that_does_not_answer_is_restarting_and_keeps_no_other(
    monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    async def story() -> None:
        Stores(monkeypatch, away=answer, orders=FAILED)
        actor = await made()
        looked: list[Any] = []
        monkeypatch.setattr(actor._notices, "look", lambda found: looked.append(found) or [])
        await until(lambda: looked)
        actor._watch.cancel()
        assert looked[0] == {"away": {"state": "restarting"}, "orders": FAILED}

    asyncio.run(story())


def test_a_look_that_fails_is_followed_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        stores = Stores(monkeypatch, orders=RUNNING)
        failures = [RuntimeError("Ray's head is away")]

        def sometimes(namespace: str) -> dict[str, Any]:
            if failures:
                raise failures.pop()
            return stores.find(namespace)

        monkeypatch.setattr(registry, "find_stores", sometimes)
        actor = await made()
        await until(lambda: actor._looks >= 1)
        actor._watch.cancel()
        assert failures == []

    asyncio.run(story())


def test_it_says_what_it_was_made_with(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        Stores(monkeypatch)
        actor = await made()
        actor._watch.cancel()
        assert NotifyConfig.model_validate_json(await actor.configuration()).every_s == 1

    asyncio.run(story())
