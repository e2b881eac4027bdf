"""What a destination stands on, simulated: processes that die, servers, a disk, the cursors.

Only the outside is simulated. The life of the destination, its log, its catch-ups, where it starts,
its cursors and the client's connector are the program's own code.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from unittest import mock

import ray
from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    RayTaskError,
    TaskCancelledError,
)

from ray_canal.actors.backend_thread import BackendThread
from ray_canal.actors.calls import StoreCalls
from ray_canal.actors.ownership import Claim
from ray_canal.actors.stages import Reading
from ray_canal.actors.store import Store
from ray_canal.client.message import Message
from ray_canal.client.transport import RayTransport
from ray_canal.config import InstanceConfig, MetaConfig, SourceConfig
from ray_canal.driver.choice import choose
from ray_canal.driver.source import SourceStatus
from ray_canal.driver.start import decide
from ray_canal.errors import (
    CanalError,
    ConnectionLost,
    InstanceNotFound,
    InstanceNotRunning,
    MetaUnavailable,
    PositionPurged,
)
from ray_canal.meta.memory import MemoryBackend
from ray_canal.protocol.position import BINLOG_START, EntryPosition, LogPosition, SourceIdentity
from ray_canal.protocol.start import ALL_CURSORS, Start, StartOptions
from tests.simulation.servers import Entry, SearchedLog, Server, chunk_of
from tests.simulation.virtual_time import VirtualLoop

DESTINATION = "simulated"
_OWNER: contextvars.ContextVar[Owner | None] = contextvars.ContextVar("owner", default=None)


@dataclass
class Payload:
    """A decoded chunk: its entries, each with its rows' numbers."""

    journal_name: str
    entries: list[Entry]


class Outside:
    """Everything that outlives a process of the destination: servers, cursors, the cluster."""

    def __init__(self, loop: VirtualLoop, random_: random.Random, servers: list[Server]) -> None:
        self.loop, self.random = loop, random_
        self.servers = servers
        self.records = Records()
        self.disk_full = False
        self.quiet = False  # nothing is written any more
        self.answers_lost = 0.0  # the part of answers that do not arrive
        self.owner: Owner | None = None  # who the cluster's handle leads to
        self.owners: list[Owner] = []
        loop.set_task_factory(self._new_task)

    def server(self, address: str) -> Server:
        return next(server for server in self.servers if server.address == address)

    async def pause(self, most_s: float = 0.02) -> None:
        await asyncio.sleep(self.random.uniform(0.0, most_s))

    @staticmethod
    def _new_task(loop: Any, work: Any, **named: Any) -> Any:
        task: Any = asyncio.Task(work, loop=loop, **named)
        owner = _OWNER.get()
        if owner is not None:
            owner.tasks.append(task)
        return task


@dataclass
class Records:
    """The backend of cursors. `away`: no call succeeds; `silent`: that takes seconds each time, as
    on a network that drops packets; `in_doubt`: a write happens, and its answer
    is lost."""

    backend: MemoryBackend = field(default_factory=MemoryBackend)
    away: bool = False
    silent: bool = False
    in_doubt: float = 0.0


class OwnersBackend:
    """The backend as one owner reaches it."""

    where = "the simulated meta"

    def __init__(self, outside: Outside, owner: Owner | None) -> None:
        self._outside, self._owner = outside, owner

    def __getattr__(self, name: str) -> Any:
        records, method = self._outside.records, getattr(self._outside.records.backend, name)

        def call(*arguments: Any) -> Any:
            if records.away or (self._owner is not None and not self._owner.alive):
                raise MetaUnavailable("the simulated meta cannot be reached")
            found = method(*arguments)
            if name in ("save", "remove") and self._outside.random.random() < records.in_doubt:
                raise MetaUnavailable("the simulated meta did not answer")
            return found

        return call

    def close(self) -> None:
        return None


class SimulatedThread(BackendThread):
    """The thread in which an owner's backend is called: one call at a time, in order, each of which
    takes its time."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._turn = asyncio.Lock()

    async def run(self, function: Any, *values: Any, **named: Any) -> Any:
        owner = _OWNER.get()
        assert owner is not None
        if self._closed:
            raise InstanceNotRunning("the instance was stopped")
        self._refuse_broken()
        async with self._turn:
            outside = owner.outside
            slow = outside.records.away and outside.records.silent
            await asyncio.sleep(3.0 if slow else outside.random.choice((0.0, 0.001, 0.02)))
            self._refuse_broken()
            return self._timed(lambda: function(*values, **named))

    async def close(self, last: Any) -> None:
        self._closed = True


class Reply:
    """A reference to an answer: awaited as Ray's, or through `future`."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._future: Future[Any] = Future()
        self._loop = loop
        self.task: asyncio.Task[None] | None = None

    def set(self, value: Any = None, error: BaseException | None = None) -> None:
        if self._future.done():
            return
        if error is not None:
            self._future.set_exception(error)
        else:
            self._future.set_result(value)

    def future(self) -> Future[Any]:
        return self._future

    def cancel(self) -> None:
        """Ray asks the actor to end the call, which may be over by then."""
        if self.task is not None:
            self._loop.call_later(0.002, self.task.cancel)

    def __await__(self) -> Any:
        return asyncio.wrap_future(self._future, loop=self._loop).__await__()


class Owner:
    """One life of the store's process. `kill` is SIGKILL: nothing of it does anything any more.
    `claim`: what the cluster keeps of the ownership for the next life of the same deployment."""

    def __init__(self, outside: Outside, config: InstanceConfig, claim: Claim) -> None:
        self.outside, self.claim = outside, claim
        self.alive = True
        self.tasks: list[asyncio.Task[Any]] = []
        self.replies: list[Reply] = []
        outside.owners.append(self)
        token = _OWNER.set(self)
        try:
            meta = MetaConfig(backend="memory")
            self.store = Store(config.model_dump_json(), meta.model_dump_json(), True, claim)
        finally:
            _OWNER.reset(token)

    def call(self, method: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Reply:
        outside = self.outside
        reply = Reply(outside.loop)
        self.replies.append(reply)
        lost = outside.random.random() < outside.answers_lost
        unasked = lost and outside.random.random() < 0.3

        async def run() -> None:
            await outside.pause(0.003)
            if unasked:
                reply.set(error=_unavailable())
                return
            if lost:
                wait_s = outside.random.choice((0.0, 0.01, 0.5))
                outside.loop.call_later(wait_s, lambda: reply.set(error=_unavailable()))
            try:
                found = await getattr(self.store, method)(*arguments, **named)
            except CanalError as error:
                reply.set(error=_task_error(error))
            else:
                reply.set(found)

        token = _OWNER.set(self)
        try:
            task = reply.task = outside.loop.create_task(run())
        finally:
            _OWNER.reset(token)
        task.add_done_callback(lambda done: self._ended(done, reply))
        return reply

    def _ended(self, task: asyncio.Task[Any], reply: Reply) -> None:
        if task.cancelled():
            reply.set(error=TaskCancelledError() if self.alive else ActorDiedError())
        elif task.exception() is not None:
            reply.set(error=task.exception())

    async def kill(self) -> None:
        self.alive = False
        for reply in self.replies:
            reply.set(error=ActorDiedError())
        while open_tasks := {task for task in self.tasks if not task.done()}:
            for task in open_tasks:
                task.cancel()
            await asyncio.wait(open_tasks, timeout=10.0)
        self.tasks.clear()


def _unavailable() -> ActorUnavailableError:
    return ActorUnavailableError("the connection broke", None)


def _task_error(error: Exception) -> Exception:
    wrapped: Exception = RayTaskError("call", "simulated", error).as_instanceof_cause()
    return wrapped


class Handle:
    """The store's handle, as the cluster gives it out: it leads to one life of the process."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return _Method(self._owner, name)


class _Method:
    def __init__(self, owner: Owner, name: str) -> None:
        self._owner, self._name = owner, name

    def remote(self, *arguments: Any, **named: Any) -> Reply:
        if not self._owner.alive:
            reply = Reply(self._owner.outside.loop)
            reply.set(error=ActorDiedError())
            return reply
        return self._owner.call(self._name, arguments, named)


class Transport(RayTransport):
    """The program's own calls, over simulated handles."""

    def __init__(self, outside: Outside) -> None:
        self._outside = outside
        self._joined = 0
        StoreCalls.__init__(self, DESTINATION)

    def message(self, head: Any) -> Message:
        return Message(head, lambda payloads: payloads)


# --- the source --------------------------------------------------------------------------------


class SimulatedUpstream:
    """A fetcher with its parser and decoder: entries of a server's log, cut anywhere."""

    actor = None

    def __init__(self, outside: Outside, config: InstanceConfig) -> None:
        self.coming: deque[int] = deque()
        self._outside, self._config = outside, config
        self._owner = _OWNER.get()
        self._server: Server | None = None
        self._place = EntryPosition("")
        self._life = 0
        self._sequence = 0
        self._closed = False
        self._turn = asyncio.Lock()  # calls are answered in their order
        self.cut = False  # the connection broke

    def _answering(self, source: SourceConfig) -> Server:
        server = self._outside.server(source.address)
        if not server.alive:
            raise ConnectionLost(f"{source.address} does not answer")
        return server

    async def open(
        self,
        cursors: tuple[LogPosition, ...],
        delivered: str,
        records: Any,
        options: StartOptions = ALL_CURSORS,
    ) -> tuple[Start, SourceIdentity, Any]:
        await self._outside.pause(self._outside.random.choice((0.01, 0.5, 3.0)))

        def open_with(options: StartOptions, source: SourceConfig) -> Start:
            server = self._answering(source)
            start = decide(source, cursors, SearchedLog(server), delivered, options)
            self._server, self._life = server, server.life
            return start

        whole = partial(open_with, replace(options, partial=False))
        partly = partial(open_with, options) if options.partial else None
        probe = lambda source: self._answering(source).uuid  # noqa: E731
        start = choose(self._config.source, cursors, probe, whole, partly)
        assert self._server is not None
        place = start.position
        if not place.journal_name:
            place = _place_of_gtids(self._server, place)
            start = replace(start, position=place)
        self._place = place
        self._outside.upstreams.append(self)  # type: ignore[attr-defined]
        return start, SourceIdentity(self._server.address, self._server.uuid), ()

    def next_decoded(self) -> Callable[[], Any]:
        future = asyncio.ensure_future(self._next())

        async def found() -> tuple[Any, Any]:
            return await future

        return found

    async def _next(self) -> tuple[Any, Any]:
        async with self._turn:
            return await self._read()

    async def _read(self) -> tuple[Any, Any]:
        outside, server = self._outside, self._server
        assert server is not None
        await outside.pause()
        for _ in range(25):
            if self._closed:
                return Reading(False, False, 0.0, 0.0), None
            if self.cut or not server.alive or server.life != self._life:
                raise ConnectionLost(f"the connection to {server.address} broke")
            taken = self._take(server)
            if taken is not None:
                return taken
            await asyncio.sleep(0.4 if outside.quiet else 0.05)
        return Reading(False, False, 0.0, 0.0), None

    def _take(self, server: Server) -> tuple[Any, Any] | None:
        """The next chunk."""
        place = self._place
        names = [file.name for file in server.files]
        if place.journal_name not in names:
            raise PositionPurged(f"{server.address} has purged {place.journal_name}")
        file = server.files[names.index(place.journal_name)]
        rest = [entry for entry in file.entries if entry.position >= place.position]
        if not rest:
            if file is not server.files[-1]:
                following = server.files[names.index(file.name) + 1]
                self._place = EntryPosition(following.name, BINLOG_START)
                return self._take(server)
            return None
        count = min(self._outside.random.choice((1, 2, 5, 30)), len(rest))
        taken = rest[:count]
        end = taken[-1].position + taken[-1].length
        info = chunk_of(self._sequence, file, place.position, taken, server.gtids)
        self._place = EntryPosition(file.name, end)
        self._sequence += 1
        return info, Payload(file.name, taken)

    async def status(self, oldest: EntryPosition | None) -> Any:
        return SourceStatus(self._place.journal_name, self._place.position)

    async def close(self) -> None:
        self._closed = True


def _place_of_gtids(server: Server, start: EntryPosition) -> EntryPosition:
    """Where the server begins a dump that leaves out a GTID set."""
    from ray_canal.driver.log_search import Search

    found = Search(SearchedLog(server)).gtids(start.gtid)
    assert found is not None
    return found


# --- the disk ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class DiskSegment:
    number: int
    size_bytes: int


class SimulatedSpiller:
    """The process that has a log's part on disk."""

    def __init__(self, outside: Outside) -> None:
        self._outside = outside
        self._segments: dict[int, tuple[Any, Any]] = {}
        self._number = 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return _SpillerMethod(self, name)

    def call(self, name: str, arguments: tuple[Any, ...]) -> Reply:
        reply = Reply(self._outside.loop)
        try:
            found = getattr(self, f"_{name}")(*arguments)
        except OSError as error:
            reply.set(error=_task_error(error))
        else:
            wait_s = self._outside.random.choice((0.0, 0.001, 0.05))
            self._outside.loop.call_later(wait_s, lambda: reply.set(found))
        return reply

    def _write(self, chunk: Any, payload: Any) -> DiskSegment:
        if self._outside.disk_full:
            raise OSError(28, "No space left on device")
        self._number += 1
        self._segments[self._number] = (chunk, payload)
        return DiskSegment(self._number, chunk.info.size_bytes)

    def _read_log_chunk(self, segment: DiskSegment) -> Any:
        return self._segments[segment.number][0]

    def _read(self, segment: DiskSegment) -> Any:
        return self._segments[segment.number][1]

    def _drop(self, segments: Any) -> None:
        for segment in segments:
            del self._segments[segment.number]

    def _close(self) -> None:
        self._segments.clear()


class _SpillerMethod:
    def __init__(self, spiller: SimulatedSpiller, name: str) -> None:
        self._spiller, self._name = spiller, name

    def remote(self, *arguments: Any) -> Reply:
        return self._spiller.call(self._name, arguments)


# --- putting it in place -----------------------------------------------------------------------


class _NoMetrics:
    def __init__(self, destination: str) -> None:
        pass

    def publish(self, status: dict[str, Any]) -> None:
        pass

    def gone(self) -> None:
        pass


@contextmanager
def in_place(outside: Outside) -> Iterator[None]:
    """The program's code finds these where it looks for Ray, the source, the disk and cursors."""
    outside.upstreams = []  # type: ignore[attr-defined]

    async def upstream_of(config: InstanceConfig, **_: Any) -> SimulatedUpstream:
        return SimulatedUpstream(outside, config)

    def open_backend(*_: Any, **__: Any) -> OwnersBackend:
        return OwnersBackend(outside, _OWNER.get())

    def find_store(destination: str, namespace: str = "") -> Handle:
        if outside.owner is None:
            raise InstanceNotFound(f"no destination {destination!r} is running")
        return Handle(outside.owner)

    replaced = {
        "ray_canal.actors.pump.upstream_of": upstream_of,
        "ray_canal.actors.spawn.spiller": lambda folder: SimulatedSpiller(outside),
        "ray_canal.actors.ownership.open_backend": open_backend,
        "ray_canal.actors.ownership.BackendThread": SimulatedThread,
        "ray_canal.actors.kept_schemas.BackendThread": SimulatedThread,
        "ray_canal.actors.instance.Metrics": _NoMetrics,
        "ray_canal.actors.calls.find_store": find_store,
        "ray_canal.client.transport.keep_joined": lambda *_: None,
        "ray_canal.client.transport.times_joined": lambda: 0,
        "ray.is_initialized": lambda: True,
        "ray.util.get_node_ip_address": lambda *_: "127.0.0.1",  # errors of Ray ask each time
        "ray.kill": lambda *_, **__: None,
        "ray.cancel": lambda reply: reply.cancel(),
    }
    with mock.patch.object(ray, "init", side_effect=AssertionError("no Ray here")):
        patches = [mock.patch(name, new) for name, new in replaced.items()]
        for patch in patches:
            patch.start()
        try:
            yield
        finally:
            for patch in patches:
                patch.stop()
