"""schema_history: the versions of a table that a destination knows, by place, with the DDL."""

from __future__ import annotations

from typing import Any

from ray_canal.actors import registry
from ray_canal.client.api import call_once
from ray_canal.destination.api import DestinationApi


def schema_history(
    destination: str, table: str = "", *, namespace: str = registry.NAMESPACE
) -> dict[str, Any]:
    """Return `tables`, the names of those whose schemas a destination knows, and `changes`, the
    versions of one of them (`table`: schema.table), in the order of the log.

    A change has `journal_name` and `position`, `kind` ("ddl", "snapshot": the catalog had it so,
    "table": it was read again), `sql`, `columns` (names and types; None: the table is gone) and
    `problem`: why its columns are not known. Raises InstanceNotFound, InstanceNotRunning.
    """
    return call_once(destination, namespace, DestinationApi.schema_history, table)
