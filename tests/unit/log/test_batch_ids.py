"""Batch ids of clients that come and go, by the thousand."""

from __future__ import annotations

from ray_canal.log.batch_ids import LastBatchIds


def test_ids_rise_and_memory_does_not() -> None:
    """B9: a client id that was used once leaves nothing behind for ever."""
    ids = LastBatchIds(100)
    given: dict[int, int] = {}
    for number in range(5_000):
        client = number * 7 % 3_000
        last = ids.get(client)
        assert last >= given.get(client, 100)
        given[client] = last + 1 + number % 3
        ids.put(client, given[client])
        assert len(ids) <= 1024
    assert all(ids.get(client) >= last for client, last in given.items())
