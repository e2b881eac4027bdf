"""The lines that a peer's process prints (see the package). Standard library alone."""

from __future__ import annotations

import json
import sys
import time


def say(at: str, rows: int, **more: object) -> None:
    """One line: what happened, when, and how many rows there are so far."""
    line = {"at": at, "ns": time.monotonic_ns(), "rows": rows, **more}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def until_told() -> None:
    """Keep the dump open until standard input ends."""
    sys.stdin.read()
