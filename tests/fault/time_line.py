"""The steps of a recovery, from the logs of Ray and of our processes (`[log] format = "json"`).

Each is of one destination, or of all: Ray's control store begins, Ray gives a node up, a node
stands, the controller begins, the destination has its next node, its process begins, it reads.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

_GCS_STEPS = {
    "Ray cluster metadata": "Ray's control store begins",
    "Registering new node": "a node stands",
    "Node is dead because": "Ray gives a node up",
}
_GCS_TIME = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3}) ")
Step = tuple[float, str, str]
"""When, what, and the destination; "": of all."""


def steps(folder: Path, since: float) -> list[Step]:
    """Return what the logs below `folder` tell of the time from `since` on, in order."""
    found: list[Step] = []
    for path in folder.rglob("logs/*"):
        if path.name.startswith("gcs_server") and path.suffix in (".out", ".err"):
            found += _of_gcs(path)
        elif path.name.startswith("worker-") and path.suffix == ".err":
            found += _of_process(path)
    return sorted({step for step in found if step[0] >= since})


def _of_gcs(path: Path) -> Iterator[Step]:
    for line in path.read_text(errors="replace").splitlines():
        for words, step in _GCS_STEPS.items():
            if words in line and (found := _GCS_TIME.match(line)):
                seconds = time.mktime(time.strptime(found[1], "%Y-%m-%d %H:%M:%S"))
                yield seconds + int(found[2]) / 1000, step, ""


def _of_process(path: Path) -> Iterator[Step]:
    for line in path.read_text(errors="replace").splitlines():
        if not line.startswith('{"time"'):
            continue
        told: dict[str, Any] = json.loads(line)
        at = datetime.fromisoformat(told["time"]).timestamp()
        event, name = told.get("event"), told.get("destination", "")
        if event == "process":
            yield at, f"{told['process'].partition(':')[0]} begins", ""
        elif event == "moved":
            yield at, "has its next node", name
        elif event == "generation":
            yield at, "reads its source", name
        elif event == "state" and told["state"] == "failed":
            yield at, f"failed: {told['error']}", name
