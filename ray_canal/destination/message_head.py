"""The answer to a get: a batch of the log as references and slices, and how to read them."""

from __future__ import annotations

from collections.abc import Callable

from ray_canal.config import InstanceConfig
from ray_canal.log.batch import Batch, BatchPart
from ray_canal.model.message import MessageHead, MessagePart, Payload


def head_of(
    batch: Batch,
    epoch: int,
    timeline: int,
    config: InstanceConfig,
    payload_of: Callable[[BatchPart], Payload],
    *,
    untracked: bool,
) -> MessageHead:
    """Return what a client gets of the batch. `untracked`: whether its payloads are only valid
    while the log keeps the chunks."""
    return MessageHead(
        batch.id,
        epoch,
        tuple(
            MessagePart(
                payload_of(part),
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
        lent=untracked,
    )
