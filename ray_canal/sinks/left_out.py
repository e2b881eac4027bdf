"""Rows and statements that do nothing to a target whose tables follow the source's."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import lru_cache

import pyarrow as pa

from ray_canal.config.sink import TablePolicy
from ray_canal.model.table_event import ERASE
from ray_canal.sinks.port import Changed, Rows, SinkError, naming

logger = logging.getLogger(__name__)

_SEQUENCE = [
    "next_not_cached_value", "minimum_value", "maximum_value", "start_value", "increment",
    "cache_size", "cycle_option", "cycle_count",
]  # fmt: skip


def is_sequence(shape: pa.Schema | None, key: Sequence[str]) -> bool:
    """Return whether a table, by the schema of its batches, is a SEQUENCE of MariaDB: its one row
    is written again and again, as rows that are inserted, and has no key."""
    if shape is None or key or "after" not in shape.names:
        return False
    return [field.name for field in shape.field("after").type] == _SEQUENCE


def is_of_sequence(step: Changed) -> bool:
    """Return whether a statement made, or changed, a SEQUENCE."""
    key = [] if step.meta is None else [c.name for c in step.meta.columns if c.is_key]
    return is_sequence(step.change.arrow_schema, key)


def refuse_changes(
    policy: TablePolicy, statement: Sequence[Changed], is_there: Callable[[str, str], bool]
) -> None:
    """Raise SinkError if a statement does anything to what the target has, or would have.
    `is_there`: whether it has a table of the source, by database and name."""
    for change in (step.change for step in statement if not is_of_sequence(step)):
        if change.kind == ERASE and not is_there(change.schema, change.table):
            continue  # the log has DROP TABLE IF EXISTS of a table that was never there, too
        with naming(change.schema, change.table):
            raise SinkError(
                f"{change.kind} of {change.schema}.{change.table} at {change.journal_name}:"
                f'{change.position}: {policy.section}.schema_change is "stop"',
                "schema",
            )


def is_left_out(policy: TablePolicy, rows: Rows) -> bool:
    """Return whether rows are not written. Raises SinkError: they cannot be known."""
    if rows.statement:
        if policy.schema_change == "ignore":
            return True
        raise SinkError(
            f"rows of {rows.schema}.{rows.table} were changed by a statement that the log has "
            f"as text alone, so the mirror cannot follow: {rows.statement[:200]}; to go on, "
            f'let the sink pass it with {policy.section}.schema_change = "ignore", and '
            "take a snapshot of the table then",
            "schema",
        )
    if is_sequence(rows.batch.schema, rows.key):
        _tell(rows.schema, rows.table)
        return True
    return not rows.key and policy.without_key == "ignore"


@lru_cache(1024)
def _tell(schema: str, table: str) -> None:
    """Log once for each sequence that it is left out."""
    logger.warning("%s.%s is a sequence, which a mirror leaves out", schema, table)
