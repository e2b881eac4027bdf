"""A real destination in this process, over binlog files and a real meta file: no Ray.

Its upstream runs in threads, as that of a destination that shares its process.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from ray_canal.config import InstanceConfig, MetaConfig
from ray_canal.demo import binlog_files
from ray_canal.destination.delivery import Store
from ray_canal.destination.log_pipeline import LogPipeline
from ray_canal.errors import InstanceNotRunning, MetaUnavailable
from ray_canal.meta.manager import MetaManager
from ray_canal.model.message import EMPTY_BATCH, MessageHead
from tests.local_runtime import LocalRuntime

ALL = r".*\..*"
NAME = "x"


def run(work: Coroutine[Any, Any, None], seconds: float = 90.0) -> None:
    asyncio.run(asyncio.wait_for(work, seconds))


def instance(files: list[Path] | None = None, **more: Any) -> InstanceConfig:
    """By default the demo's files in small chunks."""
    tree: dict[str, Any] = {
        "destination": NAME,
        "source": {"files": [str(path) for path in files or binlog_files()]},
        "chunk_bytes": 4096,
        "decoders": 0,
        "tsdb": {"enable": False},
    }
    return InstanceConfig.model_validate({**tree, **more})


def new_store(folder: Path, config: InstanceConfig | None = None) -> Store:
    """One that begins to start; to be stopped."""
    meta = MetaConfig(path=str(folder / "meta.db"))
    return Store(config or instance(), meta, LocalRuntime())


@contextlib.asynccontextmanager
async def running(folder: Path, config: InstanceConfig | None = None) -> AsyncIterator[Store]:
    """A Store that stands at its source; stopped at the end."""
    store = new_store(folder, config)
    try:
        await store.wait_running(60)
        yield store
    finally:
        await store.stop()


@contextlib.asynccontextmanager
async def store_of(
    folder: Path, files: Sequence[Path] = (), *, meta: MetaConfig | None = None, **more: Any
) -> AsyncIterator[Store]:
    """A running Store over binlog files (the demo's first one), cursors in SQLite by default."""
    config = instance([*files] or binlog_files()[:1], **more)
    store = Store(config, meta or MetaConfig(path=str(folder / "meta.db")), LocalRuntime())
    try:
        await store.wait_running(60)
        yield store
    finally:
        await store.stop()


async def take(
    store: Store, client_id: int, size: int = 4, *, ack: bool = True, holder: str = "",
    seconds: float = 0.5,
) -> MessageHead | None:
    """The next batch; None: nothing came in that time."""
    head = await store.get_without_ack(client_id, size, seconds, holder)
    if head.id == EMPTY_BATCH:
        return None
    if ack:
        await store.ack(client_id, head.id, head.epoch, holder)
    return head


async def drain(store: Store, client_id: int, size: int = 4) -> list[MessageHead]:
    """All that is there, acked, whether batches are full or not. (Of a source that has not ended,
    what comes with less than two seconds between: a busy machine's first chunk takes long.)"""
    found = []
    while (head := await store.poll(client_id, size, 2.0)).id != EMPTY_BATCH:
        await store.ack(client_id, head.id, head.epoch)
        found.append(head)
    return found


def follow_each_other(heads: list[MessageHead]) -> bool:
    """Return whether no binlog lies between any two of them but what makes no entries: each one
    begins where, or a little behind where, its predecessor ended."""
    return all(
        one.end is not None
        and other.start is not None
        and (one.end.journal_name != other.start.journal_name
             or 0 <= other.start.position - one.end.position < 400)
        for one, other in itertools.pairwise(heads)
    )


async def until(condition: Callable[[], Any], seconds: float = 30.0) -> None:
    for _ in range(int(seconds * 50)):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it did not come to pass")


class SlowOpening:
    """While it is entered, lines that open wait for `go`."""

    def __init__(self) -> None:
        self.began, self.go = asyncio.Event(), asyncio.Event()
        self._really: Callable[..., Awaitable[Any]] = LogPipeline.open

    async def _open(self, line: LogPipeline, *arguments: Any) -> Any:
        self.began.set()
        await self.go.wait()
        return await self._really(line, *arguments)

    def __enter__(self) -> SlowOpening:
        opening = self

        async def slow(line: LogPipeline, *arguments: Any) -> Any:
            return await opening._open(line, *arguments)

        LogPipeline.open = slow  # type: ignore[assignment, method-assign]
        return self

    def __exit__(self, *_: Any) -> None:
        LogPipeline.open = self._really  # type: ignore[assignment, method-assign]


def lose_source(store: Store) -> None:
    """End the generation as a lost connection does."""
    assert store._pipeline is not None
    store._pipeline.fail(InstanceNotRunning("the connection was lost"))


@contextlib.contextmanager
def meta_away(*methods: str) -> Any:
    """The server of the cursors does not answer these calls."""

    def away(*_: Any) -> Any:
        raise MetaUnavailable("the server of the cursors is away")

    patch = pytest.MonkeyPatch()
    for method in methods:
        patch.setattr(MetaManager, method, away)
    yield
    patch.undo()
