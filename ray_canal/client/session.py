"""The state that a connector keeps between its calls, whether it blocks or is awaited."""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.client.ephemeral import Presence
from ray_canal.client.message import Message
from ray_canal.client.port import Transport
from ray_canal.destination.api import (
    AckRequest,
    ClientRequest,
    GetRequest,
    PollRequest,
    RollbackRequest,
)
from ray_canal.errors import CanalError, ConfigError, InstanceRestarted
from ray_canal.model.message import MessageHead, Payload
from ray_canal.model.snapshot_wish import SnapshotStart
from ray_canal.model.subscription import (
    Policy,
    StartWish,
    Subscription,
    new_client_id,
    refuse_client_id,
)

if TYPE_CHECKING:
    from ray_canal.views.transform import Keys, RowSteps, Transform

logger = logging.getLogger(__name__)

WAIT_S_MAX = 1e8
"""Three years: clocks of sockets and events cannot wait much longer."""
_BATCH_SIZE_MAX = (1 << 31) - 1
"""The largest that Canal's protocol can ask for."""


class ClientSession:
    """State of either connector: who we are, and which epoch our batches belong to.

    `done`: the id and epoch of a batch that a loop over messages is done with; its ack goes with
    the next get. `yielded`: the batch that the body of a loop has now.
    """

    def __init__(self, transport: Transport, client_id: int | None) -> None:
        """`client_id` None: an ephemeral subscription, under an id that nobody has."""
        self.client_id = new_client_id() if client_id is None else client_id
        refuse_client_id(self.client_id)
        self.me = ClientRequest(client_id=self.client_id)
        self.transport = transport
        self.destination = transport.destination
        self._presence = None if client_id is not None else Presence(transport, self.client_id)
        self.epoch = 0
        self.done: tuple[int, int] | None = None
        self.yielded: int | None = None
        self._unacked: set[int] = set()
        self._transform: Transform | None = None

    def get(self, batch_size: int, timeout: float | None) -> GetRequest:
        """Return the request for the next batch. Raises ConfigError: no such timeout."""
        size, wait_s = min(batch_size, _BATCH_SIZE_MAX), _wait_s(timeout)
        return GetRequest(client_id=self.client_id, batch_size=size, timeout=wait_s)

    def poll(self, batch_size: int, timeout: float, *, untracked: bool = False) -> PollRequest:
        """Return a loop's request for the next batch, which acks what the loop is done with."""
        return PollRequest(
            client_id=self.client_id,
            batch_size=min(batch_size, _BATCH_SIZE_MAX),
            timeout=_wait_s(timeout),
            done=self.done,
            untracked=untracked,
        )

    def ack(self, batch_id: int, epoch: int, mark: str = "") -> AckRequest:
        """Return the request that confirms a batch. Raises TypeError: that is no id."""
        number = _checked_id(batch_id)
        return AckRequest(client_id=self.client_id, batch_id=number, epoch=epoch, mark=mark)

    def ack_of(self, message: Message) -> AckRequest:
        """Return the request that confirms a message which is read after it."""
        return AckRequest(
            client_id=self.client_id, batch_id=message.id, epoch=message.head.epoch, keep=True
        )

    def rollback(self, batch_id: int | None) -> RollbackRequest:
        """Return the request that gives back a batch and those after it; None: all. Raises
        TypeError: that is no id."""
        first = None if batch_id is None else _checked_id(batch_id)
        return RollbackRequest(client_id=self.client_id, batch_id=first, epoch=self.epoch)

    def not_received(self, batch_id: int) -> None:
        """Have a batch, and those after it, come again with the next get."""
        self.transport.not_received(self.client_id, batch_id)

    def settle_done(self) -> None:
        """Note that what a loop was done with is acked, or comes again."""
        if self.done is not None:
            self._unacked.discard(self.done[0])
            self.done = None

    def wishes(
        self,
        policy: Policy | None,
        transactions: bool | None,
        start: StartWish | None,
        snapshot: SnapshotStart | None = None,
    ) -> Subscription:
        """Return what is subscribed for. An ephemeral subscription holds up nobody."""
        if self._presence is None:
            return Subscription(policy, transactions, start, snapshot=snapshot)
        return Subscription(
            policy or "detach", transactions, start, ephemeral=True, snapshot=snapshot
        )

    def subscribed(self) -> None:
        """Note that the subscription stands: an ephemeral one shows from now on that it lives."""
        if self._presence is not None:
            self._presence.begin()
        self.settle()

    def close(self) -> None:
        """Leave."""
        if self._presence is not None:
            self._presence.end()
        self.transport.close()

    def settle(self, batch_id: int | None = None) -> None:
        """Note that a batch and those after it (None: all) were rolled back."""
        self._unacked = {each for each in self._unacked if batch_id and each < batch_id}
        if self.done is not None and (batch_id is None or batch_id <= self.done[0]):
            self.done = None

    def settle_acked(self, batch_id: int) -> None:
        """Note that a batch was acked."""
        self._unacked.discard(batch_id)
        if self.done is not None and batch_id == self.done[0]:
            self.done = None

    def leave_loop(self) -> None:
        """Have the batch come again that the body of an earlier, left loop had; a loop begins."""
        if self.yielded is not None:
            self.not_received(self.yielded)
            self.yielded = None

    def leave(self, batch_id: int) -> bool:
        """Note the end of a loop's body; return whether its batch is to be rolled back. (Another
        loop may have begun since: then that has done it.)"""
        if self.yielded != batch_id:
            return False
        self.yielded = None
        return self.done is None

    def unacked(self, message: Message, error: CanalError) -> None:
        """Log that a message's ack, or the answer to it, has failed; the message may come again."""
        logger.warning(
            "destination %s: batch %d was received, and it is not known whether it was acked: it "
            "may come again (%s)", self.destination, message.id, error,
        )  # fmt: skip
        self.not_received(message.id)

    def message(self, head: MessageHead) -> Message:
        """Make a message of a head; ids of an earlier epoch are forgotten."""
        if head.epoch != self.epoch:
            self._unacked.clear()
        self.epoch = head.epoch
        message = self.transport.message(head)
        message.transform = self._transform
        if message:
            self._unacked.add(message.id)
            message.load = partial(self._load, message.load, message.id)
        return message

    def _load(
        self,
        load: Callable[[list[Payload]], list[DecodedChunk]],
        batch_id: int,
        payloads: list[Payload],
    ) -> list[DecodedChunk]:
        """The chunks of a message. If they cannot be had any more, it comes again with the next
        get."""
        try:
            return load(payloads)
        except InstanceRestarted as error:
            if batch_id not in self._unacked:
                raise InstanceRestarted(
                    f"message {batch_id} was acked before it was read, and cannot be read any "
                    f"more: {error}"
                ) from error
            self.not_received(batch_id)
            raise

    def use(self, steps: RowSteps) -> None:
        """Take the row steps of a subscription. Raises ConfigError."""
        if not any(steps.values()):
            self._transform = None
            return
        from ray_canal.views.transform import Transform

        given: RowSteps = {**steps, "hash": _with_keys(steps.get("hash"))}
        transform = Transform(**given)
        if transform and not self.transport.has_batches:
            raise ConfigError(
                "where, columns, mask and hash work on Arrow batches, which Canal's TCP protocol "
                "does not carry; connect by Ray or Arrow Flight (grpc://…)"
            )
        self._transform = transform or None


def _wait_s(timeout: float | None) -> float | None:
    """Return a get's timeout as it is asked for. Raises ConfigError: below 0, or no number."""
    if timeout is None:
        return None
    if not timeout >= 0:  # NaN is not
        raise ConfigError(
            f"timeout {timeout!r}: None returns what is there now, 0 waits for a full batch, and "
            "more are seconds"
        )
    return min(timeout, WAIT_S_MAX)


def _with_keys(hash: Keys | None) -> dict[str, Any]:
    """The keys behind `env:NAME` and `file:PATH`."""
    from ray_canal.config import secret

    return {
        name: _with_keys(key) if isinstance(key, Mapping) else secret(key)
        for name, key in (hash or {}).items()
    }


def _checked_id(batch_id: int) -> int:
    try:
        return operator.index(batch_id)
    except TypeError:
        kind = type(batch_id).__name__
        raise TypeError(f"a batch is named by its id (message.id), not by a {kind}") from None
