"""Connections that read tables: values as the log has them, long statements allowed."""

from __future__ import annotations

import contextlib
from typing import Any

from ray_canal.config import SourceConfig
from ray_canal.errors import ConnectionLost
from ray_canal.source.catalog import Catalog
from ray_canal.source.connection import SERVER_SQL, connect, query, server_uuid

_HEARTBEAT_S = 0.1
LOCK_WAIT_S = 5
"""Seconds that a statement waits for a table that is locked."""
_SETTINGS = (
    "time_zone = '+00:00'",
    "character_set_results = NULL",  # texts in their columns' own character sets
    "sql_mode = 'ALLOW_INVALID_DATES'",  # there may be such keys
    "net_write_timeout = 600",
    f"lock_wait_timeout = {LOCK_WAIT_S}",
)
_LARGE_STATEMENT_BYTES = 256 << 10
"""After a statement of this size the server keeps a network buffer as large for the connection: it
writes a quarter as often."""


def second_replica(config: SourceConfig, **changed: Any) -> SourceConfig:
    """Return the settings of a dump next to the destination's own that tells often how far the log
    has come."""
    return config.for_second_dump(heartbeat_s=_HEARTBEAT_S, **changed)


def open_session(config: SourceConfig, catalog: Catalog) -> Any:
    """A connection to read rows with. Raises SourceError kinds."""
    connection = connect(config)
    try:
        query(connection, config, "SET SESSION " + ", ".join(_SETTINGS))
        query(connection, config, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        packet_bytes = int(catalog.variable("max_allowed_packet") or 0)
        if packet_bytes > 2 * _LARGE_STATEMENT_BYTES:
            query(connection, config, f"DO /*{' ' * _LARGE_STATEMENT_BYTES}*/ 1")
    except BaseException:
        close(connection)
        raise
    return connection


def server_of(connection: Any, config: SourceConfig) -> str:
    """Return which server a connection leads to. Raises SourceError kinds."""
    return server_uuid(query(connection, config, SERVER_SQL))


def other_server(address: str, found: str, expected: str) -> ConnectionLost:
    """Return the error that an address leads to another server than before."""
    return ConnectionLost(
        f"MySQL at {address} is server {found} now, not {expected}: rows are read of one server, "
        "whose marks can be compared"
    )


def close(connection: Any) -> None:
    """Close without a farewell: the server may be in the midst of an answer."""
    with contextlib.suppress(Exception):
        connection._force_close()
