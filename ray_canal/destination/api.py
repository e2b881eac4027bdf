"""`DestinationApi`: every call that a destination answers, with the records it takes.

A caller names a call by its method (`DestinationApi.ack`), never by text: transports carry the
method and its request, and learn from the method whether the call may be repeated, and from the
request what it is about. `destination/destination.py` answers in the destination's process, Ray
(`actors/calls.py`) and Canal's TCP protocol (`client/tcp.py`) carry calls there.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from ray_canal.destination.status.status_record import DestinationStatus
from ray_canal.model.message import Caller, MessageHead, Payload
from ray_canal.model.reports import SchemaHistoryReport, SnapshotReport, SubscriberReport
from ray_canal.model.snapshot_wish import SnapshotWish
from ray_canal.model.subscription import Subscription
from ray_canal.model.table_meta import TableMeta

Q = TypeVar("Q", bound="ClientRequest")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
Method = Callable[["DestinationApi", Q], Coroutine[Any, Any, R]]
"""One of DestinationApi's calls of a client."""
NO_WISHES = Subscription()


def repeatable(method: F) -> F:
    """Declare that a call whose answer is lost may be made again: it changes nothing the second
    time, or what it did the first time is taken back."""
    method.is_repeatable = True  # type: ignore[attr-defined]
    return method


def is_repeatable(method: Callable[..., Any]) -> bool:
    """Return whether the call was declared `repeatable`."""
    return getattr(method, "is_repeatable", False)


@dataclass(frozen=True, kw_only=True)
class ClientRequest:
    """A call of one client. `holder` names the connection that has made the subscription; calls of
    one that was replaced are refused. Empty: nobody in particular."""

    client_id: int
    holder: str = ""


@dataclass(frozen=True, kw_only=True)
class SubscribeRequest(ClientRequest):
    """`filter`: Canal's list of patterns. `rollback`: what is outstanding comes again."""

    filter: str
    rollback: bool = True
    wishes: Subscription = NO_WISHES


@dataclass(frozen=True, kw_only=True)
class GetRequest(ClientRequest):
    """`timeout`: None returns what is there, 0 waits for a full batch, else up to so many seconds.
    `caller`: what it has received; what it was sent and has not received comes again."""

    batch_size: int
    timeout: float | None
    caller: Caller | None = None


@dataclass(frozen=True, kw_only=True)
class PollRequest(GetRequest):
    """`done`: id and epoch of a batch that is acked first. `untracked`: the caller fetches chunks
    at once, so that their references need not be tracked."""

    done: tuple[int, int] | None = None
    untracked: bool = False


@dataclass(frozen=True, kw_only=True)
class BatchRequest(ClientRequest):
    """About a batch that was handed out under `epoch`; None: the caller cannot know (Canal's
    protocol has none), so the present one."""

    batch_id: int | None
    epoch: int | None


@dataclass(frozen=True, kw_only=True)
class AckRequest(BatchRequest):
    """`keep`: its chunks are read after the ack; the log keeps them until the client's next
    call. `mark`: a text that is kept with the cursor; empty: the one before stays."""

    batch_id: int
    keep: bool = False
    mark: str = ""


@dataclass(frozen=True, kw_only=True)
class RollbackRequest(BatchRequest):
    """`batch_id`: this one and those after it; None: all."""


class DestinationApi(Protocol):
    """The calls of one destination. Each raises CanalError kinds."""

    # --- clients --------------------------------------------------------------------------------

    @repeatable
    async def subscribe(self, request: SubscribeRequest) -> int:
        """Subscribe, or change filter and wishes. Return the epoch."""
        raise NotImplementedError

    @repeatable
    async def unsubscribe(self, request: ClientRequest) -> bool:
        """Forget a subscriber and its cursor. Return whether there was one."""
        raise NotImplementedError

    @repeatable
    async def get_without_ack(self, request: GetRequest) -> MessageHead:
        """Return the next batch; it stays outstanding until it is acked or rolled back."""
        raise NotImplementedError

    @repeatable
    async def get(self, request: GetRequest) -> MessageHead:
        """Return the next batch to a caller that acks it on arrival. Raises BatchesUnacked."""
        raise NotImplementedError

    @repeatable
    async def poll(self, request: PollRequest) -> MessageHead:
        """Ack a batch and return the next one, as soon as there is anything."""
        raise NotImplementedError

    async def ack(self, request: AckRequest) -> None:
        """Confirm a batch; durable when this returns."""
        raise NotImplementedError

    async def rollback(self, request: RollbackRequest) -> None:
        """Give back batches; they come again."""
        raise NotImplementedError

    @repeatable
    async def rollback_all(self, request: RollbackRequest) -> None:
        """Give back all batches; twice is the same as once."""
        raise NotImplementedError

    @repeatable
    async def list_batch_ids(self, request: ClientRequest) -> list[int]:
        """Return the ids of outstanding batches, smallest first."""
        raise NotImplementedError

    @repeatable
    async def filter_of(self, request: ClientRequest) -> str | None:
        """Return a subscriber's filter; None: there is no such subscriber."""
        raise NotImplementedError

    async def touch(self, request: ClientRequest) -> None:
        """Say that an ephemeral subscriber is still there."""
        raise NotImplementedError

    # --- operators ------------------------------------------------------------------------------

    async def wait_running(self, timeout: float) -> None:
        """Return when the destination stands at its source; raise what keeps it from there."""
        raise NotImplementedError

    async def status(self) -> DestinationStatus:
        """Return state, positions, lag, rates, fill, subscribers: plain values, no secrets."""
        raise NotImplementedError

    async def subscribers(self) -> list[SubscriberReport]:
        """Return each subscriber, also while the destination starts or has failed."""
        raise NotImplementedError

    @repeatable
    async def schema_history(self, table: str) -> SchemaHistoryReport:
        """Return the names of the tables whose schemas are known, and the versions of one of them
        by place (schema.table; none if empty)."""
        raise NotImplementedError

    @repeatable
    async def table_meta(self, table: str) -> TableMeta | None:
        """Return the newest version of a table (schema.table); None: its columns are not known."""
        raise NotImplementedError

    async def operate(
        self, client_id: int, action: str, argument: str | int | None = None
    ) -> SubscriberReport | None:
        """Show, pause, resume, seek, expire, copy, rename, label or remove a subscriber. Return its
        record; None: it was removed."""
        raise NotImplementedError

    async def snapshot(
        self,
        client_id: int,
        action: str,
        wishes: Sequence[SnapshotWish] = (),
        snapshot_id: str = "",
        mode: str = "",
    ) -> SnapshotReport:
        """Do `action` ("start", "status", "pause", "resume" or "cancel") with a subscriber's
        snapshot. Return how it goes. Raises ConfigError: another action, or `mode`."""
        raise NotImplementedError

    async def change_filter(self, client_id: int, filter_text: str) -> None:
        """Change a subscriber's filter from its next get on."""
        raise NotImplementedError

    async def change_instance_filter(self, changes: Mapping[str, object]) -> dict[str, object]:
        """Change keys of the destination's own filter, durably. Return all of them."""
        raise NotImplementedError

    async def check_chunks(self, references: Sequence[Payload]) -> None:
        """Look for chunks that a client could not read."""
        raise NotImplementedError

    async def stop(self, *, for_good: bool = True) -> None:
        """End the destination here. Nothing acked is lost. `for_good`: somebody has stopped it;
        else it goes on elsewhere, or here with another configuration."""
        raise NotImplementedError
