"""Processes of a simulated destination that die, what outlives them, and calls that get lost."""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    RayTaskError,
    TaskCancelledError,
)

from ray_canal.actors.calls import DestinationCalls
from ray_canal.client.message import Message
from ray_canal.client.transport import RayTransport
from ray_canal.config import InstanceConfig, MetaConfig
from ray_canal.destination.backend_thread import BackendThread
from ray_canal.destination.destination import start_destination
from ray_canal.destination.ownership import Claim
from ray_canal.errors import (
    CanalError,
    Fenced,
    InstanceNotRunning,
    MetaUnavailable,
)
from ray_canal.meta.memory import MemoryBackend
from tests.simulation.servers import Entry, Server
from tests.simulation.virtual_time import VirtualLoop

DESTINATION = "simulated"
OWNER: contextvars.ContextVar[Owner | None] = contextvars.ContextVar("owner", default=None)


@dataclass
class Payload:
    """A decoded chunk: its entries, each with its rows' numbers. `props`: of rows that were read,
    and of marks."""

    journal_name: str
    entries: list[Entry]
    props: Mapping[str, str] = field(default_factory=dict)


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
        self.runtime: Any = None  # see runtime.py
        loop.set_task_factory(self._new_task)

    def server(self, address: str) -> Server:
        return next(server for server in self.servers if server.address == address)

    async def pause(self, most_s: float = 0.02) -> None:
        await asyncio.sleep(self.random.uniform(0.0, most_s))

    @staticmethod
    def _new_task(loop: Any, work: Any, **named: Any) -> Any:
        task: Any = asyncio.Task(work, loop=loop, **named)
        owner = OWNER.get()
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
        owner = OWNER.get()
        assert owner is not None
        if self._closed:
            raise InstanceNotRunning("the destination was stopped")
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
        self.calls: list[tuple[int, asyncio.Task[None]]] = []  # with the client's id
        outside.owners.append(self)
        token = OWNER.set(self)
        try:
            meta = MetaConfig(backend="memory")
            self.destination = start_destination(config, meta, outside.runtime, claim)
        finally:
            OWNER.reset(token)

    @property
    def is_fenced(self) -> bool:
        """Return whether it knows that another owner has taken over."""
        return isinstance(self.destination.state.supervisor.failure, Fenced)

    def call(self, method: str, arguments: tuple[Any, ...]) -> Reply:
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
                found = await getattr(self.destination, method)(*arguments)
            except CanalError as error:
                reply.set(error=task_error(error))
            else:
                reply.set(found)

        token = OWNER.set(self)
        try:
            task = reply.task = outside.loop.create_task(run())
        finally:
            OWNER.reset(token)
        task.add_done_callback(lambda done: self._ended(done, reply))
        client_id = getattr(arguments[0], "client_id", None) if arguments else None
        if client_id is not None:
            self.calls.append((client_id, task))
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


def task_error(error: Exception) -> Exception:
    wrapped: Exception = RayTaskError("call", "simulated", error).as_instanceof_cause()
    return wrapped


class Handle:
    """The store's handle, as the cluster gives it out: it leads to one life of the process."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    def begin(self, method: Callable[..., Any], *arguments: Any) -> Reply:
        return self.submit(method, *arguments)

    def submit(self, method: Callable[..., Any], *arguments: Any) -> Reply:
        if not self._owner.alive:
            reply = Reply(self._owner.outside.loop)
            reply.set(error=ActorDiedError())
            return reply
        return self._owner.call(method.__name__, arguments)


class Transport(RayTransport):
    """The program's own calls, over simulated handles."""

    def __init__(self, outside: Outside) -> None:
        self._outside = outside
        self._joined = 0
        DestinationCalls.__init__(self, DESTINATION)

    def message(self, head: Any) -> Message:
        return Message(head, lambda payloads: payloads)
