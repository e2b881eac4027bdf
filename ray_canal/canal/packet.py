"""Canal's packets: frames on the wire, and the bytes of each packet that either side sends.

A frame is a 4-byte big-endian length and a `Packet` (CanalProtocol.proto). No I/O here, and no
order of packets: that is session.py's.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TypeVar

from google.protobuf.message import DecodeError as ProtobufError
from google.protobuf.message import Message

from ray_canal.canal.generated import CanalProtocol_pb2 as pb
from ray_canal.errors import CorruptPacket

Body = Message
"""Body of a packet: one of the messages of CanalProtocol.proto."""
M = TypeVar("M", bound=Message)

VERSION = 1
LENGTH_BYTES = 4
FRAME_BYTES_MAX = (1 << 31) - 1
"""Largest length that a frame's signed length field can hold."""

MESSAGES_FIELD = 0x12
"""Tag of Messages.messages: stands in front of each entry's length."""

_PLAIN = (pb.COMPRESSIONCOMPATIBLEPROTO2, pb.NONE)
_TIMEOUT_UNITS_S = (1e-9, 1e-6, 1e-3, 1.0, 60.0, 3600.0, 86400.0)
_MILLISECONDS = 2
_TYPE_MESSAGES = bytes([0x18, pb.MESSAGES])
_BODY_FIELD = 0x2A
_BATCH_ID_FIELD = 0x08


class FrameReader:
    """Cuts a stream of bytes into the contents of frames, each at most `bytes_max` long."""

    __slots__ = ("_buffer", "bytes_max")

    def __init__(self, bytes_max: int) -> None:
        self._buffer = bytearray()
        self.bytes_max = bytes_max

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The frames that are whole now. Raises CorruptPacket: a length below zero or too
        long."""
        self._buffer += data
        at = 0
        try:
            while len(self._buffer) - at >= LENGTH_BYTES:
                (size,) = struct.unpack_from(">i", self._buffer, at)
                if not 0 <= size <= self.bytes_max:
                    raise CorruptPacket(
                        f"a packet of {size} bytes is announced; at most {self.bytes_max} are "
                        "accepted (server.packet_bytes_max)"
                    )
                end = at + LENGTH_BYTES + size
                if end > len(self._buffer):
                    return
                frame = bytes(self._buffer[at + LENGTH_BYTES : end])
                at = end
                yield frame
        finally:
            del self._buffer[:at]


def parsed_packet(frame: bytes) -> pb.Packet:
    """The `Packet` in a frame. Raises CorruptPacket: not one, or compressed."""
    packet = parsed(pb.Packet, frame)
    if packet.compression not in _PLAIN:
        raise CorruptPacket("compression is not supported in this protocol's servers and clients")
    return packet


def parsed(kind: type[M], data: bytes) -> M:
    """A message of the protocol from its bytes. Raises CorruptPacket."""
    try:
        return kind.FromString(data)
    except (ProtobufError, UnicodeDecodeError) as error:
        raise CorruptPacket(f"{kind.DESCRIPTOR.name}: {error}") from None


def framed(
    kind: pb.PacketType, body: Message | None = None, *, version: int | None = None
) -> bytes:
    """A packet with its length in front of it. Canal's server states the version, its clients do
    not."""
    packet = pb.Packet(type=kind)
    if version is not None:
        packet.version = version
    if body is not None:
        packet.body = body.SerializeToString()
    data: bytes = packet.SerializeToString()
    return struct.pack(">i", len(data)) + data


# --- what a server sends -----------------------------------------------------------------------


def handshake(seed: bytes) -> bytes:
    """Return the packet that a server sends first: `seed` is for the password's scramble."""
    return framed(pb.HANDSHAKE, pb.Handshake(seeds=seed), version=VERSION)


def acknowledged() -> bytes:
    """The answer to what went well: an ACK with nothing in it."""
    return framed(pb.ACK, version=VERSION)


def refused(code: int, message: str) -> bytes:
    """An ACK with an error."""
    return framed(pb.ACK, pb.Ack(error_code=code, error_message=message), version=VERSION)


def no_messages() -> bytes:
    """The answer to a get that found nothing: batch id -1, and a version (unlike any other
    MESSAGES)."""
    return framed(pb.MESSAGES, pb.Messages(batch_id=-1), version=VERSION)


def messages_head(batch_id: int, entries_bytes: int) -> bytes:
    """Return what stands before the rendered entries of a batch: length, type, body's head, batch
    id.

    Canal sends nothing but the packet's fields 3 and 5 here. `entries_bytes` counts each entry with
    its tag (MESSAGES_FIELD) and length. Raises CorruptPacket: more than a frame can hold.
    """
    batch = bytes([_BATCH_ID_FIELD]) + varint(batch_id)
    body_bytes = len(batch) + entries_bytes
    head = _TYPE_MESSAGES + bytes([_BODY_FIELD]) + varint(body_bytes) + batch
    size = len(head) + entries_bytes
    if size > FRAME_BYTES_MAX:
        raise CorruptPacket(
            f"the batch is {size} bytes of entries, more than a packet of Canal's can hold "
            f"({FRAME_BYTES_MAX}); get smaller batches, or this transaction by the Ray client"
        )
    return struct.pack(">i", size) + head


def varint(value: int) -> bytes:
    """Protobuf's varint of a number that is not negative."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def timeout_s(timeout: int, unit: int) -> float | None:
    """A get's timeout in our meaning: None returns at once, 0 waits for a full batch, else
    seconds.

    -1 is Canal's "at once"; every other number that is not positive waits. An unknown unit is
    milliseconds.
    """
    if timeout == -1:
        return None
    if timeout <= 0:
        return 0
    known = 0 <= unit < len(_TIMEOUT_UNITS_S)
    return timeout * _TIMEOUT_UNITS_S[unit if known else _MILLISECONDS]
