"""Errors that a destination tells its subscribers, and how errors are shown in its status."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from ray_canal.errors import (
    CanalError,
    InstanceNotRunning,
    InstanceRestarted,
    NotSubscribed,
    SubscriberReplaced,
)
from ray_canal.model.subscription import is_ephemeral_id


def about_subscribers(
    error: CanalError, destination: str, client_ids: Sequence[int]
) -> CanalError:
    """Return the same error, with whose cursor it is about and how that is removed."""
    told = copy.copy(error)
    whose = ", ".join(map(str, sorted(client_ids)))
    told.args = (
        f"subscriber {whose}: {error.args[0] if error.args else ''}. "
        f"`ray-canal subscriber {destination} CLIENT_ID seek earliest` moves one, "
        f"`ray-canal unsubscribe {destination} CLIENT_ID` removes it",
    )
    return told


def raised_again(error: Exception) -> Exception:
    """Return an error that is kept, for one raise more: without the frames of those before, which
    it would keep, too."""
    return error.with_traceback(None)


def error_text(error: Exception) -> str:
    """Return the text for an error in `status`."""
    return f"{type(error).__name__}: {error}"


def not_subscribed_error(client_id: int) -> NotSubscribed:
    """Return the error for a client id without a subscription."""
    ended = " (an ephemeral subscription ends when its client is closed or silent)"
    why = ended if is_ephemeral_id(client_id) else ""
    return NotSubscribed(f"clientId:{client_id} should subscribe first{why}")


def unknown_subscriber_error(client_id: int, destination: str) -> NotSubscribed:
    """Return the error for somebody else than its client, who names one that is not there."""
    ended = " (an ephemeral one ends when its client is closed or silent)"
    why = ended if is_ephemeral_id(client_id) else ""
    return NotSubscribed(
        f"there is no subscriber {client_id}{why}; `ray-canal subscribers {destination}` names all"
    )


def stale_batch_error(batch_id: int) -> InstanceRestarted:
    """Return the error for a batch of an earlier generation."""
    return InstanceRestarted(
        f"batch {batch_id} was handed out before the destination restarted; "
        "it is void and will be delivered again"
    )


def subscriber_replaced_error(client_id: int) -> SubscriberReplaced:
    """Return the error for a connection whose client id another one has taken over."""
    return SubscriberReplaced(
        f"another connection has subscribed as client {client_id} since; only the last one gets "
        "batches: take another client_id, or subscribe again to take over"
    )


def chunks_lost_error() -> InstanceNotRunning:
    """Return the reason why a log ends whose chunks were lost."""
    return InstanceNotRunning(
        "chunks of the log were lost with the node that had them; they are read from the server "
        "again"
    )
