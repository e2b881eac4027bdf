"""A real destination in this process, over binlog files and a real meta file: no Ray.

Its upstream runs in threads, as that of a destination that shares its process.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from ray_canal.config import InstanceConfig, MetaConfig
from ray_canal.demo import binlog_files
from ray_canal.destination.api import (
    NO_WISHES,
    AckRequest,
    ClientRequest,
    GetRequest,
    PollRequest,
    RollbackRequest,
    SubscribeRequest,
)
from ray_canal.destination.destination import Destination, start_destination
from ray_canal.destination.log_pipeline import LogPipeline
from ray_canal.destination.ownership import Claim
from ray_canal.destination.ports import Runtime
from ray_canal.destination.state import DestinationState
from ray_canal.errors import InstanceNotRunning, MetaUnavailable
from ray_canal.meta.manager import MetaManager
from ray_canal.model.message import EMPTY_BATCH, Caller, MessageHead
from ray_canal.model.position import SourceIdentity
from ray_canal.model.subscription import Subscription
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


class LocalDestination:
    """A destination that begins to start, with its calls in short; to be stopped."""

    def __init__(
        self,
        config: InstanceConfig,
        meta: MetaConfig,
        claim: Claim | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        ground = runtime or LocalRuntime()
        self.api: Destination = start_destination(config, meta, ground, claim)
        self.state: DestinationState = self.api.state
        self.wait_running = self.api.wait_running
        self.status, self.subscribers = self.api.status, self.api.subscribers
        self.operate, self.change_filter = self.api.operate, self.api.change_filter
        self.change_instance_filter = self.api.change_instance_filter
        self.stop = self.api.stop

    @property
    def generations(self) -> int:
        return self.api.activity.generations

    async def subscribe(
        self,
        client_id: int,
        filter_text: str,
        rollback: bool = True,
        wishes: Subscription = NO_WISHES,
        holder: str = "",
    ) -> int:
        return await self.api.subscribe(
            SubscribeRequest(
                client_id=client_id,
                filter=filter_text,
                rollback=rollback,
                wishes=wishes,
                holder=holder,
            )
        )

    async def unsubscribe(self, client_id: int, holder: str = "") -> bool:
        return await self.api.unsubscribe(ClientRequest(client_id=client_id, holder=holder))

    async def get_without_ack(
        self,
        client_id: int,
        batch_size: int,
        timeout: float | None,
        holder: str = "",
        caller: Caller | None = None,
    ) -> MessageHead:
        return await self.api.get_without_ack(
            GetRequest(
                client_id=client_id,
                batch_size=batch_size,
                timeout=timeout,
                holder=holder,
                caller=caller,
            )
        )

    async def get(
        self,
        client_id: int,
        batch_size: int,
        timeout: float | None,
        holder: str = "",
        caller: Caller | None = None,
    ) -> MessageHead:
        return await self.api.get(
            GetRequest(
                client_id=client_id,
                batch_size=batch_size,
                timeout=timeout,
                holder=holder,
                caller=caller,
            )
        )

    async def poll(
        self,
        client_id: int,
        batch_size: int,
        timeout: float,
        done: tuple[int, int] | None = None,
        holder: str = "",
    ) -> MessageHead:
        return await self.api.poll(
            PollRequest(
                client_id=client_id,
                batch_size=batch_size,
                timeout=timeout,
                done=done,
                holder=holder,
            )
        )

    async def ack(
        self, client_id: int, batch_id: int, epoch: int | None, holder: str = "",
        *, keep: bool = False, mark: str = "",
    ) -> None:  # fmt: skip
        await self.api.ack(
            AckRequest(
                client_id=client_id,
                batch_id=batch_id,
                epoch=epoch,
                holder=holder,
                keep=keep,
                mark=mark,
            )
        )

    async def rollback(
        self, client_id: int, batch_id: int | None, epoch: int | None, holder: str = ""
    ) -> None:
        await self.api.rollback(
            RollbackRequest(client_id=client_id, batch_id=batch_id, epoch=epoch, holder=holder)
        )

    async def list_batch_ids(self, client_id: int, holder: str = "") -> list[int]:
        return await self.api.list_batch_ids(ClientRequest(client_id=client_id, holder=holder))

    async def filter_of(self, client_id: int) -> str | None:
        return await self.api.filter_of(ClientRequest(client_id=client_id))

    async def touch(self, client_id: int, holder: str = "") -> None:
        await self.api.touch(ClientRequest(client_id=client_id, holder=holder))


def new_destination(
    folder: Path, config: InstanceConfig | None = None, runtime: Runtime | None = None
) -> LocalDestination:
    """Return one that begins to start; to be stopped."""
    meta = MetaConfig(path=str(folder / "meta.db"))
    return LocalDestination(config or instance(), meta, runtime=runtime)


@contextlib.asynccontextmanager
async def running(
    folder: Path, config: InstanceConfig | None = None, runtime: Runtime | None = None
) -> AsyncIterator[LocalDestination]:
    """Enter a destination that stands at its source; stop it at the end."""
    destination = new_destination(folder, config, runtime)
    try:
        await destination.wait_running(60)
        yield destination
    finally:
        await destination.stop()


@contextlib.asynccontextmanager
async def destination_of(
    folder: Path, files: Sequence[Path] = (), *, meta: MetaConfig | None = None, **more: Any
) -> AsyncIterator[LocalDestination]:
    """Enter a running destination over binlog files (the demo's first one), with its cursors in
    SQLite by default."""
    config = instance([*files] or binlog_files()[:1], **more)
    destination = LocalDestination(config, meta or MetaConfig(path=str(folder / "meta.db")))
    try:
        await destination.wait_running(60)
        yield destination
    finally:
        await destination.stop()


async def take(
    destination: LocalDestination,
    client_id: int,
    size: int = 4,
    *,
    ack: bool = True,
    holder: str = "",
    seconds: float = 0.5,
) -> MessageHead | None:
    """The next batch; None: nothing came in that time."""
    head = await destination.get_without_ack(client_id, size, seconds, holder)
    if head.id == EMPTY_BATCH:
        return None
    if ack:
        await destination.ack(client_id, head.id, head.epoch, holder)
    return head


async def drain(destination: LocalDestination, client_id: int, size: int = 4) -> list[MessageHead]:
    """All that is there, acked, whether batches are full or not. (Of a source that has not ended,
    what comes with less than two seconds between: a busy machine's first chunk takes long.)"""
    found = []
    while (head := await destination.poll(client_id, size, 2.0)).id != EMPTY_BATCH:
        await destination.ack(client_id, head.id, head.epoch)
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


def lose_source(destination: LocalDestination) -> None:
    """End the generation as a lost connection does."""
    assert destination.state.log.pipeline is not None
    destination.state.log.pipeline.fail(InstanceNotRunning("the connection was lost"))


def saves_that_wait(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """From now on cursors are written once the event is set, as on a slow disk."""
    disk, save = threading.Event(), MetaManager.save

    def slow(*arguments: Any) -> None:
        assert disk.wait(60)
        save(*arguments)

    monkeypatch.setattr(MetaManager, "save", slow)
    return disk


@contextlib.contextmanager
def meta_away(*methods: str) -> Any:
    """The server of the cursors does not answer these calls."""

    def away(*_: Any) -> Any:
        raise MetaUnavailable("the server of the cursors is away")

    patch = pytest.MonkeyPatch()
    try:
        for method in methods:
            patch.setattr(MetaManager, method, away)
        yield
    finally:
        patch.undo()


class OtherServers:
    """While it is entered, lines stand at the server that `now` names, whatever they read."""

    def __init__(self) -> None:
        self.now = SourceIdentity("db:3306", "uuid-1")
        self._really: Callable[..., Awaitable[Any]] = LogPipeline.open

    def __enter__(self) -> OtherServers:
        servers = self

        async def opened(line: LogPipeline, *arguments: Any, **named: Any) -> Any:
            start, _, new = await servers._really(line, *arguments, **named)
            line.identity = servers.now
            return start, line.identity, new

        LogPipeline.open = opened  # type: ignore[assignment, method-assign]
        return self

    def __exit__(self, *_: Any) -> None:
        LogPipeline.open = self._really  # type: ignore[assignment, method-assign]

    async def fail_over(self, destination: LocalDestination) -> None:
        """Let the destination's next generation stand at another server."""
        before = destination.generations
        self.now = SourceIdentity("db:3306", f"uuid-{before + 1}")
        lose_source(destination)
        await until(lambda: destination.generations > before)
