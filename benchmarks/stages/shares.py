"""What each stage took of each row's time, from the stamps of chunks, messages and rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from benchmarks.stages.stamps import OF_CHUNKS, OF_MESSAGES
from ray_canal.model.arrays import Bools, Int64s

Stamps = Mapping[str, tuple[Int64s, Int64s]]

STAGES = {
    "reader free": "the reader is at the chunk before",
    "asked": "no subscriber asks: the client is at its message before",
    "fetched": "read from the socket, cut",
    "parsed": "parsed",
    "decoded": "decoded",
    "in the loop": "into the event loop",
    "buffered": "in the transaction buffer",
    "in the log": "into the log",
    "asked late": "there until a subscriber asks: the client is at its message before",
    "handed out": "handed out",
    "at the client": "to the client",
    "in hand": "Arrow in hand",
}
"""Moments in the order in which a row passes them, and what it waits for until then."""


@dataclass(frozen=True)
class Rows:
    """Rows as the client got them, in any order: ids, their events' offsets, their messages' ids,
    and when each message and its Arrow batch were there (ns)."""

    ids: Int64s
    positions: Int64s
    messages: Int64s
    came_ns: Int64s
    in_hand_ns: Int64s

    def where(self, chosen: Bools) -> Rows:
        """Return some of them."""
        return Rows(*(getattr(self, each.name)[chosen] for each in fields(self)))


def moments(rows: Rows, committed_ns: Int64s, stamps: Stamps) -> dict[str, Int64s]:
    """Return by stage when each row passed it (ns), none before the stage that it follows. Raises
    ValueError: stamps of some rows are missing."""
    found = {"at the client": rows.came_ns, "in hand": rows.in_hand_ns}
    for stage in OF_CHUNKS:
        keys, ns = stamps[stage]
        found[stage] = ns[np.searchsorted(keys, rows.positions, side="right") - 1]
    for stage in OF_MESSAGES:
        keys, ns = stamps[stage]
        at = np.minimum(np.searchsorted(keys, rows.messages), len(keys) - 1)
        if not np.array_equal(keys[at], rows.messages):
            raise ValueError(f"no stamp {stage!r} of some messages")
        found[stage] = ns[at]
    found["asked late"] = found["asked"]
    for early in ("reader free", "asked"):
        found[early] = np.minimum(found[early], found["fetched"])
    passed, last = {}, committed_ns
    for stage in STAGES:
        passed[stage] = last = np.maximum(found[stage], last)
    return passed


def shares(committed_ns: Int64s, passed: Mapping[str, Int64s]) -> dict[str, dict[str, Any]]:
    """Return the milliseconds of each stage, and of all: median, p99, mean, and the mean's part of
    the whole in percent."""
    spent, last = {}, committed_ns
    for stage, what in STAGES.items():
        spent[what] = (passed[stage] - last) / 1e6
        last = passed[stage]
    total = (last - committed_ns) / 1e6
    return {
        what: {
            "p50_ms": round(float(np.percentile(ms, 50)), 3),
            "p99_ms": round(float(np.percentile(ms, 99)), 3),
            "mean_ms": round(float(ms.mean()), 3),
            "percent": round(100 * float(ms.mean() / total.mean()), 1),
        }
        for what, ms in {**spent, "all": total}.items()
    }
