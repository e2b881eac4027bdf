"""The audit log of the console: who changed what."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any

from ray_canal.logs import iso_time, tell

_NAME_CHARS_MAX = 256

audit_logger = logging.getLogger("ray_canal.console.audit")


class Audit:
    """Tells who changed what: to the log, and to a file of JSON lines if there is one."""

    def __init__(self, path: str = "") -> None:
        self._path = Path(path) if path else None

    def tell(self, user: str, action: str, destination: str = "", **more: Any) -> None:
        """Write one line; it is in the file when this returns. Whoever fails to log in gives any
        name, so it is cut."""
        user = user[:_NAME_CHARS_MAX]
        event = {"user": user, "action": action, "destination": destination, **more}
        text = "%s: %s %s %s"
        tell(audit_logger, "audit", text, user, action, destination, more or "", **event)
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"time": iso_time(time.time()), **event}) + "\n")
