"""Subscribers of destinations that do not run: who they are, and how one is removed.

And what a subscriber looks like to people, whether its destination runs or not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ray_canal.config import CanalConfig
from ray_canal.errors import ConfigError
from ray_canal.meta.manager import MetaManager, SubscriberMeta
from ray_canal.meta.open import open_backend
from ray_canal.model.reports import PlaceReport, SubscriberReport
from ray_canal.model.subscription import TCP_HOLDER, refuse_client_id


def subscriber_report(subscriber: SubscriberMeta, place: PlaceReport) -> SubscriberReport:
    """Return a subscriber as plain values. `place`: what its log says of it, nothing without one.

    `held_by`: "ray" or "tcp", by what it subscribed last; None: nobody knows. `called_at`: when
    its last subscription or ack was written, in seconds since the epoch; None: not known."""
    cursor, holder = subscriber.cursor, subscriber.holder
    kind = "tcp" if holder.startswith(TCP_HOLDER) else "ray"
    return {
        "client_id": subscriber.client_id,
        "label": subscriber.label,
        "ephemeral": subscriber.ephemeral,
        "filter": subscriber.filter,
        "cursor": None if cursor is None else str(cursor.position),
        "cursor_gtid": "" if cursor is None else cursor.position.gtid,
        "cursor_time": (cursor.position.timestamp or None) if cursor is not None else None,
        "server": "" if cursor is None else cursor.identity.server_uuid or cursor.identity.address,
        "held_by": kind if holder else None,
        "called_at": subscriber.called or None,
        "last_call_s": place.get("last_call_s"),
        "expired_at": subscriber.expired or None,
        "paused_at": subscriber.paused or None,
        "policy": place.get("policy", subscriber.policy or None),
        "transactions": place.get("transactions", subscriber.transactions),
        "entries_behind": place.get("entries_behind"),
        "bytes_behind": place.get("bytes_behind"),
        "seconds_behind": place.get("seconds_behind"),
        "unacked_batches": place.get("unacked_batches"),
        "detached": bool(place.get("detached")),
        "failure": place.get("failure"),
        "mark": subscriber.mark or None,
    }


@contextlib.contextmanager
def open_manager(config: CanalConfig, destination: str) -> Iterator[MetaManager]:
    """Open what a destination that does not run keeps durably. Raises ConfigError."""
    config.destination(destination)
    if config.meta.backend == "memory":
        raise ConfigError('meta.backend = "memory" keeps nothing while the destination is down')
    manager = MetaManager(open_backend(config.meta))
    try:
        yield manager
    finally:
        manager.close()


def kept_subscribers(config: CanalConfig, destination: str) -> list[SubscriberReport]:
    """Return the subscribers of a destination from where the configuration keeps cursors. Raises
    ConfigError: no such destination, a record is damaged; MetaUnavailable."""
    with open_manager(config, destination) as manager:
        known = manager.load(destination)
    return [subscriber_report(known[client_id], {}) for client_id in sorted(known)]


def forget_subscriber(config: CanalConfig, destination: str, client_id: int) -> bool:
    """Remove a subscriber and its cursor from where the configuration keeps cursors; return whether
    there was one.

    For a destination that does not run. One that does is not fenced by this: it would go on, and
    write the cursor again with the next ack. Raises as kept_subscribers, Fenced.
    """
    refuse_client_id(client_id)
    with open_manager(config, destination) as manager:
        if client_id not in manager.client_ids(destination):
            return False
        manager.remove(destination, manager.epoch(destination), client_id)
        return True
