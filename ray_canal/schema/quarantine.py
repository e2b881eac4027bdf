"""Chunks whose events wait for a schema: packed with all that is needed to read them later."""

from __future__ import annotations

import base64
import dataclasses
import json
import zlib

import numpy as np

from ray_canal.binlog.chunk import ChunkHead, RawChunk
from ray_canal.errors import CorruptEvent


def pack(raw: RawChunk) -> bytes:
    """The chunk, its head included, compressed."""
    head = dataclasses.asdict(raw.head)
    head["post_header_bytes"] = base64.b64encode(raw.head.post_header_bytes).decode()
    return zlib.compress(json.dumps(head).encode() + b"\n" + raw.data.tobytes(), 1)


def unpack(data: bytes) -> RawChunk:
    """What `pack` packed. Raises CorruptEvent."""
    try:
        line, _, body = zlib.decompress(data).partition(b"\n")
        tree = json.loads(line)
        tree["post_header_bytes"] = base64.b64decode(tree["post_header_bytes"])
        tree["skips"] = tuple(tree.get("skips", ()))
        return RawChunk(ChunkHead(**tree), np.frombuffer(body, np.uint8))
    except (zlib.error, ValueError, KeyError, TypeError) as error:
        raise CorruptEvent(f"a chunk in quarantine cannot be read: {error}") from None
