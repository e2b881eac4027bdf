"""Whose a chunk of rows is that were read from a table, in a log."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SnapshotTag:
    """Whose a chunk is, and what is done once it is acked. `attempt_name`: of the
    subscriber's snapshot attempt; nobody else sees the chunk. `rows` of the table `table` of the
    snapshot, with a key up to `upto` (None: the range goes on in the next chunk). `ended`: the
    snapshot's state from here on, at `place`."""

    attempt_name: str
    table: int = -1
    rows: int = 0
    size_bytes: int = 0
    upto: tuple[str, ...] | None = None
    ended: str = ""
    place: str = ""
