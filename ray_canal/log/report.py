"""Report the state of a log and its subscribers for status, as plain values."""

from __future__ import annotations

from collections.abc import Iterable

from ray_canal.config import StoreConfig
from ray_canal.log.ring import Ring
from ray_canal.log.subscriber import Subscriber
from ray_canal.model.reports import LogReport, PlaceReport


def log_report(config: StoreConfig, ring: Ring, subscribers: Iterable[Subscriber]) -> LogReport:
    """Return the fill of the ring and each subscriber's place."""
    last = ring.position_before(ring.put_sequence)
    return {
        "chunks": len(ring),
        "entries": ring.put_sequence - ring.first_sequence,
        "bytes": ring.size_bytes,
        "bytes_on_disk": ring.disk_bytes,
        "index_bytes": ring.index_bytes,
        "capacity": ring.capacity,
        "batch_mode": config.batch_mode,
        "fill": ring.used / ring.capacity,
        "first_position": str(ring.first_position),
        "last_position": str(last),
        "gtid_set": last.gtid,
        "subscribers": {str(s.client_id): _place(ring, s) for s in subscribers},
    }


def _place(ring: Ring, subscriber: Subscriber) -> PlaceReport:
    behind = ring.since(subscriber.acked)
    return {
        "filter": str(subscriber.terms.filter),
        "policy": subscriber.terms.policy,
        "transactions": subscriber.terms.transactions,
        "acked": str(ring.position_before(subscriber.acked)),
        "unacked_batches": len(subscriber.marks),
        "entries_behind": ring.put_sequence - subscriber.acked,
        "bytes_behind": sum(slot.size_bytes for slot in behind),
        "waiting_since": ring.time_of(subscriber.acked),
        "failure": None,
    }
