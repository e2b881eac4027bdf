"""The transactions of decoded chunks, event by event in plain Python: what the kernels say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ray_canal.binlog.chunk import EVENT_CLOSES, ChunkInfo, DecodedChunk


@dataclass
class Known:
    """A transaction. `rows` by table, `places` of its rows: (position, row) in log order."""

    name: str
    begin: int
    end: int = 0
    rows: dict[tuple[str, str], int] = field(default_factory=dict)
    places: list[tuple[int, int]] = field(default_factory=list)


def known_transactions(
    chunks: Iterable[tuple[ChunkInfo, DecodedChunk]], gtid_texts: Any
) -> list[Known]:
    """In log order. `gtid_texts`: a chunk's GTIDs as text, "" where there is none."""
    found: list[Known] = []
    is_open = False
    for info, chunk in chunks:
        texts, journal = gtid_texts(chunk), chunk.layout.journal_name
        for event, entry in zip(chunk.events, info.entries, strict=True):
            if not is_open:
                gtid = int(event["gtid"])
                begin = int(chunk.gtids["position"][gtid]) if gtid >= 0 else int(event["position"])
                name = (texts[gtid] if gtid >= 0 else "") or f"{journal}:{begin}"
                found.append(Known(name, begin))
                is_open = True
            now = found[-1]
            now.end = int(event["position"]) + int(event["length"])
            if event["table"] >= 0 and event["rows"]:
                meta = chunk.layout.tables[int(event["table"])].meta
                table = (meta.schema, meta.table)
                now.rows[table] = now.rows.get(table, 0) + int(event["rows"])
                at, inner = int(event["position"]), int(event["inner"])
                now.places += [(at, inner + k) for k in range(int(event["rows"]))]
            if entry["flags"] & EVENT_CLOSES:
                is_open = False
    return found
