"""Decoding binlog files with no Ray and no server: the same cutter, parser and decoder, in this
process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ray_canal.binlog.chunk import ChunkInfo, DecodedChunk
from ray_canal.config import InstanceConfig
from ray_canal.driver.source import open_source
from ray_canal.errors import ConfigError
from ray_canal.filter import TableFilter
from ray_canal.parse.event_parser import EventParser
from ray_canal.parse.schemas import SchemaRegistry
from ray_canal.views.arrow import batches as arrow_batches
from ray_canal.views.entries import delimited

PathLike = str | os.PathLike[str]
ALL_TABLES = r".*\..*"


def decode_chunks(
    paths: Sequence[PathLike],
    *,
    schema_sql: PathLike | None = None,
    on_bytes: Callable[[int], None] | None = None,
) -> Iterator[tuple[ChunkInfo, DecodedChunk]]:
    """Decoded chunks of binlog files, in order.

    `schema_sql` is a file of CREATE TABLE statements, for binlogs without row metadata. `on_bytes`
    hears how many bytes each chunk had. Good events before a bad one come out first; then its error
    is raised: PositionNotFound, CorruptEvent, UnsupportedEvent, TableMetaMismatch, with file and
    offset.
    """
    if not paths:
        raise ConfigError("no binlog file given")
    config = InstanceConfig.model_validate(
        {"destination": "files", "source": {"files": [str(path) for path in paths]}}
    )
    sql = ""
    if schema_sql is not None:
        try:
            sql = Path(schema_sql).read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"cannot read {schema_sql}: {error.strerror}") from error
    parser = EventParser(SchemaRegistry(create_table_sql=sql, catalog=None))
    source = open_source(config)
    try:
        source.open(None)
        while True:
            raw = source.read(0.0, 0.0)
            if raw is None:
                if source.finished:
                    return
                continue
            info, chunk = parser.decode_chunk(raw)
            yield info, chunk
            if info.failure is not None:
                raise info.failure
            if on_bytes is not None:
                on_bytes(raw.size_bytes)
    finally:
        source.close()


def decode_files(
    paths: Sequence[PathLike],
    *,
    tables: str = ALL_TABLES,
    schema_sql: PathLike | None = None,
) -> Iterator[pa.RecordBatch]:
    """Arrow batches of binlog files: one table version each, rows in log order.

    `tables` is Canal's regex list over `schema.table`. Raises as `decode_chunks`.
    """
    for _, chunk in decode_chunks(paths, schema_sql=schema_sql):
        yield from chunk_batches(chunk, tables)


def decode_entries(
    paths: Sequence[PathLike],
    *,
    tables: str = ALL_TABLES,
    schema_sql: PathLike | None = None,
    time_zone: str = "UTC",
) -> Iterator[bytes]:
    """Canal entries of binlog files, chunk by chunk: varint length + `Entry`, one after the
    other."""
    for _, chunk in decode_chunks(paths, schema_sql=schema_sql):
        yield chunk_entries(chunk, tables, time_zone)


def chunk_batches(chunk: DecodedChunk, tables: str) -> list[pa.RecordBatch]:
    """The Arrow batches of one chunk's tables that the filter admits."""
    return list(arrow_batches(chunk, 0, chunk.layout.event_count, _admitted(chunk, tables)))


def chunk_entries(chunk: DecodedChunk, tables: str, time_zone: str) -> bytes:
    """The entries of one chunk, delimited; BEGIN, END and queries pass every filter (Canal)."""
    mask = _admitted(chunk, tables)
    return delimited(chunk, 0, chunk.layout.event_count, mask, time_zone=time_zone)


def _admitted(chunk: DecodedChunk, tables: str) -> npt.NDArray[np.bool_] | None:
    """Which entries a filter admits; None: all of them."""
    wanted = TableFilter(tables, "")
    metas = [table.meta for table in chunk.layout.tables]
    admitted = np.array([*(wanted.admits(m.schema, m.table) for m in metas), True])
    if admitted.all():
        return None
    # Entries without a table have index -1, which picks the last element: admitted.
    mask: npt.NDArray[np.bool_] = admitted[chunk.events["table"]]
    return mask
