"""Decoding what is held aside: events whose table had no known schema when they came, and dead
letters: events that could not be decoded themselves, and messages that consumers gave up.

A schema that is given now is kept in the table meta history, from the first of the table's
quarantined events on, so that a restarted destination decodes later rows with it, too. No Ray, no
server.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ray_canal.binlog.chunk import ChunkInfo, RawChunk
from ray_canal.binlog.packed_chunk import unpack
from ray_canal.config import CanalConfig, load
from ray_canal.dead_letters import is_message, is_message_of
from ray_canal.dead_letters import unpack as unpack_letter
from ray_canal.errors import ConfigError
from ray_canal.meta.open import open_schema_store
from ray_canal.meta.schema_store import ChunkKey, SchemaStore, chunk_key
from ray_canal.model.log_context import LogContext
from ray_canal.model.position import EntryPosition
from ray_canal.model.schema_record import (
    EVENT_AT,
    QuarantinedChunk,
    SchemaRecord,
    TableState,
)
from ray_canal.schema.ddl.create_table import parse_tables
from ray_canal.schema.event_parser import EventParser
from ray_canal.schema.keeper import SchemaKeeper
from ray_canal.schema.names import Names
from ray_canal.schema.records import log_with_records, names_of, table_record
from ray_canal.schema.registry import SchemaRegistry
from ray_canal.views.arrow import batches

PathLike = str | os.PathLike[str]


def redrive(
    config: PathLike | dict[str, Any] | CanalConfig,
    destination: str,
    *,
    schema_sql: PathLike | None = None,
    keep: bool = False,
    client_id: int | None = None,
) -> Generator[list[pa.RecordBatch]]:
    """Arrow batches of a destination's quarantined events, one list a chunk, in the log's order.

    `client_id`: only the messages that this subscriber gave up; all else stays.

    `schema_sql` is a file of CREATE TABLE statements, as the tables were at that time. A chunk is
    removed when the next one is asked for (so write what came before, durably, first); then it is
    not given again. `keep`: none is removed. Raises ConfigError; TableMetaMismatch where a
    table's schema is still not known, or does not fit: that chunk and those behind it stay. A dead
    letter that can still not be decoded stays, and those behind it are given; the first one's error
    is raised at the end.
    """
    deployment = load(config)
    store = _store(deployment, destination)
    try:
        if schema_sql is not None:
            _mend(store, destination, store.quarantined(destination), _text(Path(schema_sql)))
        for key, found in _decoded(deployment, destination, store, client_id):
            yield found
            if not keep:
                store.release(destination, key)
    finally:
        store.close()


def held(config: CanalConfig, destination: str) -> list[QuarantinedChunk]:
    """Return the chunks of a destination that are in quarantine, in the log's order."""
    store = _store(config, destination)
    try:
        return store.quarantined(destination)
    finally:
        store.close()


def decode_held(
    config: CanalConfig, destination: str, schema_sql: str = ""
) -> Generator[tuple[ChunkKey, list[pa.RecordBatch]]]:
    """Yield each quarantined chunk that can be decoded, with its key for `release`; removes none.
    `schema_sql`: CREATE TABLE statements, which are kept in the history. Raises as `redrive`.
    """
    store = _store(config, destination)
    try:
        if schema_sql:
            _mend(store, destination, store.quarantined(destination), schema_sql)
        yield from _decoded(config, destination, store)
    finally:
        store.close()


def release(config: CanalConfig, destination: str, keys: Iterable[ChunkKey]) -> int:
    """Remove these chunks: somebody has their changes. Return how many there were."""
    store = _store(config, destination)
    try:
        known = {chunk_key(chunk) for chunk in store.quarantined(destination)}
        wanted = known.intersection(keys)
        for key in wanted:
            store.release(destination, key)
        return len(wanted)
    finally:
        store.close()


def _store(config: CanalConfig, destination: str) -> SchemaStore:
    return open_schema_store(config.meta, config.destination(destination).tsdb.path)


def _decoded(
    config: CanalConfig, destination: str, store: SchemaStore, client_id: int | None = None
) -> Generator[tuple[ChunkKey, list[pa.RecordBatch]]]:
    source = config.destination(destination).source
    parser, server, undecodable = None, "", None
    for chunk in store.quarantined(destination):
        if client_id is not None and not is_message_of(chunk, client_id):
            continue
        if is_message(chunk):
            letter = store.quarantined_data(destination, chunk_key(chunk))
            if letter is not None:
                yield chunk_key(chunk), unpack_letter(letter).batches
            continue
        if parser is None or server != chunk.server:
            server = chunk.server
            parser = _parser(store.records(destination), chunk, Names(source.names_setting))
        data = store.quarantined_data(destination, chunk_key(chunk))
        if data is None:  # somebody else removed it
            continue
        info, decoded = parser.decode_chunk(_strictly(unpack(data)))
        if info.failure is not None and _is_letter(chunk):
            undecodable = undecodable or info.failure
            continue
        if info.failure is not None:
            raise info.failure
        alone = LogContext(numbered=not info.head.in_transaction)
        rows = _held_rows(info, chunk)
        yield chunk_key(chunk), list(batches(decoded, 0, len(info.entries), rows, context=alone))
    if undecodable is not None:
        raise undecodable


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error


def _parser(records: list[SchemaRecord], first: QuarantinedChunk, given: Names) -> EventParser:
    """A parser of the chunk's log, from the chunk on. `given`: how its server compares names, if no
    record says so."""
    log = log_with_records(records, first.server)
    keeper = SchemaKeeper(None, "stop", names=names_of(records, log) or given)
    parser = EventParser(SchemaRegistry(), keeper)
    parser.begin(records, log, EntryPosition(first.journal_name, first.position))
    return parser


def _held_rows(info: ChunkInfo, chunk: QuarantinedChunk) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return which entries were left out then: the others were handed out."""
    if _is_letter(chunk):
        held: np.ndarray[Any, np.dtype[np.bool_]] = info.entries["position"] == chunk.position
        return held
    return info.admitted(lambda schema, table: (schema, table) in chunk.tables)


def _is_letter(chunk: QuarantinedChunk) -> bool:
    return any(schema == EVENT_AT for schema, _ in chunk.tables)


def _strictly(raw: RawChunk) -> RawChunk:
    """Return the chunk; what cannot be decoded is its failure."""
    return RawChunk(replace(raw.head, on_undecodable="stop"), raw.data)


def _mend(store: SchemaStore, destination: str, held: list[QuarantinedChunk], text: str) -> None:
    """Keep the given tables in the history, each from its first quarantined event on."""
    known = store.records(destination)
    tables = parse_tables(text)
    fixed: set[tuple[str, str]] = set()
    records = []
    for chunk in (chunk for chunk in held if not _is_letter(chunk)):
        log = log_with_records(known, chunk.server)
        names = names_of(known, log) or Names()
        given = {names.pair((meta.schema, meta.table)): meta for meta in tables}
        for name in chunk.tables:
            meta = given.get(name) or given.get(("", name[1]))
            if meta is not None and name not in fixed:
                fixed.add(name)
                state = TableState(meta, "").renamed(*name)
                records.append(
                    table_record(log, time.time(), chunk.journal_name, chunk.position, state)
                )
    store.append(destination, records)
