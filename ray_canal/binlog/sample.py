"""A binlog chunk of three events, made here: what kernels are warmed with."""

from __future__ import annotations

import struct

import numpy as np

from ray_canal.binlog import types
from ray_canal.binlog.assemble import assemble, walk
from ray_canal.binlog.chunk import ChunkHead, ChunkInfo, DecodedChunk, RawChunk
from ray_canal.binlog.decode import decode
from ray_canal.protocol.table_meta import ColumnMeta, TableMeta

_TABLE_ID = struct.pack("<IH", 1, 0) + b"\x01\x00"
_TABLE_MAP = (
    _TABLE_ID + b"\x01s\x00\x01t\x00" + bytes((2, types.LONG, types.JSON)) + b"\x01\x04" + b"\x02"
)
_WRITE_ROWS = (
    _TABLE_ID + b"\x02\x00" + b"\x02\x03"  # no extra data; two columns, both present
    + b"\x00" + struct.pack("<I", 7) + struct.pack("<I", 2) + b"\x04\x00"  # 7, the JSON null
)  # fmt: skip
_XID = struct.pack("<Q", 9)
_META = TableMeta(
    "s", "t", (ColumnMeta("id", types.LONG, "int"), ColumnMeta("j", types.JSON, "json"))
)


def _event(type_code: int, body: bytes) -> bytes:
    length = types.HEADER_BYTES + len(body)
    return struct.pack("<IBIIIH", 0, type_code, 1, length, 0, 0) + body


def sample_chunk() -> RawChunk:
    """TABLE_MAP, WRITE_ROWS of one row (7, JSON null), XID; no checksums."""
    data = _event(19, _TABLE_MAP) + _event(30, _WRITE_ROWS) + _event(16, _XID)
    head = ChunkHead(0, "sample.000001", 4, 4 + len(data), in_transaction=True, has_checksum=False)
    return RawChunk(head, np.frombuffer(data, np.uint8))


def decode_sample() -> tuple[ChunkInfo, DecodedChunk]:
    """The sample through the whole door."""
    raw = sample_chunk()
    return decode(raw, assemble(raw, walk(raw), lambda _: _META, lambda _: ()))
