"""Real binlogs and the entries that Canal itself made of them: `data/SERVER/NAME.binlog`, `.pb`,
`.schema.sql`, and `cases.tsv`, which says what belongs together. A `.pb` is a sequence of varint
length and `Entry`."""

from __future__ import annotations

import os
from pathlib import Path

GOLDEN = Path(os.environ.get("RAY_CANAL_GOLDEN", Path(__file__).parent / "data"))
GTIDLOG = 5


def split_delimited(data: bytes) -> list[bytes]:
    """The messages of a sequence of varint length and message."""
    messages, offset = [], 0
    while offset < len(data):
        length = shift = 0
        while True:
            byte = data[offset]
            offset += 1
            length |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        messages.append(data[offset : offset + length])
        offset += length
    return messages
