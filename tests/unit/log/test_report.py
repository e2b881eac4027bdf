"""What status tells of a log and its subscribers."""

from __future__ import annotations

from tests.unit.log.filled import filled, transactions


def test_stats_tell_places_and_lag() -> None:
    log = transactions(2)
    store = filled(log, cuts=(3,), batch_mode="ITEMSIZE")
    batch = store.get(1, 3)
    assert batch is not None
    store.ack(1, batch.id)
    store.get(1, 1)
    assert store.stats()["last_position"] == str(log.cursor_after(6))
    place = store.stats()["subscribers"]["1"]
    assert place == {
        "filter": "",
        "policy": "block",
        "transactions": False,
        "acked": str(log.cursor_after(3)),
        "unacked_batches": 1,
        "entries_behind": 3,
        "bytes_behind": 271,
        "waiting_since": 1_700_000_000,
        "failure": None,
    }
