"""Calls to a destination's store actor through a Ray handle.

Ray wraps what an actor raises; callers of ray_canal see the CanalError itself. A restart of the
store is waited for where a call may be repeated (subscribe, get), and told where it may not (ack,
rollback): batches of before the restart are void and come again.

A call whose answer does not arrive may have been carried out. So each get says which batch was the
last one that arrived here; the store takes back what it has handed out beyond it. Where it is not
known whether an ack or a rollback was carried out, the next get says that the batch did not arrive.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
import uuid
from collections.abc import Iterator
from typing import Any

import ray
from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    OwnerDiedError,
    RayActorError,
    RayError,
    RayTaskError,
)

from ray_canal.actors.answers import answered, raised_by_actor
from ray_canal.actors.lost_chunks import may_be_lost
from ray_canal.actors.ray_internals import Untracked, reference_of
from ray_canal.actors.registry import NAMESPACE, find_store
from ray_canal.actors.spiller import OnDisk
from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.errors import (
    CanalError,
    InstanceNotFound,
    InstanceNotRunning,
    InstanceRestarted,
    MetaUnavailable,
)
from ray_canal.model.message import EMPTY_BATCH, Caller, MessageHead

OF_BATCHES = ("ack", "ack_and_keep", "rollback")
GETS = ("get", "get_without_ack", "get_soon")
_RESTART_WAIT_S = 60.0
_CHECK_S_MAX = 40.0
"""So long the store may look whether chunks are lost."""
_RETRY_PAUSE_S, _RETRY_PAUSE_S_MAX = 0.1, 0.5
_AWAY = (RayActorError, ActorDiedError, ActorUnavailableError, InstanceNotRunning, InstanceNotFound)


def _pauses() -> Iterator[float]:
    """Growing: looking a store up takes CPU that its start needs."""
    pause_s = _RETRY_PAUSE_S
    while True:
        yield pause_s
        pause_s = min(1.5 * pause_s, _RETRY_PAUSE_S_MAX)


class StoreCalls:
    """One destination's store, by name; it is looked up again after it went away."""

    def __init__(
        self,
        destination: str,
        namespace: str = NAMESPACE,
        restart_wait_s: float = _RESTART_WAIT_S,
    ) -> None:
        self.destination = destination
        self._namespace = namespace
        self._restart_wait_s = restart_wait_s
        self._looking: asyncio.Task[None] | None = None
        self._caller = uuid.uuid4().hex
        self._numbers = itertools.count(1)
        self._received: dict[int, tuple[int, int]] = {}  # client id: epoch, newest batch
        self._handle = find_store(destination, namespace)

    def _submit(self, method: str, *arguments: Any, **named: Any) -> Any:
        if method in GETS:
            received = self._received.get(arguments[0], (0, 0))
            named["caller"] = Caller(self._caller, next(self._numbers), *received)
        return getattr(self._handle, method).remote(*arguments, **named)

    async def _ready(self, method: str) -> None:
        """Do what `_submit` would have to wait for, without holding up the event loop."""

    def call(self, method: str, *arguments: Any, repeat: bool) -> Any:
        """Call and wait. `repeat`: try again while the store restarts, up to a minute."""
        deadline = time.monotonic() + self._restart_wait_s
        pauses = _pauses()
        while True:
            try:
                return self._arrived(method, arguments, ray.get(self._submit(method, *arguments)))
            except Exception as error:
                self._after(error, repeat, deadline, method, arguments)
            self._look_up()
            time.sleep(next(pauses))

    async def call_async(self, method: str, *arguments: Any, repeat: bool) -> Any:
        """The same, awaited. A get that is cancelled leaves no batch outstanding; see above."""
        deadline = time.monotonic() + self._restart_wait_s
        pauses = _pauses()
        while True:
            reference = None
            try:
                await self._ready(method)
                reference = self._submit(method, *arguments)
                return self._arrived(method, arguments, await reference)
            except asyncio.CancelledError:
                if reference is not None and method in GETS:
                    ray.cancel(reference)
                raise
            except Exception as error:
                self._after(error, repeat, deadline, method, arguments)
            await self._look_up_after(next(pauses))

    def _arrived(self, method: str, arguments: tuple[Any, ...], answer: Any) -> Any:
        if method in GETS and answer.id != EMPTY_BATCH:
            self._received[arguments[0]] = (answer.epoch, answer.id)
        if method == "list_batch_ids":
            _, received = self._received.get(arguments[0], (0, 0))
            return [each for each in answer if each <= received]
        return answer

    def not_received(self, client_id: int, batch_id: int) -> None:
        """This batch, and those after it, come again with the next get if they are outstanding."""
        epoch, received = self._received.get(client_id, (0, 0))
        self._received[client_id] = (epoch, min(received, batch_id - 1))

    async def take(
        self, client_id: int, batch_size: int, timeout: float | None, holder: str = ""
    ) -> MessageHead:
        """get_without_ack, awaited, that may be cancelled: what was handed out meanwhile goes back.

        So a batch is outstanding only if somebody has it.
        """
        deadline = time.monotonic() + self._restart_wait_s
        pauses = _pauses()
        while True:
            asked = (client_id, batch_size, timeout, holder)
            reference = self._submit("get_without_ack", *asked)
            try:
                head: MessageHead = self._arrived("get_without_ack", asked, await reference)
                return head
            except asyncio.CancelledError:
                await self._withdraw(reference, client_id, holder)
                raise
            except Exception as error:
                self._after(error, True, deadline, "get_without_ack", asked)
            await self._look_up_after(next(pauses))

    async def _withdraw(self, reference: Any, client_id: int, holder: str) -> None:
        ray.cancel(reference)
        try:
            head = await reference
            if head.id != EMPTY_BATCH:
                await self._submit("rollback", client_id, head.id, head.epoch, holder)
        except (RayError, CanalError):
            return  # cancelled in time, or the store is gone and the batch with it

    def _after(
        self,
        error: Exception,
        repeat: bool,
        deadline: float,
        method: str,
        arguments: tuple[Any, ...],
    ) -> None:
        """Return if the call should be repeated, else raise what the caller should see."""
        in_time = time.monotonic() < deadline
        if isinstance(error, RayTaskError):
            cause = raised_by_actor(error)
            # The store answers. Nothing was done if it could not reach the cursors, or if the
            # call may be repeated anyway.
            again = isinstance(cause, MetaUnavailable) or (
                repeat and isinstance(cause, CanalError) and cause.retryable
            )
            if in_time and again:
                return
            raise cause from None
        if not isinstance(error, _AWAY):
            raise error
        if repeat and in_time:
            return
        if method in OF_BATCHES:  # it may have been carried out
            self.not_received(arguments[0], arguments[1] or 0)
        raise InstanceRestarted(
            "the instance went away during the call; what was not acked will be delivered again"
        ).at(destination=self.destination) from error

    async def _look_up_after(self, pause_s: float) -> None:
        """Once for all calls that wait; the look-up itself waits in a thread."""
        await asyncio.sleep(pause_s)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(asyncio.to_thread(self._look_up))
        await asyncio.wait({self._looking})

    def _look_up(self) -> None:
        with contextlib.suppress(InstanceNotFound):  # the caller waits for it until its deadline
            self._find()

    def _find(self) -> None:
        self._handle = find_store(self.destination, self._namespace)

    def load(self, payloads: list[Any]) -> list[DecodedChunk]:
        """Map decoded chunks from shared memory (zero-copy). Raises InstanceRestarted if they are
        gone; the store is told if that may be news to it."""
        try:
            mapped = iter(ray.get([_reference(each) for each in payloads if not _is_here(each)]))
            return [each if _is_here(each) else next(mapped) for each in payloads]
        except RayError as error:
            if told := self._to_tell(error, payloads):
                with contextlib.suppress(RayError, CanalError):
                    ray.get(self._submit("check_chunks", told), timeout=_CHECK_S_MAX)
            raise self._unread(error) from error

    async def load_async(self, payloads: list[Any]) -> list[DecodedChunk]:
        """The same, awaited."""
        try:
            return list(await asyncio.gather(*map(_loaded, payloads)))
        except RayError as error:
            if told := self._to_tell(error, payloads):
                with contextlib.suppress(RayError, CanalError, asyncio.TimeoutError):
                    await answered(_CHECK_S_MAX, self._submit("check_chunks", told))
            raise self._unread(error) from error

    @staticmethod
    def _to_tell(error: RayError, payloads: list[Any]) -> list[Any]:
        """The chunks that the store should look for. It may let go of what is untracked."""
        references = [each for each in payloads if isinstance(each, ray.ObjectRef)]
        return references if may_be_lost(error) else []

    def _unread(self, error: RayError) -> Exception:
        plain: Exception = error
        if may_be_lost(error):
            return InstanceRestarted(
                "a chunk of this message was lost with the node that had it, or the log has let it "
                "go; the destination reads it again, and the message will be delivered again"
            ).at(destination=self.destination)
        if isinstance(error, RayTaskError):
            return raised_by_actor(error)
        return self.gone() if isinstance(error, RayActorError | OwnerDiedError) else plain

    def gone(self) -> InstanceRestarted:
        """For a message whose chunks went with the store, the process of its part on disk, or the
        cluster."""
        return InstanceRestarted(
            "what had this message's chunks has ended before they were read; it will be delivered "
            "again"
        ).at(destination=self.destination)


def _is_here(payload: Any) -> bool:
    """A small chunk came with the message."""
    return isinstance(payload, DecodedChunk)


async def _loaded(payload: Any) -> Any:
    return payload if _is_here(payload) else await _reference(payload)


def _reference(payload: Any) -> Any:
    """A chunk's reference; one that is on disk is read by who put it there, and ours."""
    if isinstance(payload, Untracked):
        return reference_of(payload)
    return payload.spiller.read.remote(payload.segment) if isinstance(payload, OnDisk) else payload
