"""Entries that a target could not take, as JSON lines: where, why, and every row."""

from __future__ import annotations

import datetime as dt
import json
import os
from pathlib import Path
from typing import Any

from ray_canal.sinks.port import Changes


class DeadLetters:
    """A file that is appended to; a line is on disk before the sink goes on behind its entry. After
    a crash between the two, a line may be there twice."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, sink: str, changes: Changes, reason: str) -> None:
        """Write one entry. Raises OSError."""
        lines = []
        for batch in changes.batches:
            notes = batch.schema.metadata or {}
            lines.append(
                {
                    "sink": sink,
                    "time": dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds"),
                    "place": str(changes.cursor),
                    "schema": notes.get(b"canal.schema", b"").decode(),
                    "table": notes.get(b"canal.table", b"").decode(),
                    "error": reason,
                    "rows": batch.to_pylist(),
                }
            )
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with open(self._path, "a", encoding="utf-8") as file:
            file.writelines(json.dumps(line, default=shown) + "\n" for line in lines)
            file.flush()
            os.fsync(file.fileno())


def shown(value: Any) -> Any:
    """Return a value that JSON has no form for as text; bytes as hexadecimal digits."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dt.datetime | dt.date):
        return value.isoformat()
    return str(value)
