"""Acks that go with a loop's next get: written in order, while the next batch is on its way.

A durable write takes as long as the disk, now and then many milliseconds. So a batch is handed out
while the ack of the one before it is being written; the ack before that one is durable by then.
Nothing is lost by it: what was not acked before a crash comes again, in order.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from ray_canal.destination.api import AckRequest, ClientRequest, PollRequest
from ray_canal.errors import BatchNotFound, InstanceRestarted, MetaUnavailable


@dataclass(slots=True)
class _Loop:
    """One connection's: acks that are not durable yet, oldest first, each with what ends when it
    is; why the last one could not be written."""

    holder: str
    left: deque[tuple[AckRequest, asyncio.Future[None]]] = field(default_factory=deque)
    writing: asyncio.Task[None] | None = None
    failure: BaseException | None = None


class LoopAcks:
    """Of one destination, by client id. `ack` writes one; `wake` is called when one has failed."""

    def __init__(
        self,
        ack: Callable[[AckRequest], Awaitable[None]],
        wake: Callable[[], Awaitable[None]],
    ) -> None:
        self._ack = ack
        self._wake = wake
        self._loops: dict[int, _Loop] = {}

    def begin(self, request: PollRequest) -> None:
        """Begin to write what the loop is done with, unless that has begun already: a call may come
        twice."""
        if request.done is None:
            return
        client_id, (batch_id, epoch) = request.client_id, request.done
        loop = self._of(request)
        if loop is None:
            loop = self._loops[client_id] = _Loop(request.holder)
        ack = AckRequest(client_id=client_id, holder=request.holder, batch_id=batch_id, epoch=epoch)
        if all(ack != known for known, _ in loop.left):
            loop.left.append((ack, _answer()))
        if loop.failure is None or isinstance(loop.failure, MetaUnavailable):
            self._write_on(client_id, loop)

    def has_failed(self, request: ClientRequest) -> bool:
        """Return whether `written` would raise what has happened already."""
        loop = self._of(request)
        return loop is not None and loop.failure is not None

    async def written(self, request: ClientRequest, but: int = 0) -> None:
        """Wait until at most `but` acks of the caller's loop are not durable. Raises what an ack
        raised, once; one that could not reach the cursors is tried again by the next call."""
        loop = self._of(request)
        if loop is None:
            return
        if loop.failure is not None:
            failure, loop.failure = loop.failure, None
            self._forget(request.client_id, loop)
            raise failure
        if len(loop.left) > but:
            over = loop.left[-1 - but][1]
            self._write_on(request.client_id, loop)
            try:
                await asyncio.shield(over)
            except Exception:
                loop.failure = None  # told
                raise

    def _of(self, request: ClientRequest) -> _Loop | None:
        loop = self._loops.get(request.client_id)
        return loop if loop is not None and loop.holder == request.holder else None

    def _write_on(self, client_id: int, loop: _Loop) -> None:
        if loop.writing is None:
            loop.failure = None
            loop.writing = asyncio.create_task(self._write(client_id, loop))

    async def _write(self, client_id: int, loop: _Loop) -> None:
        try:
            while loop.left:
                ack, over = loop.left[0]
                with contextlib.suppress(InstanceRestarted, BatchNotFound):  # comes again; acked
                    await self._ack(ack)
                loop.left.popleft()
                over.set_result(None)
        except BaseException as error:
            failed, loop.failure = tuple(loop.left), error
            loop.left.clear()
            for ack, over in failed:
                over.set_exception(error)
                if isinstance(error, MetaUnavailable):  # nothing was done
                    loop.left.append((ack, _answer()))
            if not isinstance(error, Exception):
                raise
        finally:
            loop.writing = None
        self._forget(client_id, loop)
        if loop.failure is not None:
            await self._wake()

    def _forget(self, client_id: int, loop: _Loop) -> None:
        if not loop.left and loop.failure is None and self._loops.get(client_id) is loop:
            del self._loops[client_id]


def _answer() -> asyncio.Future[None]:
    """Return a future whose failure is nobody's if nobody waits for it."""
    made: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    made.add_done_callback(lambda over: over.cancelled() or over.exception())
    return made
