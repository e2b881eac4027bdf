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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeGuard

import ray
from ray.exceptions import OwnerDiedError, RayError, RayTaskError

from ray_canal.actors.answers import ACTOR_AWAY, answered, raised_by_actor, unwrap_ray_error
from ray_canal.actors.lost_chunks import may_be_lost
from ray_canal.actors.ray_internals import Untracked, reference_of
from ray_canal.actors.registry import NAMESPACE, find_store
from ray_canal.actors.spiller import OnDisk
from ray_canal.actors.store_calls import CallFailed, DestinationHandle, LocalCall
from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.destination.api import (
    BatchRequest,
    ClientRequest,
    DestinationApi,
    GetRequest,
    Method,
    PollRequest,
    Q,
    R,
    RollbackRequest,
    is_repeatable,
)
from ray_canal.destination.blocking import complete
from ray_canal.errors import (
    CanalError,
    InstanceNotFound,
    InstanceNotRunning,
    InstanceRestarted,
    MetaUnavailable,
)
from ray_canal.model.message import EMPTY_BATCH, Caller, MessageHead, Payload

_RESTART_WAIT_S = 60.0
_CHECK_S_MAX = 40.0
"""So long the store may look whether chunks are lost."""
_RETRY_PAUSE_S, _RETRY_PAUSE_S_MAX = 0.1, 0.5
_AWAY = (*ACTOR_AWAY, InstanceNotRunning, InstanceNotFound)


def _pauses() -> Iterator[float]:
    """Growing: looking a store up takes CPU that its start needs."""
    pause_s = _RETRY_PAUSE_S
    while True:
        yield pause_s
        pause_s = min(1.5 * pause_s, _RETRY_PAUSE_S_MAX)


class ActorWaiting(Protocol):
    """The ways in which a call waits."""

    async def answer(self, reply: Any, limit_s: float | None = None) -> Any:
        """Return the answer of which `reply` is the reference, or a LocalCall. Raises what the call
        raised, and a timeout after `limit_s` (of a reference)."""

    async def objects(self, references: Sequence[Any]) -> list[Any]:
        """Return the objects that are referred to."""

    async def pause(self, seconds: float) -> None:
        """Return after so long."""

    async def run(self, step: Callable[[], None]) -> None:
        """Run what may take long."""

    async def look_up(self, step: Callable[[], None]) -> None:
        """Run a look-up, once for all calls that wait for it."""


class AnswersOnLoop:
    """Waits on the event loop."""

    def __init__(self) -> None:
        self._looking: asyncio.Task[None] | None = None

    async def answer(self, reply: Any, limit_s: float | None = None) -> Any:
        if isinstance(reply, LocalCall):
            return await reply.wait()
        return await (reply if limit_s is None else answered(limit_s, reply))

    async def objects(self, references: Sequence[Any]) -> list[Any]:
        return list(await asyncio.gather(*map(_awaited, references)))

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def run(self, step: Callable[[], None]) -> None:
        await asyncio.to_thread(step)

    async def look_up(self, step: Callable[[], None]) -> None:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self.run(step))
        looking = self._looking
        await asyncio.wait({looking})  # one that waits may be cancelled, and the others go on
        looking.result()


class AnswersInThread:
    """Blocks the thread; see `complete` (destination/blocking.py)."""

    async def answer(self, reply: Any, limit_s: float | None = None) -> Any:
        return reply.result() if isinstance(reply, LocalCall) else ray.get(reply, timeout=limit_s)

    async def objects(self, references: Sequence[Any]) -> list[Any]:
        return ray.get(list(references))  # type: ignore[no-any-return]

    async def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    async def run(self, step: Callable[[], None]) -> None:
        step()

    async def look_up(self, step: Callable[[], None]) -> None:
        step()


_IN_THREAD = AnswersInThread()


class DestinationCalls:
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
        self._on_loop = AnswersOnLoop()
        self._caller = uuid.uuid4().hex
        self._numbers = itertools.count(1)
        self._received: dict[int, tuple[int, int]] = {}  # client id: epoch, newest batch
        self._handle = find_store(destination, namespace)

    def _submit(self, method: Method[Q, R], request: Q) -> Any:
        if isinstance(request, GetRequest):
            received = self._received.get(request.client_id, (0, 0))
            caller = Caller(self._caller, next(self._numbers), *received)
            request = replace(request, caller=caller)
        return self._handle.begin(method, request)

    @property
    def _is_stale(self) -> bool:
        """True if the destination is to be looked up before the next call."""
        return False

    def call(self, method: Method[Q, R], request: Q, *, once: bool = False) -> R:
        """Call and wait. A call that is repeatable (and not wanted `once`) is tried again while
        the destination restarts, up to a minute."""
        repeat = is_repeatable(method) and not once
        return complete(self._call(_IN_THREAD, method, request, repeat=repeat))

    async def call_async(self, method: Method[Q, R], request: Q) -> R:
        """The same, awaited. A get that is cancelled leaves no batch outstanding; see above."""
        return await self._call(self._on_loop, method, request, repeat=is_repeatable(method))

    async def take(self, request: GetRequest) -> MessageHead:
        """get_without_ack, or poll of a PollRequest, awaited, that may be cancelled: what was
        handed out meanwhile goes back.

        So a batch is outstanding only if somebody has it.
        """
        if isinstance(request, PollRequest):
            return await self._call(
                self._on_loop, DestinationApi.poll, request, repeat=True, withdraw=True
            )
        return await self._call(
            self._on_loop, DestinationApi.get_without_ack, request, repeat=True, withdraw=True
        )

    async def _call(
        self,
        waiting: ActorWaiting,
        method: Method[Q, R],
        request: Q,
        *,
        repeat: bool,
        withdraw: bool = False,
    ) -> R:
        deadline = time.monotonic() + self._restart_wait_s
        pauses = _pauses()
        while True:
            reference = None
            try:
                if self._is_stale:
                    if isinstance(request, BatchRequest):
                        raise self.gone()
                    await waiting.run(self._find)
                reference = self._submit(method, request)
                answer: R = await waiting.answer(reference)
                return self._arrived(request, answer)
            except asyncio.CancelledError:
                if reference is not None and isinstance(request, GetRequest):
                    _cancel(reference)
                    if withdraw:
                        await self._withdraw(waiting, reference, request)
                raise
            except Exception as error:
                self._after(error, repeat, deadline, request)
            await waiting.pause(next(pauses))
            await waiting.look_up(self._look_up)

    def _arrived(self, request: ClientRequest, answer: R) -> R:
        if isinstance(answer, MessageHead) and answer.id != EMPTY_BATCH:
            self._received[request.client_id] = (answer.epoch, answer.id)
        return answer

    def arrived_ids(self, client_id: int, batch_ids: list[int]) -> list[int]:
        """Return those of a client's outstanding batches that have arrived here."""
        _, received = self._received.get(client_id, (0, 0))
        return [each for each in batch_ids if each <= received]

    def not_received(self, client_id: int, batch_id: int) -> None:
        """Note that a batch and those after it have not arrived: the next get brings them again."""
        epoch, received = self._received.get(client_id, (0, 0))
        self._received[client_id] = (epoch, min(received, batch_id - 1))

    async def _withdraw(self, waiting: ActorWaiting, reference: Any, request: GetRequest) -> None:
        try:
            head = await waiting.answer(reference)
            if head.id != EMPTY_BATCH:
                given_back = RollbackRequest(
                    client_id=request.client_id,
                    holder=request.holder,
                    batch_id=head.id,
                    epoch=head.epoch,
                )
                await waiting.answer(self._submit(DestinationApi.rollback, given_back))
        except (RayError, CanalError, CallFailed):
            return  # cancelled in time, or the store is gone and the batch with it

    def _after(
        self,
        error: Exception,
        repeat: bool,
        deadline: float,
        request: ClientRequest,
    ) -> None:
        """Return if the call should be repeated, else raise what the caller should see."""
        in_time = time.monotonic() < deadline
        if isinstance(error, RayTaskError | CallFailed):
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
        if isinstance(request, BatchRequest):  # it may have been carried out
            self.not_received(request.client_id, request.batch_id or 0)
        raise InstanceRestarted(
            "the destination went away during the call; what was not acked will be delivered again"
        ).at(destination=self.destination) from error

    def _look_up(self) -> None:
        with contextlib.suppress(InstanceNotFound):  # the caller waits for it until its deadline
            self._find()

    def _find(self) -> None:
        self._handle = find_store(self.destination, self._namespace, self._restart_wait_s)

    def load(self, payloads: list[Payload]) -> list[DecodedChunk]:
        """Map decoded chunks from shared memory (zero-copy). Raises InstanceRestarted if they are
        gone; the store is told if that may be news to it."""
        return complete(self._load(_IN_THREAD, payloads))

    async def load_async(self, payloads: list[Payload]) -> list[DecodedChunk]:
        """The same, awaited."""
        return await self._load(self._on_loop, payloads)

    async def _load(self, waiting: ActorWaiting, payloads: list[Payload]) -> list[DecodedChunk]:
        try:
            there = [_reference(each) for each in payloads if not _is_here(each)]
            mapped = iter(await waiting.objects(there) if there else ())
            return [each if _is_here(each) else next(mapped) for each in payloads]
        except RayError as error:
            if told := self._to_tell(error, payloads):
                with contextlib.suppress(RayError, CanalError, asyncio.TimeoutError):
                    reply = self._handle.submit(DestinationApi.check_chunks, told)
                    await waiting.answer(reply, _CHECK_S_MAX)
            raise self._unread(error) from error

    @staticmethod
    def _to_tell(error: RayError, payloads: list[Payload]) -> list[Any]:
        """The chunks that the store should look for. It may free what is untracked."""
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
        return self.gone() if isinstance(error, (*ACTOR_AWAY, OwnerDiedError)) else plain

    def gone(self) -> InstanceRestarted:
        """Return the error for a message whose chunks went with the store, the process of its part
        on disk, or the cluster."""
        return InstanceRestarted(
            "what had this message's chunks has ended before they were read; it will be delivered "
            "again"
        ).at(destination=self.destination)


class PassedCalls:
    """Calls of any destination, each made once, for a caller who repeats it. Any thread."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._handles: dict[str, DestinationHandle] = {}

    def call(self, destination: str, method: Method[Q, R], request: Q) -> R:
        """Make a call and wait for its answer. Raises CanalError kinds; after InstanceError kinds
        the destination is looked up again."""
        handle = self._handles.get(destination)
        if handle is None:
            handle = self._handles[destination] = find_store(destination, self._namespace)
        try:
            answer: R = complete(_IN_THREAD.answer(handle.begin(method, request)))
        except (RayError, CallFailed, InstanceNotRunning) as error:
            self._handles.pop(destination, None)
            raise unwrap_ray_error(error) from None
        return answer


def _cancel(reply: Any) -> None:
    """End a call under way."""
    if isinstance(reply, LocalCall):
        reply.cancel()
    else:
        ray.cancel(reply)


def map_chunks(payloads: list[Payload]) -> list[DecodedChunk]:
    """Return the decoded chunks behind a message's payloads, mapped from shared memory. Raises
    RayError: one cannot be had any more."""
    mapped = iter(ray.get([_reference(each) for each in payloads if not _is_here(each)]))
    return [each if _is_here(each) else next(mapped) for each in payloads]


def _is_here(payload: Payload) -> TypeGuard[DecodedChunk]:
    """Return whether the chunk itself came with the message, as a small one does."""
    return isinstance(payload, DecodedChunk)


def _reference(payload: Payload) -> Any:
    """A chunk's reference; one that is on disk is read by who put it there, and ours."""
    if isinstance(payload, Untracked):
        return reference_of(payload)
    return payload.spiller.read.remote(payload.segment) if isinstance(payload, OnDisk) else payload


async def _awaited(reference: Any) -> Any:
    return await reference
