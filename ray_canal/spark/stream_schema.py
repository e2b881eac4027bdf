"""The columns and the key that a stream of a table is begun with."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pyarrow as pa

from ray_canal.errors import ConfigError
from ray_canal.spark.ahead import EMPTY_BATCH
from ray_canal.spark.frames import NOTES, Statements, common_schema, has_notes, tables_batches
from ray_canal.spark.keys import key_of
from ray_canal.spark.schema import is_part_of, readable_schema, unrounded
from ray_canal.views.presence import IMAGES, PRESENT_OF
from ray_canal.views.row_places import place_at

POLL_S = 0.2
"""So long a question for news waits for some; stopping a query waits for it."""


def stream_schema(batches: list[pa.RecordBatch]) -> pa.Schema:
    """The columns that a stream of a table has, from its first changes: those of all of its
    versions there, and text where a number of one would be rounded in another's type."""
    found, key = common_schema(batches), last_key(batches)
    for batch in batches:
        found = unrounded(readable_schema(batch.schema), found)
    found = with_note_columns(found)
    if key is None:
        return found
    return found.with_metadata({**(found.metadata or {}), b"canal.key": json.dumps(key).encode()})


def last_key(batches: list[pa.RecordBatch]) -> tuple[str, ...] | None:
    """The key of a table's last rows; None: there are only changes of the table as a whole, behind
    which it may be gone."""
    of_rows = [batch for batch in batches if not has_notes(batch)]
    return key_of(of_rows[-1].schema) if of_rows else None


def with_note_columns(found: pa.Schema) -> pa.Schema:
    """A schema with the columns of changes of a table as a whole."""
    for name in NOTES:
        if name not in found.names:
            found = found.append(pa.field(name, pa.string()))
    return found


def with_presence_columns(found: pa.Schema) -> pa.Schema:
    """A schema with the columns that tell which columns an image has (views/presence.py)."""
    for side, name in PRESENT_OF.items():
        if name not in found.names and side in found.names:
            flags = [pa.field(field.name, pa.bool_()) for field in found.field(side).type]
            found = found.append(pa.field(name, pa.struct(flags)))
    return found


def refuse_other_columns(batch: pa.RecordBatch, name: str, schema: pa.Schema) -> None:
    """Raises ConfigError: a batch has columns, or types, that the query was not begun with."""
    given = common_schema([batch])
    if _is_shown(given, schema):
        return
    if _is_shown(given, with_presence_columns(schema)):
        raise ConfigError(
            f"at {place_at(batch, 0)} images of {name} lack columns (binlog_row_image), and the "
            "query was begun with whole ones; start it again, with the same checkpoint and "
            '.option("images", "partial")'
        )
    raise ConfigError(
        f"at {place_at(batch, 0)} {name} has other columns than the query was begun "
        "with, or other types; start it again, with the same checkpoint: load() then takes the new "
        "ones (leave out .schema(...), or give it the new columns)" + _others(given, schema)
    )


def _is_shown(given: pa.Schema, schema: pa.Schema) -> bool:
    """Return whether all values of one schema can be shown in the other as they are."""
    return is_part_of(given, schema) and unrounded(given, schema) == schema


def _others(given: pa.Schema, schema: pa.Schema) -> str:
    """Return the names of a table's columns that cannot be shown so, in brackets."""
    names: list[str] = []
    for side in IMAGES:
        if side in given.names and side in schema.names:
            wanted = pa.schema(list(schema.field(side).type))
            columns = list(given.field(side).type)
            names += [f.name for f in columns if not _is_shown(pa.schema([f]), wanted)]
    return f" ({', '.join(dict.fromkeys(names))})" if names else ""


def peeked_schema(
    connector: Any, table: str, batch_size: int, wait_s: float, statements: Statements
) -> pa.Schema | None:
    """The columns of a table, from its first changes that the subscriber gets, up to some whose
    columns are known: behind a DROP they are not. None: it gets no change within `wait_s`. Nothing
    is acked; messages without the table's rows are passed over."""
    deadline = time.monotonic() + wait_s
    found: list[pa.RecordBatch] = []
    try:
        while time.monotonic() < deadline:
            message = connector.get_without_ack(batch_size, POLL_S)
            if message.id == EMPTY_BATCH:
                if message.finished:
                    break
                continue
            tables = tables_batches(message.batches, frozenset({table}), statements)
            found += tables.get(table, [])
            if found and has_columns(known := stream_schema(found)):
                return known
    finally:
        connector.rollback()
    return stream_schema(found) if found else None


def has_columns(found: pa.Schema) -> bool:
    """Return whether a table's columns are known."""
    images = [found.field(side).type for side in IMAGES if side in found.names]
    return not images or any(image.num_fields for image in images)


def table_filter(table: str) -> str:
    """A subscription's filter for one table."""
    return re.escape(table)
