"""Decoding what is in quarantine: events whose table had no known schema when they came.

A schema that is given now is kept in the table meta history, from the first of the table's
quarantined events on, so that a restarted destination decodes later rows with it, too. No Ray, no
server.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ray_canal.binlog.chunk import ChunkInfo
from ray_canal.config import CanalConfig, load
from ray_canal.errors import ConfigError
from ray_canal.meta.schema_store import SchemaStore, open_schema_store
from ray_canal.parse.create_table import parse_tables
from ray_canal.parse.event_parser import EventParser
from ray_canal.parse.names import Names
from ray_canal.parse.quarantine import unpack
from ray_canal.parse.records import log_with_records, names_of, table_record
from ray_canal.parse.schema_keeper import SchemaKeeper
from ray_canal.parse.schemas import SchemaRegistry
from ray_canal.protocol.log_context import LogContext
from ray_canal.protocol.position import EntryPosition
from ray_canal.protocol.schema_record import Quarantined, TableState
from ray_canal.views.arrow import batches

PathLike = str | os.PathLike[str]


def redrive(
    config: PathLike | dict[str, Any] | CanalConfig,
    destination: str,
    *,
    schema_sql: PathLike | None = None,
) -> Iterator[list[pa.RecordBatch]]:
    """Arrow batches of a destination's quarantined events, one list a chunk, in the log's order.

    `schema_sql` is a file of CREATE TABLE statements, as the tables were at that time. A chunk is
    let go of when the next one is asked for; then it is not given again. Raises ConfigError;
    TableMetaMismatch where a table's schema is still not known, or does not fit: that chunk and
    those behind it stay.
    """
    deployment = load(config)
    instance = deployment.destination(destination)
    store = open_schema_store(deployment.meta, instance.tsdb.path)
    try:
        held = store.quarantined(destination)
        if schema_sql is not None:
            _mend(store, destination, held, schema_sql)
        parser, server = None, ""
        for chunk in held:
            if parser is None or server != chunk.server:
                records, server = store.records(destination), chunk.server
                log = log_with_records(records, server)
                names = names_of(records, log) or Names(instance.source.names_setting)
                keeper = SchemaKeeper(None, "stop", names=names)
                parser = EventParser(SchemaRegistry(), keeper)
                start = EntryPosition(chunk.journal_name, chunk.position)
                parser.begin(records, log, start)
            info, decoded = parser.decode_chunk(unpack(chunk.data))
            if info.failure is not None:
                raise info.failure
            alone = LogContext(numbered=not info.head.in_transaction)
            rows = _held_rows(info, chunk)
            yield list(batches(decoded, 0, len(info.entries), rows, context=alone))
            store.release(destination, chunk)
    finally:
        store.close()


def _held_rows(info: ChunkInfo, chunk: Quarantined) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which entries were left out then: the others were handed out."""
    return info.admitted(lambda schema, table: (schema, table) in chunk.tables)


def _mend(
    store: SchemaStore, destination: str, held: list[Quarantined], schema_sql: PathLike
) -> None:
    """Keep the given tables in the history, each from its first quarantined event on."""
    try:
        text = Path(schema_sql).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {schema_sql}: {error.strerror}") from error
    given = {(meta.schema, meta.table): meta for meta in parse_tables(text)}
    mended: set[tuple[str, str]] = set()
    records = []
    for chunk in held:
        for name in chunk.tables:
            meta = given.get(name) or given.get(("", name[1]))
            if meta is not None and name not in mended:
                mended.add(name)
                state = TableState(meta, "").renamed(*name)
                record = table_record(
                    chunk.server, time.time(), chunk.journal_name, chunk.position, state
                )
                records.append(record)
    store.append(destination, records)
