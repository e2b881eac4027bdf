from __future__ import annotations

import asyncio
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import RayActorError

from ray_canal.actors.disk import SpillProcess
from ray_canal.errors import InstanceNotRunning


class Spiller:
    """Takes calls in their order, as an actor does, and answers each in a moment of the loop."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.held = {"segment": "chunk"}
        self.dead = False

    def __getattr__(self, method: str) -> Any:
        return SimpleNamespace(remote=lambda *arguments: self._call(method, *arguments))

    def _call(self, method: str, *arguments: Any) -> Any:
        self.calls.append(method)
        answer: Future[Any] = Future()
        if self.dead:
            answer.set_exception(RayActorError())
        elif method == "drop":
            for segment in arguments[0]:
                del self.held[segment]
        elif method == "read_log_chunk":
            answer.set_result(self.held[arguments[0]])
        return SimpleNamespace(future=lambda: answer)


@pytest.fixture
def spiller(monkeypatch: pytest.MonkeyPatch) -> Spiller:
    made = Spiller()
    monkeypatch.setattr("ray_canal.actors.disk.stages.spiller", lambda folder: made)
    return made


def test_what_is_asked_for_before_it_is_dropped_is_read(spiller: Spiller) -> None:
    """Another subscriber's ack may free a segment in the moment between the two."""

    async def run() -> object:
        disk = SpillProcess("folder")
        read = asyncio.ensure_future(disk.read_log_chunk("segment"))  # type: ignore[arg-type]
        disk.drop(["segment"])  # type: ignore[list-item]
        return await read

    assert asyncio.run(run()) == "chunk"
    assert spiller.calls == ["read_log_chunk", "drop"]


def test_a_process_that_has_died_is_an_instance_that_does_not_run(spiller: Spiller) -> None:
    spiller.dead = True
    with pytest.raises(InstanceNotRunning, match="died"):
        asyncio.run(_awaited(SpillProcess("folder").read_log_chunk("segment")))  # type: ignore[arg-type]


async def _awaited(work: Any) -> Any:
    return await work
