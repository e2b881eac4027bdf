"""The live tail: rows as they come, over an ephemeral subscription that affects no other.

A page is sent what it takes: a batch is fetched when the one before has been sent, and of a batch
at most a screenful of rows; the rest is counted. So a slow page, or a fast source, costs no memory.
"""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

import anyio
import anyio.to_thread
import pyarrow as pa

from ray_canal.client.connector import Connector
from ray_canal.client.message import Message
from ray_canal.console.context import ConsoleContext
from ray_canal.errors import AccessDenied, CanalError, ConsumerError
from ray_canal.model.table_event import STATEMENT
from ray_canal.render import changes
from ray_canal.views.predicate import names

ROWS_MAX = 200
"""Rows of a batch that are shown; those beyond are counted."""
BYTES_MAX = 4 << 20
"""The same, of rows that are large."""
_VALUE_CHARS_MAX = 200
_BATCH = 256
_POLL_S = 1.0
_PAUSE_S = 0.2
_AGAIN_S = 2.0
HIDDEN = "•••"


class Tails:
    """The live tails that are open; at most so many."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open = 0

    def enter(self) -> None:
        """Raises ConsumerError: too many are open."""
        if self._open >= self._most:
            raise ConsumerError(
                f"{self._open} live tails are open, and no more are allowed (console.tails_max)"
            )
        self._open += 1

    def leave(self) -> None:
        """One is closed."""
        self._open -= 1


def refuse_hidden(where: str, hidden: Sequence[str]) -> None:
    """Raises AccessDenied: the condition names a column whose values are hidden, and which rows it
    lets through would tell them; ConfigError: it is no condition."""
    if not where or not hidden:
        return
    for name in sorted(names(where)):
        if any(_may_hide(pattern.lower(), name) for pattern in hidden):
            raise AccessDenied(f"column {name!r} is hidden (console.hidden_columns)")


def _may_hide(pattern: str, name: str) -> bool:
    """Return whether a pattern hides a column of this name in some table: a head of it fits
    `schema.table.`, and the rest the name. A star may be of both."""
    for at, sign in enumerate(pattern):
        for head in (pattern[:at], pattern[: at + 1] if sign == "*" else ""):
            dots = head.count(".") + (not head.endswith("."))
            if head.endswith((".", "*", "?")) and dots <= 2 and fnmatchcase(name, pattern[at:]):
                return True
    return False


def shown(change: dict[str, Any], hidden: Sequence[str]) -> dict[str, Any]:
    """Return what the page shows of a change: hidden values as dots, long ones cut."""
    table = f"{change['schema']}.{change['table']}"
    images = {}
    for image in ("before", "after"):
        row = change.get(image)
        if row is not None:
            row = {name: _value(value, f"{table}.{name}", hidden) for name, value in row.items()}
        images[image] = row
    before, after = images["before"], images["after"]
    real = change.get("before") or {}, change.get("after") or {}
    both = before is not None and after is not None
    changed = [name for name in real[1] if both and real[0].get(name) != real[1][name]]
    return {
        "table": table,
        "type": change.get("event_type"),
        "at": f"{change.get('journal_name', '')}:{change.get('position', '')}",
        "time": change.get("commit_time") or change.get("execute_time"),
        "changed": changed,
        **images,
        **({"sql": _cut(_sql(change, hidden))} if change.get("sql") else {}),
    }


def masked(change: dict[str, Any], hidden: Sequence[str]) -> dict[str, Any]:
    """Return a change whose hidden values are dots; nothing is cut."""
    table = f"{change['schema']}.{change['table']}"
    images = {
        image: {
            name: HIDDEN if _is_hidden(f"{table}.{name}", hidden) else value
            for name, value in change[image].items()
        }
        for image in ("before", "after")
        if change.get(image) is not None
    }
    sql = {"sql": _sql(change, hidden)} if change.get("sql") else {}
    return {**change, **images, **sql}


def _sql(change: dict[str, Any], hidden: Sequence[str]) -> str:
    """The text of a DDL; that of a statement which changed rows has values of any column."""
    if hidden and change.get("event_type") == STATEMENT:
        return HIDDEN
    return str(change["sql"])


def _is_hidden(column: str, hidden: Sequence[str]) -> bool:
    return any(fnmatchcase(column.lower(), each.lower()) for each in hidden)


def _value(value: Any, column: str, hidden: Sequence[str]) -> Any:
    return HIDDEN if _is_hidden(column, hidden) else _cut(value)


def _cut(value: Any) -> Any:
    if isinstance(value, dict | list):
        value = json.dumps(value, ensure_ascii=False)
    if isinstance(value, str) and len(value) > _VALUE_CHARS_MAX:
        return value[:_VALUE_CHARS_MAX] + "…"
    return value


def rows_of(message: Message, hidden: Sequence[str], most: int) -> tuple[list[dict[str, Any]], int]:
    """Return the last rows of a message as the page shows them, and how many came before these."""
    rows: list[dict[str, Any]] = []
    count = 0
    for part in message.batches_by_part():
        lately = [_last(batch, most) for batch in part]
        count += sum(batch.num_rows for batch in part)
        rows = (rows + changes(lately))[-most:]
    return [shown(row, hidden) for row in rows], count - len(rows)


def _last(batch: pa.RecordBatch, most: int) -> pa.RecordBatch:
    """The last rows of a batch: what they hold becomes Python objects, and is cut only then."""
    rows = batch.slice(max(batch.num_rows - most, 0))
    while rows.num_rows > 1 and rows.nbytes > BYTES_MAX:
        rows = rows.slice((rows.num_rows + 1) // 2)
    return rows


async def tail(
    context: ConsoleContext,
    tails: Tails,
    destination: str,
    tables: str,
    where: str,
    start: str = "tail",
) -> AsyncIterator[str]:
    """Yield server-sent events: `rows`, `notice`, `problem`, `end`; a comment while nothing comes.
    Beyond so many tails: a `problem` at once."""
    try:
        tails.enter()
    except ConsumerError as error:
        yield _event("problem", {"message": str(error)})
        return
    reader = _Reader(context, destination, tables, where, start)
    try:
        yield "retry: 3000\n\n"
        while True:
            try:
                rows, skipped, finished = await anyio.to_thread.run_sync(
                    reader.next, abandon_on_cancel=True
                )
            except CanalError as error:
                yield _event("notice" if error.retryable else "problem", {"message": str(error)})
                if not error.retryable:
                    return
                await anyio.sleep(_AGAIN_S)
                continue
            yield _event("rows", {"rows": rows, "skipped": skipped}) if rows else ": nothing\n\n"
            if finished:
                yield _event("end", {})
                return
            await anyio.sleep(_PAUSE_S)
    finally:
        tails.leave()
        reader.close_soon()


def _event(name: str, value: Any) -> str:
    return f"event: {name}\ndata: {json.dumps(value, ensure_ascii=False)}\n\n"


class _Reader:
    """One tail's connector; its calls are made one after the other, in threads."""

    def __init__(
        self, context: ConsoleContext, destination: str, tables: str, where: str, start: str
    ) -> None:
        self._context = context
        self._destination = destination
        self._tables = tables
        self._where = where
        self._start = start
        self._connector: Connector | None = None
        self._lock = threading.Lock()
        self._closed = False

    def next(self) -> tuple[list[dict[str, Any]], int, bool]:
        """Rows that have come, how many more, and whether no more will. Waits up to a second."""
        with self._lock:
            if self._closed:
                return [], 0, True
            if self._connector is None:
                connector = self._context.cluster.look_on(self._destination)
                connector.subscribe(self._tables, start=self._start, where=self._where or None)
                self._connector = connector
            message = self._connector.get_without_ack(_BATCH, timeout=None)
            if not message:
                threading.Event().wait(_POLL_S / 2)
                message = self._connector.get_without_ack(_BATCH, timeout=None)
            if not message:
                return [], 0, message.finished
            rows, skipped = rows_of(message, self._context.config.hidden_columns, ROWS_MAX)
            self._connector.ack(message.id)
            return rows, skipped, False

    def close_soon(self) -> None:
        """End the subscription, in a thread: a call may still wait."""
        threading.Thread(target=self._close, name="console: tail ends", daemon=True).start()

    def _close(self) -> None:
        with self._lock:
            self._closed = True
            if self._connector is not None:
                self._connector.close()
                self._connector = None
