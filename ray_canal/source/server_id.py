"""A replica's server id that no other replica of the server has."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from ray_canal.config import SourceConfig
from ray_canal.errors import PrivilegeMissing, SourceError
from ray_canal.source.connection import query

_LOW, _HIGH = 1 << 31, (1 << 32) - 1
"""People number their servers from below; a random id of the upper half is hardly ever taken."""


def choose(connection: Any, config: SourceConfig) -> int:
    """source.server_id, or where that is 0 a random one that the server does not list."""
    if config.server_id:
        return config.server_id
    taken = taken_ids(connection, config)
    while (chosen := random.randrange(_LOW, _HIGH)) in taken:
        pass
    return chosen


def taken_ids(connection: Any, config: SourceConfig) -> set[int]:
    """Ids of the server and of its registered replicas, as far as we may see them."""

    def ask(statement: str) -> list[dict[str, Any]]:
        return query(connection, config, statement)

    return {int(ask("SELECT @@server_id AS id")[0]["id"]), *taken_by_replicas(ask)}


def taken_by_replicas(ask: Callable[[str], list[dict[str, Any]]]) -> set[int]:
    """Ids of the registered replicas, as far as we may see them. `ask` runs a statement."""
    for statement in ("SHOW REPLICAS", "SHOW SLAVE HOSTS"):
        try:
            rows = ask(statement)
        except PrivilegeMissing:
            break
        except SourceError as error:
            if error.retryable:
                raise
            continue  # this server knows the other statement
        return {int(row.get("Server_Id", row.get("Server_id", 0))) for row in rows}
    return set()
