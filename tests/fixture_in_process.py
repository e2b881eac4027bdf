"""A real Store in this process, over binlog files: what is an actor in Ray is an object here.

Its upstream is a thread, its cursors are in SQLite, its disk is a folder.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.exceptions import RayTaskError

from ray_canal.actors import fetcher, spawn
from ray_canal.actors.spiller import Spiller
from ray_canal.actors.store import Store
from ray_canal.config import InstanceConfig, MetaConfig
from ray_canal.demo import binlog_files

CHUNK_BYTES = 4096


class Reply:
    """What a call of an actor returns: its answer, or what it raised as Ray wraps it."""

    def __init__(self, call: Callable[..., Any], *arguments: Any) -> None:
        self._answer: Future[Any] = Future()
        try:
            self._answer.set_result(call(*arguments))
        except Exception as error:
            self._answer.set_exception(RayTaskError("call", "", error))

    def future(self) -> Future[Any]:
        return self._answer


class Actor:
    """`actor.method.remote(…)` calls the object's method at once."""

    def __init__(self, held: Any) -> None:
        self._held = held

    def __getattr__(self, name: str) -> Any:
        return Method(getattr(self._held, name))


class Method:
    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def remote(self, *arguments: Any) -> Reply:
        return Reply(self._call, *arguments)


@pytest.fixture
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of any size are handed over by value, so nothing needs an object store."""
    monkeypatch.setattr(fetcher, "SMALL_CHUNK_BYTES", 1 << 30)
    monkeypatch.setattr(spawn, "spiller", lambda folder: Actor(Spiller(folder)))
    monkeypatch.setattr(ray, "kill", lambda *_: None)


@contextlib.asynccontextmanager
async def store_of(
    folder: Path, files: Sequence[Path] = (), *, meta: MetaConfig | None = None, **instance: Any
) -> AsyncIterator[Store]:
    """A running Store over binlog files (the demo's first one), cursors in SQLite by default."""
    config = {
        "destination": "x",
        "source": {"files": [str(path) for path in files or binlog_files()[:1]]},
        "chunk_bytes": CHUNK_BYTES,
        "decoders": 0,
        "tsdb": {"enable": False},
        **instance,
    }
    store = Store(
        InstanceConfig.model_validate(config).model_dump_json(),
        (meta or MetaConfig(path=str(folder / "meta.db"))).model_dump_json(),
        True,
    )
    try:
        await store.wait_running(60)
        yield store
    finally:
        await store.stop()
