"""Batch reads, `spark.read.format("ray_canal")`: binlog files, and what a destination's log has.

Files are decoded in parallel by file and by range within a file (file_parts.py): by Ray tasks,
whose results executors read as they come; without Ray by threads of this process. Only the columns
that the query needs are written.
"""

from __future__ import annotations

import os
import secrets
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.types as kind

from ray_canal.client.log_end import LogEnd
from ray_canal.errors import ConfigError
from ray_canal.file_parts import FilePart, plan_parts
from ray_canal.spark.ahead import EMPTY_BATCH, MessageSource
from ray_canal.spark.chunks import (
    Carrier,
    ChunkOwner,
    MemoryFile,
    owner_of,
    shipped,
    write_chunks,
    write_streams,
)
from ray_canal.spark.frames import common_schema, tables_batches
from ray_canal.spark.lacking import told, with_flags
from ray_canal.spark.read_options import ReadOptions
from ray_canal.spark.schema import in_letters_of, is_part_of, merged_type, readable_schema
from ray_canal.spark.stream_schema import table_filter, with_note_columns
from ray_canal.spark.tasks import references, results
from ray_canal.views.row_places import place_at

T = TypeVar("T")

_POLL_S = 0.2
_MEMORY_PART = 8
"""Binlog files of more than this part of the machine's memory have their rows on disk."""
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


@dataclass
class _Read:
    places: list[str]
    holds: list[Any] = field(default_factory=list)
    close: Callable[[], None] = lambda: None
    owner: ChunkOwner = field(default_factory=ChunkOwner)


class BatchReads:
    """A session's reads. What was decoded for one is kept until Spark has done with it."""

    def __init__(
        self,
        new_carrier: Callable[[ChunkOwner], Carrier],
        cores: Callable[[], int],
        on_ray: Callable[[], bool],
    ) -> None:
        self._new_carrier = new_carrier
        self._cores = cores
        self._on_ray = on_ray
        self._reads: dict[str, _Read] = {}
        self._lock = threading.Lock()

    def schema(self, options: ReadOptions) -> pa.Schema:
        """The columns of a table in files. Raises ConfigError: it has no row there."""
        schemas = self._each(partial(_schemas_of, table=options.table), _parts(options))
        found = [schema for part in schemas for schema in part]
        if not found:
            raise ConfigError(
                f"there is no change of {options.table} in {', '.join(options.paths)}; names are "
                "compared as they stand in the log"
            )
        merged = found[0]
        for schema in found[1:]:
            one = merged_type(pa.struct(list(merged)), pa.struct(list(schema)))
            merged = pa.schema(list(one), schema.metadata)
        return with_note_columns(with_flags(merged))

    def open(self, options: ReadOptions, schema: pa.Schema) -> tuple[str, list[str]]:
        """A read's name, and the places of its rows in the columns of `schema`."""
        return self._kept(self._of_files(options, schema))

    def open_log(
        self, options: ReadOptions, schema: pa.Schema, messages: Iterable[list[pa.RecordBatch]]
    ) -> tuple[str, list[str]]:
        """The same of what the log holds; see `log_batches`."""
        owner, places = ChunkOwner(is_read=True), list[str]()
        carrier = self._new_carrier(owner)
        try:
            for batches in messages:
                shown = [pruned(batch, schema) for batch in batches]
                count = options.partitions or self._cores()
                places += write_chunks(shown, schema, carrier, count)
        except BaseException:
            carrier.release()
            raise
        owner.use()
        return self._kept(_Read(places, [], carrier.release, owner))

    def _kept(self, read: _Read) -> tuple[str, list[str]]:
        name = secrets.token_hex(8)
        with self._lock:
            self._reads[name] = read
        return name, read.places

    def release(self, name: str) -> None:
        """Free what a read's rows are in."""
        with self._lock:
            read = self._reads.pop(name, None)
        if read is not None:
            read.close()

    def __len__(self) -> int:
        """Return how many are open."""
        return len(self._reads)

    def close(self) -> None:
        for name in list(self._reads):
            self.release(name)

    def close_idle(self, horizon: float) -> None:
        """Free the reads of which nothing was fetched since this moment (time.monotonic)."""
        for name, read in list(self._reads.items()):
            if read.owner.used_s < horizon:
                self.release(name)

    def _of_files(self, options: ReadOptions, schema: pa.Schema) -> _Read:
        parts = _parts(options)
        write = partial(_rows_of, options=options, schema=schema)
        if self._on_ray():
            found = references(write, parts, self._cores())
            places = [f"ray:{each.hex()}:{owner_of(each).hex()}" for each in found]
            return _Read(places, found, found.clear)
        files: list[MemoryFile] = []
        folder = _folder_for(sum(part.range.size_bytes for part in parts))

        def put(part: FilePart) -> str:
            file = MemoryFile(folder)
            files.append(file)
            return file.put_bytes(write(part))

        def close() -> None:
            for file in files:
                file.release()

        try:
            return _Read(_side_by_side(put, parts), files, close)
        except BaseException:
            close()
            raise

    def _each(self, function: Callable[[FilePart], T], parts: Sequence[FilePart]) -> list[T]:
        if not self._on_ray():
            return _side_by_side(function, parts)
        return results(function, parts, self._cores())


def _folder_for(size_bytes: int) -> str | None:
    """The folder in which the rows of so much binlog are kept; None: in memory. Of wide rows they
    are twice as large as the binlog."""
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return tempfile.gettempdir() if size_bytes > memory_bytes // _MEMORY_PART else None


def _side_by_side(function: Callable[[FilePart], T], parts: Sequence[FilePart]) -> list[T]:
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(function, parts))


def log_batches(
    connector: MessageSource, options: ReadOptions, end: LogEnd
) -> Iterator[list[pa.RecordBatch]]:
    """Yield what messages have of a table, up to the one that reaches `end`. `connector` has
    subscribed, from the log's beginning; nothing is acked, so that the log stays as it is."""
    while True:
        message = connector.get_without_ack(options.batch_size, _POLL_S)
        if message.id != EMPTY_BATCH:
            tables = tables_batches(
                message.batches, frozenset({options.table}), options.statements
            )
            batches = tables.get(options.table, [])
            if batches:
                yield batches
                if end.is_reached(place_at(batches[-1], -1)):
                    return
        elif message.finished or end.is_empty():
            return


def log_schema(
    messages: Iterable[list[pa.RecordBatch]], options: ReadOptions
) -> pa.Schema:
    """The columns of a table in the log, in all its versions. Raises ConfigError: it is not
    there."""
    found: list[pa.RecordBatch] = []
    for batches in messages:
        for batch in batches:
            schema = batch.schema
            if found and found[-1].schema.equals(schema, check_metadata=True):
                continue
            # A version that comes back is the newest again.
            found = [f for f in found if not f.schema.equals(schema, check_metadata=True)]
            found.append(pa.RecordBatch.from_pylist([], schema))
    if not found:
        raise ConfigError(
            f"the log of {options.destination} holds no change of {options.table}, so its columns "
            "are not known; give .schema(...), the schema of an earlier load()"
        )
    return with_note_columns(common_schema(found))


def _parts(options: ReadOptions) -> list[FilePart]:
    return plan_parts(
        options.paths,
        tables=table_filter(options.table),
        schema_sql=options.schema_sql,
        lower_case_table_names=options.lower_case_table_names,
        part_bytes=options.part_bytes,
    )


def _schemas_of(part: FilePart, table: str) -> list[pa.Schema]:
    return [readable_schema(schema) for schema in part.schemas(table)]


def _rows_of(part: FilePart, options: ReadOptions, schema: pa.Schema) -> bytes:
    """The Arrow IPC streams of a part's rows, in the columns of `schema`."""
    sink, wanted = pa.BufferOutputStream(), frozenset({options.table})
    for batches in part.batches():
        found = tables_batches(batches, wanted, options.statements).get(options.table, [])
        write_streams(sink, [shipped(pruned(batch, schema), schema) for batch in found])
    # `bytes` on purpose: Ray stores them raw, so that a JVM can read them; but not if there are
    # none.
    rows: bytes = sink.getvalue().to_pybytes()
    return rows or _END_OF_STREAM


def pruned(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch with the columns, at any depth, that both it and `schema` have; with none it still
    has its rows. Raises ConfigError: one has a type that does not fit."""
    batch = in_letters_of(told(batch, schema), schema)
    array = pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))
    shown = _pruned(array, pa.struct(list(schema)))
    found = pa.RecordBatch.from_struct_array(shown)
    if not is_part_of(readable_schema(found.schema), schema):
        raise ConfigError(
            f"{place_at(batch, 0)} has columns of other types than the DataFrame: call load() "
            "again, without .schema(...)"
        )
    return found


def _pruned(array: pa.Array, wanted: pa.StructType) -> pa.StructArray:
    names = {field.name: field.type for field in wanted}
    found = {
        field.name: _pruned(array.field(index), names[field.name])
        if kind.is_struct(field.type) and kind.is_struct(names[field.name])
        else array.field(index)
        for index, field in enumerate(array.type)
        if field.name in names
    }
    if not found:  # `from_arrays` would have no rows
        valid = array.is_valid()
        buffers = [valid.buffers()[1]]
        return pa.StructArray.from_buffers(pa.struct([]), len(array), buffers, -1, valid.offset)
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(list(found.values()), names=list(found), mask=mask)
