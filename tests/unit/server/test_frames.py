"""A batch as one frame: Canal's packet of the entries that the view renders."""

from __future__ import annotations

from ray_canal.canal.generated import CanalProtocol_pb2 as pb
from ray_canal.model.message import MessageHead, MessagePart
from ray_canal.server.frames import expected_bytes, framed, rendered
from ray_canal.views.entries import render_entries
from tests.served_destination import Decoded


def test_a_frame_is_a_packet_of_the_batchs_entries(shop: Decoded) -> None:
    chunks = [chunk for _, chunk in shop]
    parts = tuple(MessagePart(each, 0, each.layout.event_count, None) for each in chunks)
    head = MessageHead(4711, 1, parts)
    pieces = [rendered(head, number, chunk) for number, chunk in enumerate(chunks)]
    frame = b"".join(framed(head, pieces))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    packet = pb.Packet.FromString(frame[4:])
    assert packet.type == pb.MESSAGES
    body = pb.Messages.FromString(packet.body)
    assert body.batch_id == 4711
    entries = [render_entries(p.payload, p.first, p.last) for p in parts]  # type: ignore[arg-type]
    assert list(body.messages) == [bytes(e[i]) for e in entries for i in range(len(e))]
    assert 0.5 < expected_bytes(head, chunks) / len(frame) < 4
