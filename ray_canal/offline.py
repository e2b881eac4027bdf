"""Decode binlog files without Ray and without a server: the same cutter, parser and decoder, in
this process."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import pyarrow as pa

from ray_canal.binlog.chunk import ChunkInfo, DecodedChunk, RawChunk
from ray_canal.binlog.executed import gtid_set_after
from ray_canal.binlog.open_transactions import OpenTransactions
from ray_canal.config import InstanceConfig
from ray_canal.config.load import instance_of
from ray_canal.errors import ConfigError
from ray_canal.filter import TableFilter
from ray_canal.model.log_context import LogContext
from ray_canal.schema.event_parser import EventParser
from ray_canal.schema.keeper import SchemaKeeper
from ray_canal.schema.names import Names
from ray_canal.schema.registry import SchemaRegistry
from ray_canal.source.open_source import open_source
from ray_canal.source.port import Source
from ray_canal.views.debezium import DebeziumOptions, Events, events_of_chunk, message_lines
from ray_canal.views.entries import delimited_pieces
from ray_canal.views.flat import FlatOptions
from ray_canal.views.message_lines import MessageLines
from ray_canal.views.table_events import change_batches

if TYPE_CHECKING:
    from typing_extensions import Unpack

logger = logging.getLogger(__name__)

PathLike = str | os.PathLike[str]
ALL_TABLES = r".*\..*"
_CHUNK_BYTES = 3 << 20
"""Chunk and arena stay in the processor's cache; smaller ones cost more for each chunk."""


class FileOptions(TypedDict, total=False):
    """How binlog files are read, as keyword arguments of every function here.

    Schemas come from row metadata and from the DDL in the files. `schema_sql`: a file of CREATE
    TABLE statements, which count before the DDL where they fit the rows. `lower_case_table_names`:
    the server's (None: unknown; then a name in other letters is no table's, and a statement with
    one makes the table unknown). `skip_events`: places of events to leave out if they cannot be
    read, with a warning in the log (source.skip_events). `on_bytes`: called with the number of
    bytes of each chunk.
    """

    schema_sql: PathLike | None
    lower_case_table_names: int | None
    skip_events: Sequence[str]
    on_bytes: Callable[[int], None] | None


def decode_chunks(
    paths: Sequence[PathLike],
    *,
    schema_sql: PathLike | None = None,
    lower_case_table_names: int | None = None,
    skip_events: Sequence[str] = (),
    on_bytes: Callable[[int], None] | None = None,
) -> Iterator[tuple[ChunkInfo, DecodedChunk]]:
    """Yield the decoded chunks of binlog files, in order. The parameters are those of FileOptions.

    Good events before a bad one come out first; then its error is raised, with file and offset:
    PositionNotFound, CorruptEvent, UnsupportedEvent, TableMetaMismatch. Raises ConfigError: no
    file, or a wrong option.
    """
    config = files_config(paths, skip_events)
    parser = new_parser(schema_sql, lower_case_table_names)
    source = open_source(config)
    try:
        source.open(None)
        yield from decode_raw(_chunks_of(source), parser, on_bytes)
    finally:
        source.close()


def _chunks_of(source: Source) -> Iterator[RawChunk]:
    while not source.finished:
        raw = source.read(0.0, 0.0)
        if raw is not None:
            yield raw
            del raw  # its memory is the next one's


def decode_raw(
    chunks: Iterable[RawChunk],
    parser: EventParser,
    on_bytes: Callable[[int], None] | None = None,
) -> Iterator[tuple[ChunkInfo, DecodedChunk]]:
    """Yield raw chunks decoded, by a parser that stands where they begin; raise as
    `decode_chunks`."""
    for raw in chunks:
        info, chunk = parser.decode_chunk(raw)
        size_bytes, failure = raw.size_bytes, info.failure
        for event in info.skipped:
            logger.warning("an event was left out: %s", event.told(info.head.journal_name))
        del raw
        yield info, chunk
        if failure is not None:
            raise failure
        if on_bytes is not None:
            on_bytes(size_bytes)
        del info, chunk  # their memory is the next ones'


def files_config(paths: Sequence[PathLike], skip_events: Sequence[str] = ()) -> InstanceConfig:
    """Return the configuration of a source of these files, or of one. Raises ConfigError."""
    if not paths:
        raise ConfigError("no binlog file given")
    each = [paths] if isinstance(paths, str | os.PathLike) else paths
    given = {"files": [str(path) for path in each], "skip_events": tuple(skip_events)}
    config = {"destination": "files", "chunk_bytes": _CHUNK_BYTES, "source": given}
    return instance_of(config)


def new_parser(
    schema_sql: PathLike | None = None, lower_case_table_names: int | None = None
) -> EventParser:
    """Return a parser that stands at the beginning of files (FileOptions). Raises ConfigError."""
    sql = ""
    if schema_sql is not None:
        try:
            sql = Path(schema_sql).read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"cannot read {schema_sql}: {error.strerror}") from error
    if lower_case_table_names not in (None, 0, 1, 2):
        raise ConfigError(f"lower_case_table_names is 0, 1 or 2, not {lower_case_table_names}")
    keeper = SchemaKeeper(None, names=Names(lower_case_table_names))
    return EventParser(SchemaRegistry(sql), keeper)


def decode_batches(
    paths: Sequence[PathLike],
    *,
    tables: str = ALL_TABLES,
    json_diff: bool = False,
    **reading: Unpack[FileOptions],
) -> Iterator[list[pa.RecordBatch]]:
    """Yield the batches of `decode_files`, a list for each chunk: rows of two tables that are mixed
    in the log are in one list, and all of it comes before the next list."""
    yield from batches_of(decode_chunks(paths, **reading), tables, json_diff)


def batches_of(
    decoded: Iterable[tuple[ChunkInfo, DecodedChunk]], tables: str, json_diff: bool
) -> Iterator[list[pa.RecordBatch]]:
    """Yield the batches of decoded chunks, a list for each chunk; the first one begins between
    transactions."""
    wanted, transactions = TableFilter(tables), OpenTransactions()
    for info, chunk in decoded:
        admitted = info.admitted_tables(wanted.admits)
        mask = info.entries_of(admitted)
        count, context = chunk.layout.event_count, LogContext(open=transactions.add(info))
        found = change_batches(
            chunk, 0, count, mask, admitted, json_diff=json_diff, context=context
        )
        batches = list(found)
        del info, chunk, mask, found
        yield batches
        del batches


def decode_files(
    paths: Sequence[PathLike],
    *,
    tables: str = ALL_TABLES,
    json_diff: bool = False,
    **reading: Unpack[FileOptions],
) -> Iterator[pa.RecordBatch]:
    """Yield Arrow batches of binlog files: one table version each, rows in log order; and one for
    each change of a table as a whole, such as TRUNCATE (docs/reference/types.md).

    `tables` is Canal's regex list over `schema.table`; `json_diff` adds a column with the diffs of
    partial JSON updates; the others are those of FileOptions. Raises what `decode_chunks` raises.
    """
    for batches in decode_batches(paths, tables=tables, json_diff=json_diff, **reading):
        yield from batches
        del batches  # their memory is the next ones'


def decode_entries(
    paths: Sequence[PathLike],
    *,
    tables: str = ALL_TABLES,
    time_zone: str = "UTC",
    gtid: bool = False,
    gtid_set: str = "",
    **reading: Unpack[FileOptions],
) -> Iterator[bytes]:
    """Yield Canal entries of binlog files: varint length + `Entry`, one after the other, in pieces
    of whole entries.

    `tables` is Canal's regex list over `schema.table`; `time_zone` is that in which TIMESTAMP is
    printed. `gtid` adds Canal's GTID fields; header.gtid is `gtid_set` and the transactions since.
    The others are those of FileOptions. Raises what `decode_chunks` raises.
    """
    wanted = TableFilter(tables)
    executed = gtid_set
    for info, chunk in decode_chunks(paths, **reading):
        mask = info.admitted(wanted.admits)
        count = chunk.layout.event_count
        yield from delimited_pieces(
            chunk, 0, count, mask, time_zone=time_zone, gtid=gtid, gtid_set=executed
        )
        if gtid:
            executed = gtid_set_after(executed, info.gtids)
        del info, chunk  # their memory is the next one's


def decode_messages(
    paths: Sequence[PathLike],
    options: FlatOptions,
    *,
    batch_entries: int = 50,
    as_entries: bool = False,
    tables: str = ALL_TABLES,
    gtid_set: str = "",
    **reading: Unpack[FileOptions],
) -> Iterator[bytes]:
    """Yield what Canal would send to a message queue, as JSON lines (views/message_lines.py):
    batches of so many entries, as FlatMessages or, `as_entries`, in protobuf.

    The other parameters are those of `decode_entries`; time zone and GTIDs are in `options`.
    """
    wanted = TableFilter(tables)
    lines, executed = MessageLines(options, batch_entries, as_entries=as_entries), gtid_set
    for info, chunk in decode_chunks(paths, **reading):
        yield from lines.add(chunk, info.admitted(wanted.admits), executed)
        if options.gtid:
            executed = gtid_set_after(executed, info.gtids)
        del info, chunk  # their memory is the next one's
    yield from lines.finish()


def decode_change_events(
    paths: Sequence[PathLike],
    options: DebeziumOptions,
    *,
    tables: str = ALL_TABLES,
    **reading: Unpack[FileOptions],
) -> Iterator[list[Events]]:
    """Yield Debezium's change events, a list for each chunk: `message_lines` prints one, and
    views/avro.py makes Avro of it. Raises what `decode_chunks` raises, and UnsupportedEvent: rows
    were changed by a statement of which the log has the text alone."""
    wanted = TableFilter(tables)
    for info, chunk in decode_chunks(paths, **reading):
        admitted = info.admitted_tables(wanted.admits)
        mask, count = info.entries_of(admitted), chunk.layout.event_count
        batches = list(change_batches(chunk, 0, count, mask, admitted))
        yield events_of_chunk(chunk, batches, options)
        del info, chunk, batches  # their memory is the next ones'


def decode_debezium(
    paths: Sequence[PathLike], options: DebeziumOptions, **more: Any
) -> Iterator[bytes]:
    """Yield Debezium's messages as JSON lines. `more`: as `decode_change_events`."""
    for events in decode_change_events(paths, options, **more):
        yield from message_lines(events, options)
