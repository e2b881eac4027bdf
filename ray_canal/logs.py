"""Logs of our processes: lines of text or JSON, with the ids of pages and metrics.

Ids (`destination`, `epoch`, `client_id`) are of the task or thread that writes: everything that a
destination's tasks log names the destination. An event of life has a name besides its text.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Literal

LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

_ROOT = "ray_canal"
_HANDLER = "ray_canal: standard error"
_of_process: dict[str, Any] = {}
_ids: ContextVar[Mapping[str, Any]] = ContextVar("ids of log lines", default={})  # noqa: B039


def with_ids(**ids: Any) -> None:
    """Let lines of this task, and of those that it begins, have these ids, too."""
    _ids.set({**_ids.get(), **ids})


def with_process_ids(**ids: Any) -> None:
    """Let lines of all threads of this process have these ids: it works for one thing alone."""
    _of_process.clear()
    _of_process.update(ids)


def ids_here() -> dict[str, Any]:
    """Return the ids that a line has that is written here."""
    return {**_of_process, **_ids.get()}


def tell(
    logger: logging.Logger,
    event: str,
    text: str,
    *values: Any,
    level: int = logging.INFO,
    **ids: Any,
) -> None:
    """Log an event of life: its name, its text, and ids next to the task's own."""
    shown = [one_line(each) if isinstance(each, str) else each for each in values]
    logger.log(level, text, *shown, extra={"event": {"event": event, **ids}})


def one_line(text: str) -> str:
    """Return a text in which line ends and other control characters are escaped: whoever gives it
    writes no line of their own into a log."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


class JsonFormatter(logging.Formatter):
    """One JSON object a record: time, level, logger, message, ids, and the event's name."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, Any] = {
            "time": iso_time(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **ids_here(),
            **getattr(record, "event", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class TextLines(logging.Formatter):
    """Text, with the ids behind it."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, or lines."""
        ids = {**ids_here(), **getattr(record, "event", {})}
        ids.pop("event", None)
        told = ", ".join(
            f"{key}={one_line(str(value))}" for key, value in ids.items() if value is not None
        )
        return super().format(record) + (f" [{told}]" if told else "")


def write_to_stderr(log_format: LogFormat, level: LogLevel = "info") -> None:
    """Write this process's log to its standard error (on Ray: `ray logs`)."""
    logger = logging.getLogger(_ROOT)
    for each in [each for each in logger.handlers if each.name == _HANDLER]:
        logger.removeHandler(each)
    handler = logging.StreamHandler()
    handler.name = _HANDLER
    if log_format == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(TextLines("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    logger.propagate = False


def iso_time(seconds: float) -> str:
    """Return a moment since the epoch as 2026-11-24T03:04:05.678Z."""
    millis = int(seconds * 1000) % 1000
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{millis:03d}Z"
