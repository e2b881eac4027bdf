"""Rows and statements that do nothing to a target whose tables follow the source's."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import lru_cache

from ray_canal.config.sink import TablePolicy
from ray_canal.model.table_event import ERASE
from ray_canal.model.table_meta import is_sequence
from ray_canal.sinks.port import Changed, SinkError, naming
from ray_canal.sinks.rows import Rows

logger = logging.getLogger(__name__)


def is_of_sequence(step: Changed) -> bool:
    """Return whether a statement made, or changed, a SEQUENCE of MariaDB: its one row is written
    again and again, as rows that are inserted, and has no key."""
    columns = () if step.meta is None else step.meta.columns
    return is_sequence(columns) and not any(column.is_key for column in columns)


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
                f'{change.position}: {policy.setting("schema_change")} is "stop"',
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
            f'let the sink pass it with {policy.setting("schema_change")} = "ignore", and '
            "take a snapshot of the table then",
            "schema",
        )
    if not rows.key and is_sequence(rows.batch.schema.field("after").type):
        _tell(rows.schema, rows.table)
        return True
    return not rows.key and policy.without_key == "ignore"


@lru_cache(1024)
def _tell(schema: str, table: str) -> None:
    """Log once for each sequence that it is left out."""
    logger.warning("%s.%s is a sequence, which a mirror leaves out", schema, table)
