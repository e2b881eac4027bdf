"""What the store actor answers with: heads of messages, failures without Ray's wrapping, lag."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from ray_canal.actors.lending import lent
from ray_canal.actors.spiller import OnDisk
from ray_canal.config import InstanceConfig
from ray_canal.errors import (
    CanalError,
    InstanceNotRunning,
    InstanceRestarted,
    NotSubscribed,
    SubscriberReplaced,
)
from ray_canal.log.batch import Batch, Part
from ray_canal.model.message import MessageHead, MessagePart
from ray_canal.model.subscription import is_ephemeral_id


def head_of(
    batch: Batch,
    epoch: int,
    timeline: int,
    config: InstanceConfig,
    spiller: Any,
    lends: bool = False,
) -> MessageHead:
    """What a client gets of a batch: references and slices, and how to read them. `spiller` has
    what is on disk. `lends`: the references may be lent; not beside what is on disk, which is
    fetched one by one."""
    lends = lends and not batch.on_disk
    return MessageHead(
        batch.id,
        epoch,
        tuple(
            MessagePart(
                _payload(part, spiller, lends),
                part.first,
                part.last,
                part.mask,
                part.gtid_set,
                part.on_disk,
                part.open,
                part.tables,
            )
            for part in batch.parts
        ),
        batch.entry_count,
        batch.row_count,
        batch.range.start,
        batch.range.end,
        ack=batch.range.ack,
        time_zone=config.time_zone,
        gtid=config.source.gtid,
        fields=config.filter.fields,
        black_fields=config.filter.black_fields,
        irregular_dates=config.irregular_dates,
        timeline=timeline,
        lent=lends,
    )


def _payload(part: Part, spiller: Any, lends: bool) -> Any:
    if part.on_disk:
        return OnDisk(spiller, part.payload)
    if lends and isinstance(part.payload, ray.ObjectRef):
        return lent(part.payload)
    return part.payload  # a reference, or a small chunk itself


def plain(error: Exception) -> Exception:
    """What happened, without Ray's wrapping; a lost actor, worker or object becomes a retryable
    InstanceNotRunning."""
    inner: BaseException = error
    # A task whose input failed wraps that failure, and so on down the stages.
    while isinstance(inner, RayTaskError) and isinstance(inner.cause, Exception):
        inner = inner.cause
    if isinstance(inner, CanalError):
        return inner
    if isinstance(inner, RayError) and not isinstance(inner, RayTaskError):
        return InstanceNotRunning(f"a stage of the pipeline died: {type(inner).__name__}")
    return error


def about_subscribers(
    error: CanalError, destination: str, client_ids: Sequence[int]
) -> CanalError:
    """The same error, with whose cursor it is about and how that is removed."""
    told = copy.copy(error)
    whose = ", ".join(map(str, sorted(client_ids)))
    told.args = (
        f"subscriber {whose}: {error.args[0] if error.args else ''}. "
        f"`ray-canal unsubscribe {destination} CLIENT_ID` removes one",
    )
    return told


def described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def not_subscribed(client_id: int) -> NotSubscribed:
    ended = " (an ephemeral subscription ends when its client is closed or silent)"
    why = ended if is_ephemeral_id(client_id) else ""
    return NotSubscribed(f"clientId:{client_id} should subscribe first{why}")


def void(batch_id: int) -> InstanceRestarted:
    return InstanceRestarted(
        f"batch {batch_id} was handed out before the instance restarted; "
        "it is void and will be delivered again"
    )


def replaced(client_id: int) -> SubscriberReplaced:
    return SubscriberReplaced(
        f"another connection has subscribed as client {client_id} since; only the last one gets "
        "batches: take another client_id, or subscribe again to take over"
    )
