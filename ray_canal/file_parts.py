"""Binlog files in parts that are decoded each by itself, on any core or machine that sees them.

A part is a range of a file (source/file_ranges.py) and the parser as it stands there. What the
parser knows comes from the log before: so what is around statements that change schemas is parsed
once, and nothing else; but where one empties or drops a table that no statement has made, the
ranges before it are, whose rows tell of the table.
"""

from __future__ import annotations

import os
import pickle
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from ray_canal.binlog.absent_columns import metas_lacking_columns
from ray_canal.binlog.chunk import RawChunk
from ray_canal.binlog.decode import decode
from ray_canal.config import InstanceConfig
from ray_canal.filter import TableFilter
from ray_canal.model.table_meta import TableMeta
from ray_canal.offline import (
    ALL_TABLES,
    PathLike,
    batches_of,
    decode_raw,
    files_config,
    new_parser,
)
from ray_canal.schema.event_parser import EventParser
from ray_canal.source.binlog_files import list_binlogs
from ray_canal.source.file_ranges import FileRange, FileRanges, range_chunks, ranges_of
from ray_canal.views.arrow import arrow_schema
from ray_canal.views.presence import PRESENT
from ray_canal.views.row_places import table_name

PART_BYTES = 32 << 20
"""About so many bytes of binlog are in a part, if nobody says otherwise."""


@dataclass(frozen=True, slots=True)
class FilePart:
    """Whole transactions of one file. `parser`: an EventParser that stands where they begin."""

    range: FileRange
    parser: bytes = field(repr=False)
    config: InstanceConfig = field(repr=False)
    tables: str = ALL_TABLES
    json_diff: bool = False

    def batches(self) -> Iterator[list[pa.RecordBatch]]:
        """The part's rows, as `decode_batches` gives them. Raises DecodeError kinds."""
        parser: EventParser = pickle.loads(self.parser)
        decoded = decode_raw(_chunks(self.range, self.config), parser)
        yield from batches_of(decoded, self.tables, self.json_diff)

    def schemas(self, table: str) -> list[pa.Schema]:
        """The columns of a table's (`schema.table`) versions that have rows in the part, the newest
        last; before them those of rows whose images lack columns, which tell so. Few rows are
        decoded. Raises DecodeError kinds."""
        parser: EventParser = pickle.loads(self.parser)
        found: dict[TableMeta, pa.Schema] = {}
        images: list[pa.Schema] = []
        for raw in _chunks(self.range, self.config):
            parsed = parser.parse(raw)
            if parsed.failure is not None:
                raise parsed.failure
            metas = [each.meta for each in parsed.tables]
            metas = [meta for meta in metas if f"{meta.schema}.{meta.table}" == table]
            if not metas:
                continue
            lacking = metas_lacking_columns(raw, parsed) if images else []
            if not images or not all(_is_told(meta, images) for meta in lacking if meta in metas):
                shown = batches_of([decode(raw, parsed)], self.tables, False)
                rows = (batch for batches in shown for batch in batches)
                new = [batch.schema for batch in rows if table_name(batch) == table]
                images += [schema for schema in new if schema not in images]
            for meta in metas:
                found[meta] = found.pop(meta, None) or arrow_schema(meta)
        return [*images, *found.values()]


def _is_told(meta: TableMeta, images: Sequence[pa.Schema]) -> bool:
    """Return whether a schema tells which columns the images of this table version have."""
    row = arrow_schema(meta).field("after").type
    return any(PRESENT[0] in each.names and each.field("after").type == row for each in images)


def plan_parts(
    paths: Sequence[PathLike],
    *,
    tables: str = ALL_TABLES,
    schema_sql: PathLike | None = None,
    lower_case_table_names: int | None = None,
    skip_events: Sequence[str] = (),
    json_diff: bool = False,
    part_bytes: int = PART_BYTES,
) -> list[FilePart]:
    """Files and directories as parts, in the log's order; the rows of all parts are those of
    `decode_files`, which has the parameters, too.

    Raises as `decode_files`: what cannot be read next to a statement that changes schemas is told
    here, everything else by its part.
    """
    TableFilter(tables)  # raises ConfigError: a bad one
    config = files_config(paths, skip_events)
    limit = config.source.event_bytes_max
    listed = list_binlogs(tuple(map(Path, config.source.files)))
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        files = list(pool.map(lambda path: ranges_of(path, part_bytes, limit), listed))
    states = _states(new_parser(schema_sql, lower_case_table_names), files, config)
    if states is None:
        parser = new_parser(schema_sql, lower_case_table_names)
        states = _states_with_rows(parser, files, config)
    ranges = (each for file in files for each in file.ranges)
    return [
        FilePart(each, state, config, tables, json_diff)
        for each, state in zip(ranges, states, strict=True)
    ]


def _states(
    parser: EventParser, files: Sequence[FileRanges], config: InstanceConfig
) -> list[bytes] | None:
    """Return the parser as it stands before each range, by what is around statements that change
    schemas alone. None: one of them has effects on a table of which perhaps only rows tell."""
    state, states = pickle.dumps(parser), list[bytes]()
    for file in files:
        statements = deque(file.statements)
        for each in file.ranges:
            states.append(state)
            has_any = bool(statements) and statements[0].begin < each.end
            while statements and statements[0].begin < each.end:
                _parse(parser, statements.popleft(), config)
                if parser.has_asked_rows:
                    return None
            if has_any:
                state = pickle.dumps(parser)
    return states


def _states_with_rows(
    parser: EventParser, files: Sequence[FileRanges], config: InstanceConfig
) -> list[bytes]:
    """Return the same, by all that is read up to the last such statement."""
    ranges, needed = list[FileRange](), 0
    for file in files:
        ranges += file.ranges
        needed = len(ranges) - 1 if file.statements else needed
    states = [pickle.dumps(parser)]
    for number, each in enumerate(ranges[:-1]):
        if number < needed:
            _parse(parser, each, config)
            states.append(pickle.dumps(parser))
        else:
            states.append(states[-1])
    return states[: len(ranges)]


def _parse(parser: EventParser, wanted: FileRange, config: InstanceConfig) -> None:
    """Take the parser through a range, for what is in it of schemas."""
    for raw in _chunks(wanted, config):
        failure = parser.parse(raw).failure
        if failure is not None:
            raise failure


def _chunks(wanted: FileRange, config: InstanceConfig) -> Iterator[RawChunk]:
    source = config.source
    return range_chunks(wanted, config.chunk_bytes, source.event_bytes_max, source.skipped_places)
