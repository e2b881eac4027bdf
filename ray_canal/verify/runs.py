"""Verify binlog files, or the log of a destination's server, with both decoders."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from ray_canal.binlog.chunk import ChunkInfo, DecodedChunk
from ray_canal.config import InstanceConfig
from ray_canal.errors import ConfigError
from ray_canal.filter import TableFilter
from ray_canal.model.position import BINLOG_START, EntryPosition
from ray_canal.model.table_meta import TableMeta
from ray_canal.offline import ALL_TABLES, decode_chunks
from ray_canal.schema.event_parser import EventParser
from ray_canal.schema.keeper import SchemaKeeper
from ray_canal.schema.names import Names
from ray_canal.schema.registry import SchemaRegistry
from ray_canal.source.binlog_files import list_binlogs
from ray_canal.source.catalog import Catalog
from ray_canal.source.catalog_tables import CatalogTables
from ray_canal.source.start.server_log import ServerLog, log_of_server
from ray_canal.verify.compare import Comparison, Report, never
from ray_canal.verify.rows import OurEvent, TheirEvent, our_events
from ray_canal.verify.second_reader import (
    SecondReader,
    file_events,
    require_library,
    server_events,
)

Event = TypeVar("Event", OurEvent, TheirEvent)
PathLike = str | os.PathLike[str]
_CHUNK_BYTES = 1 << 20
"""Each row of a chunk becomes Python objects."""


def nothing(size: int) -> None:
    """Ignore progress."""


def verify_files(
    paths: Sequence[PathLike],
    report: Report,
    *,
    tables: str = ALL_TABLES,
    schema_sql: PathLike | None = None,
    lower_case_table_names: int | None = None,
    on_bytes: Callable[[int], None] = nothing,
    ended: Callable[[], str] = never,
) -> Report:
    """Decode binlog files (or a directory's) with both decoders and fill the report.

    `on_bytes` hears how many bytes each chunk had; `ended` is asked between events and says why to
    end early. The other options are those of `ray_canal.offline.decode_chunks`. Raises ConfigError,
    PositionNotFound.
    """
    require_library()
    if not paths:
        raise ConfigError("no binlog file given")
    found = list_binlogs(tuple(Path(path) for path in paths))
    wanted, reader = TableFilter(tables), SecondReader()
    chunks = decode_chunks(
        found,
        schema_sql=schema_sql,
        lower_case_table_names=lower_case_table_names,
        on_bytes=on_bytes,
    )
    theirs = (event for path in found for event in reader.events(path.name, file_events(path)))
    comparison = Comparison(report, [path.name for path in found], wanted, ended)
    comparison.run(our_events(chunks, wanted), theirs)
    return report


def verify_server(
    config: InstanceConfig,
    report: Report,
    *,
    files: int = 1,
    start: EntryPosition | None = None,
    tables: str = ALL_TABLES,
    on_total: Callable[[int], None] = nothing,
    on_bytes: Callable[[int], None] = nothing,
    ended: Callable[[], str] = never,
) -> Report:
    """Decode the last `files` files of a server's log with both decoders and fill the report.

    `start`: compare from there on instead. Reading ends where the log ends now. `on_total` hears
    how many bytes that is. Columns' names come from row metadata, from DDL in the log, else from
    the server's present tables. Raises ConfigError, PositionNotFound, SourceError kinds.
    """
    require_library()
    if not config.source.address:
        raise ConfigError(
            f"destination {config.destination!r} has no source.address; "
            "verify its files with `ray-canal verify FILE…`"
        )
    with (
        closing(Catalog(config.source)) as catalog,
        log_of_server(config.source, catalog) as log,
        closing(CatalogTables(config.source)) as tables_now,
    ):
        sizes = _chosen(log.files(), files, start)
        on_total(sum(sizes.values()))
        wanted, reader = TableFilter(tables), SecondReader()
        first = start or EntryPosition(next(iter(sizes)))
        theirs = (
            event
            for name, size in sizes.items()
            for event in reader.events(name, server_events(config.source, name, size))
        )
        ours = our_events(_server_chunks(tables_now, log, sizes, on_bytes), wanted)
        comparison = Comparison(report, list(sizes), wanted, ended)
        comparison.run(_within(ours, first, sizes), _within(theirs, first, sizes))
    return report


def _chosen(
    listed: Sequence[tuple[str, int]], files: int, start: EntryPosition | None
) -> dict[str, int]:
    """Sizes of the files to read, in order."""
    if start is None:
        return dict(listed[-files:])
    names = [name for name, _ in listed]
    if start.journal_name not in names:
        raise ConfigError(
            f"--from: the server has no binlog file {start.journal_name!r}; it has "
            f"{names[0]} … {names[-1]}"
        )
    return dict(listed[names.index(start.journal_name) :])


def _server_chunks(
    tables: CatalogTables,
    log: ServerLog,
    sizes: dict[str, int],
    on_bytes: Callable[[int], None],
) -> Iterator[tuple[ChunkInfo, DecodedChunk]]:
    def now(schema: str, table: str) -> TableMeta | None:
        found = tables.table_now(schema, table).tables
        return found[0].meta if found else None

    names = Names(tables.lower_case_table_names())
    parser = EventParser(SchemaRegistry("", now), SchemaKeeper(None, names=names))
    for name in sizes:
        for raw in log.chunks(name, _CHUNK_BYTES):
            info, chunk = parser.decode_chunk(raw)
            size, failure = raw.size_bytes, info.failure
            del raw  # its memory is the next one's
            yield info, chunk
            if failure is not None:
                raise failure
            on_bytes(size)


def _within(
    events: Iterator[Event], first: EntryPosition, sizes: dict[str, int]
) -> Iterator[Event]:
    """Leave out what lies before the start, or behind the log's end when reading began."""
    for event in events:
        low = first.position if event.journal_name == first.journal_name else BINLOG_START
        if low <= event.position < sizes[event.journal_name]:
            yield event
