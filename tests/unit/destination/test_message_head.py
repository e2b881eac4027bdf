"""What a get is answered with: the batch as it is, payloads as the client may have them."""

from __future__ import annotations

from ray_canal.destination.message_head import head_of
from tests.local_destination import instance
from tests.unit.log.filled import filled, transactions


def test_a_head_says_how_its_batch_is_read_and_acked() -> None:
    batch = filled(transactions(4), cuts=(3, 6), batch_mode="ITEMSIZE").get(1, 8)
    assert batch is not None
    config = instance(time_zone="Asia/Tokyo", filter={"black_fields": "shop.item:secret"})
    head = head_of(batch, 7, 9, config, lambda part: ("lent", part.payload), untracked=True)
    assert [part.payload for part in head.parts] == [("lent", 0), ("lent", 1), ("lent", 2)]
    assert [(part.first, part.last) for part in head.parts] == [(0, 3), (0, 3), (0, 2)]
    assert (head.id, head.epoch, head.timeline, head.lent) == (batch.id, 7, 9, True)
    assert (head.entry_count, head.row_count) == (8, 3)
    assert (head.start, head.end, head.ack) == (
        batch.range.start,
        batch.range.end,
        batch.range.ack,
    )
    assert (head.time_zone, head.black_fields) == ("Asia/Tokyo", "shop.item:secret")
    assert not head.finished
