"""A batch as the bytes of a MESSAGES packet: rendered by the entry kernel, part by part."""

from __future__ import annotations

from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.canal.packet import MESSAGES_FIELD, messages_head
from ray_canal.filter import FieldFilter
from ray_canal.model.message import MessageHead
from ray_canal.views.entries import EntryBytes, guessed_bytes, render_entries


def expected_bytes(head: MessageHead, chunks: list[DecodedChunk]) -> int:
    """About what the rendered parts will take."""
    return sum(
        guessed_bytes(chunk, part.first, part.last, part.mask)
        for part, chunk in zip(head.parts, chunks, strict=True)
    )


def rendered(head: MessageHead, number: int, chunk: DecodedChunk) -> EntryBytes:
    """The entries of the head's part `number`, as they stand in the packet's body."""
    part = head.parts[number]
    return render_entries(
        chunk,
        part.first,
        part.last,
        part.mask,
        time_zone=head.time_zone,
        gtid=head.gtid,
        gtid_set=part.gtid_set,
        tag=MESSAGES_FIELD,
        fields=FieldFilter(head.fields, head.black_fields),
    )


def framed(head: MessageHead, parts: list[EntryBytes]) -> list[memoryview]:
    """The whole frame as buffers to be sent one after the other. Raises CorruptPacket: too
    long."""
    size = sum(len(part.buffer) for part in parts)
    return [memoryview(messages_head(head.id, size)), *(part.buffer.data for part in parts)]
