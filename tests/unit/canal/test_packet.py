"""Frames and packets: the bytes of the transcripts, and bytes that are nothing."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_canal.canal import packet as packets
from ray_canal.canal.generated import CanalProtocol_pb2 as pb
from ray_canal.canal.packet import FrameReader
from ray_canal.errors import CorruptPacket


def test_what_a_server_sends_is_canals_bytes() -> None:
    seed = bytes.fromhex("bf77838ddd0c5610")
    assert packets.handshake(seed).hex() == "00000010100118012a0a1208bf77838ddd0c5610"
    assert packets.acknowledged().hex() == "0000000410011803"
    assert packets.no_messages().hex() == "00000011100118072a0b08ffffffffffffffffff01"
    # The head of the Java transcript's first batch: 0x17f bytes, of them 376 of entries.
    assert packets.messages_head(3, 376).hex() == "0000017f18072afa020803"
    answer = packets.parsed_packet(packets.refused(401, "why")[4:])
    assert (answer.type, answer.version) == (pb.ACK, 1)
    assert packets.parsed(pb.Ack, answer.body) == pb.Ack(error_code=401, error_message="why")


def test_a_batch_that_no_frame_can_hold_is_refused() -> None:
    packets.messages_head(1, packets.FRAME_BYTES_MAX - 40)
    with pytest.raises(CorruptPacket, match="smaller batches"):
        packets.messages_head(1, packets.FRAME_BYTES_MAX - 4)


@given(st.lists(st.binary(max_size=40), max_size=8), st.data())
def test_any_cut_of_the_stream_gives_the_same_frames(
    frames: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
    reader, found, at = FrameReader(40), [], 0
    while at < len(stream):
        size = data.draw(st.integers(1, 30))
        found += list(reader.feed(stream[at : at + size]))
        at += size
    assert found == frames
    after = b"after"
    assert list(reader.feed(struct.pack(">i", len(after)) + after)) == [after]


@pytest.mark.parametrize("size", [-1, -(1 << 31), 41, (1 << 31) - 1])
def test_a_length_out_of_range_is_refused_behind_the_good_frames(size: int) -> None:
    reader = FrameReader(40)
    frames = reader.feed(struct.pack(">i", 2) + b"ok" + struct.pack(">i", size))
    assert next(frames) == b"ok"
    with pytest.raises(CorruptPacket, match="packet_bytes_max"):
        next(frames)


@given(st.binary(max_size=60))
def test_bytes_that_are_no_packet_never_crash(data: bytes) -> None:
    for parse in (packets.parsed_packet, lambda raw: packets.parsed(pb.Get, raw)):
        with contextlib.suppress(CorruptPacket):
            parse(data)


def test_compression_is_refused() -> None:
    data = pb.Packet(type=pb.GET, compression=pb.GZIP).SerializeToString()
    with pytest.raises(CorruptPacket, match="compression"):
        packets.parsed_packet(data)


@pytest.mark.parametrize(
    ("timeout", "unit", "seconds"),
    [
        (-1, -1, None), (-1, 2, None), (0, 2, 0), (-7, 2, 0), (100, 2, 0.1), (3, 3, 3),
        (5, 0, 5e-9), (2, 4, 120), (1, 5, 3600), (1, 6, 86400), (100, -1, 0.1), (100, 7, 0.1),
    ],
)  # fmt: skip
def test_timeouts_have_canals_units(timeout: int, unit: int, seconds: float | None) -> None:
    assert packets.timeout_s(timeout, unit) == pytest.approx(seconds)
