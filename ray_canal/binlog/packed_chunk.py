"""Chunks, or single events, that are read later: packed with all that is needed for that."""

from __future__ import annotations

import base64
import dataclasses
import json
import zlib
from dataclasses import replace

import numpy as np

from ray_canal.binlog.chunk import ChunkHead, RawChunk
from ray_canal.errors import CorruptEvent
from ray_canal.kernels.base import event_types
from ray_canal.model.arrays import Bytes


def single_event(raw: RawChunk, at: int, position: int) -> RawChunk:
    """Return a chunk of the one event at offset `at` of the data and `position` of the file, with
    copies of those that it depends on: its transaction's GTID and TABLE_MAP events. Where events
    were compressed together, it is the whole chunk."""
    data, carried = raw.data, list[Bytes]()
    here = 0
    while here < at:
        size = int.from_bytes(data[here + 9 : here + 13].tobytes(), "little")
        kind = int(data[here + 4])
        if kind == event_types.TRANSACTION_PAYLOAD or size < event_types.HEADER_BYTES:
            return raw
        if kind in event_types.GTIDS:
            carried.clear()
        if kind in event_types.GTIDS or kind == event_types.TABLE_MAP:
            carried.append(data[here : here + size])
        here += size
    size = int.from_bytes(data[at + 9 : at + 13].tobytes(), "little")
    head = replace(
        raw.head,
        position=position,
        end_position=position + size,
        carried_bytes=sum(part.size for part in carried),
        in_transaction=True,
        events=0,
        gtids=0,
    )
    return RawChunk(head, np.concatenate([*carried, data[at : at + size]]))


def pack(raw: RawChunk) -> bytes:
    """The chunk, its head included, compressed."""
    head = dataclasses.asdict(raw.head)
    head["post_header_bytes"] = base64.b64encode(raw.head.post_header_bytes).decode()
    return zlib.compress(json.dumps(head).encode() + b"\n" + raw.data.tobytes(), 1)


def unpack(data: bytes) -> RawChunk:
    """Return what `pack` packed. Raises CorruptEvent."""
    try:
        line, _, body = zlib.decompress(data).partition(b"\n")
        tree = json.loads(line)
        tree["post_header_bytes"] = base64.b64decode(tree["post_header_bytes"])
        tree["skips"] = tuple(tree.get("skips", ()))
        return RawChunk(ChunkHead(**tree), np.frombuffer(body, np.uint8))
    except (zlib.error, ValueError, KeyError, TypeError) as error:
        raise CorruptEvent(f"a chunk in quarantine cannot be read: {error}") from None
