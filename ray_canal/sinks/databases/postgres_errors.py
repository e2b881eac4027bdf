"""Errors of a PostgreSQL target: again, an entry, a table, or the end."""

from __future__ import annotations

import psycopg

from ray_canal.sinks.port import Kind, SinkError

_REFUSED = ("authentication failed", "does not exist", "no pg_hba.conf entry", "permission denied")
_RETRY_CLASSES = ("08", "40", "53", "57", "58")
"""Connections, rolled back transactions, resources, shutdowns, the system."""
_RETRY = {"25006", "25P03", "55006", "55P03"}  # read-only, ended while it slept, in use, locked
_POISON_CLASSES = ("22", "23", "44", "54", "P0")
"""Values, constraints, checks of a view, limits, exceptions of a trigger."""
_SCHEMA_CLASSES = ("42", "0A", "2B", "21", "55")
_FATAL = {"42501"}  # a right is missing
_ADVICE = {
    "57014": "if the server needs longer for it, raise mirror.timeout_s",
    "21000": "keys that differ at the source are one in the target: give its key the source's types"
    " and lengths, and a collation that is deterministic",
    "42939": "leave the database out of `tables`, or set mirror.database",
}


def refused(error: psycopg.Error) -> SinkError:
    """Return why there is no connection as an error of a sink."""
    text = f"target: {str(error).strip()}"
    return SinkError(text, "fatal" if any(each in text for each in _REFUSED) else "retry")


def translated(error: psycopg.Error, sql: str) -> SinkError:
    """Return a server's error as one of a sink."""
    state = error.sqlstate or ""
    kind: Kind = "fatal"
    if not state or state in _RETRY or state[:2] in _RETRY_CLASSES:
        kind = "retry"
    elif state in _FATAL:
        kind = "fatal"
    elif state[:2] in _POISON_CLASSES:
        kind = "poison"
    elif state[:2] in _SCHEMA_CLASSES:
        kind = "schema"
    advice = f"; {_ADVICE[state]}" if state in _ADVICE else ""
    return SinkError(f"target: {str(error).strip()} ({state}), at {sql[:120]}{advice}", kind)
