"""Logs of the console: who changed what, and each event of its life, as text or JSON lines."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any

audit_logger = logging.getLogger("ray_canal.console.audit")


class JsonLines(logging.Formatter):
    """One JSON object a record: time, level, logger, message, and what `extra={"event": …}` has."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, Any] = {
            "time": _iso(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "event", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def log_to_stderr(log_format: str) -> None:
    """Write this process's log to its standard error, as text or JSON lines."""
    handler = logging.StreamHandler()
    if log_format == "json":
        handler.setFormatter(JsonLines())
    logging.getLogger("ray_canal").addHandler(handler)
    logging.getLogger("ray_canal").setLevel(logging.INFO)


class Audit:
    """Tells who changed what: to the log, and to a file of JSON lines if there is one."""

    def __init__(self, path: str = "") -> None:
        self._path = Path(path) if path else None

    def tell(self, user: str, action: str, destination: str = "", **more: Any) -> None:
        """Write one line; it is in the file when this returns."""
        event = {"user": user, "action": action, "destination": destination, **more}
        audit_logger.info(
            "%s: %s %s %s", user, action, destination, more or "", extra={"event": event}
        )
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"time": _iso(time.time()), **event}) + "\n")


def _iso(seconds: float) -> str:
    millis = int(seconds * 1000) % 1000
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{millis:03d}Z"
