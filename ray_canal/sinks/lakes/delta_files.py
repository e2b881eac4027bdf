"""Data files of a Delta table, written by several writers for one commit (file_shares.py)."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, RemoveAction
from pyarrow.dataset import Dataset
from pyarrow.fs import FileSystem, PyFileSystem

from ray_canal.model.arrays import Bools
from ray_canal.sinks.lakes.delta_ends import has_rounded_ends
from ray_canal.sinks.lakes.file_shares import Share, Writers, has_key_of, shares_of
from ray_canal.sinks.lakes.lake_types import is_span
from ray_canal.views.mysql_texts import fraction_digits, mysql_texts

_FILE_BYTES = 256 << 20
_BATCH_ROWS = 128 << 10
_GROUP_ROWS, _GROUP_BYTES = 1 << 20, 64 << 20
"""A row group has so many rows or so many bytes at most: else each commit would add a small one."""
_AS_TEXT = (pa.string(), pa.large_string(), pa.binary(), pa.null())
_TOLD_TEXT = 64  # characters of a value in the statistics
_CAUSE = re.compile(r"\s*(\x1b\[\d+m)*↳(\x1b\[\d+m)*\s*")


@dataclass(frozen=True, kw_only=True)
class DeltaTarget:
    """A table, for each of its writers. `touched`: the keys whose rows change."""

    uri: str
    options: dict[str, str] | None
    schema: pa.Schema
    touched: pa.Table


@dataclass(frozen=True)
class DeltaFiles:
    """Files that one writer has made, and those that they stand for."""

    removed: list[str]
    added: list[AddAction]


def can_be_shared(table: DeltaTable) -> bool:
    """Return whether the table's files are as this module reads and writes them: not partitioned,
    without what later versions of the protocol have."""
    protocol = table.protocol()
    return (
        protocol.min_reader_version <= 1
        and protocol.min_writer_version <= 2
        and not table.metadata().partition_columns
    )


def merge_files(
    table: DeltaTable, target: DeltaTarget, upserts: pa.Table, writers: Writers, commit: Any
) -> bool:
    """Replace the rows of the touched keys by `upserts` in one commit with these properties, which
    fails if anybody has committed since the table was loaded. Returns whether that was done: files
    of other names are not read here. Raises what delta-rs raises."""
    key = target.touched.column_names
    found = _files_between(table, target.touched[key[0]], key[0])
    if any("%" in path or "://" in path for path, _ in found):
        return False
    paths, sizes = [path for path, _ in found], [size for _, size in found]
    shares = shares_of(paths, sizes, upserts, key, writers.count)
    written = writers.write(write_share, target, shares)
    size_of, now = dict(found), int(time.time() * 1000)
    actions: list[AddAction | RemoveAction] = [
        RemoveAction(path, True, now, size_of[path], {})
        for each in written
        for path in each.removed
    ]
    actions += [action for each in written for action in each.added]
    table.create_write_transaction(
        actions, "append", Schema.from_arrow(target.schema), commit_properties=commit
    )
    table.update_incremental()
    return True


def _files_between(table: DeltaTable, keys: pa.ChunkedArray, name: str) -> list[tuple[str, int]]:
    """Return the files that may have rows of these keys, by their least key, with their sizes."""
    files = pa.table(table.get_add_actions(flatten=True)).to_pydict()
    unknown = [None] * len(files["path"])
    lows = highs = unknown
    if not pa.types.is_timestamp(keys.type) and not has_rounded_ends(keys.type):
        lows, highs = (files.get(f"{end}.{name}", unknown) for end in ("min", "max"))
    ends = pc.min_max(keys).as_py()
    least, greatest = ends["min"], ends["max"]
    told = zip(lows, highs, files["path"], files["size_bytes"], strict=True)
    rows = [
        (low, path, size)
        for low, high, path, size in told
        if low is None or high is None or (low <= greatest and high >= least)
    ]
    rows.sort(key=lambda row: (row[0] is not None, row[0], row[1]))
    return [(path, size) for _, path, size in rows]


def as_schema(
    rows: Dataset,
    schema: pa.Schema,
    refused: list[pa.ArrowInvalid],
    renamed: Mapping[str, str],
    fills: Mapping[str, pa.Scalar],
) -> Iterator[pa.RecordBatch]:
    """Yield rows with these columns and types. `renamed`: new names of columns by their old ones;
    `fills`: values of columns that are new, which are null else. `refused` gets the error of a
    value that does not fit, before it is raised."""
    old = {renamed.get(name, name): name for name in rows.schema.names}
    names = [name for name in schema.names if name in old]
    digits = {name: fraction_digits(rows.schema.field(old[name])) for name in names}
    for batch in rows.to_batches(columns=[old[name] for name in names]):
        table = pa.Table.from_batches([batch]).rename_columns(names)
        for field in schema:
            if field.name not in names:
                value = fills.get(field.name, pa.scalar(None, field.type))
                table = table.append_column(field, pa.repeat(value, len(table)))
        try:
            yield from _cast(table.select(schema.names), digits, schema).to_batches()
        except pa.ArrowInvalid as error:
            refused.append(error)
            raise


def _cast(table: pa.Table, digits: Mapping[str, int | None], schema: pa.Schema) -> pa.Table:
    """Return rows in another schema: what becomes text as the source's server writes it, times with
    the fractional digits that they were declared with."""
    for index, field in enumerate(schema):
        old = table.schema.types[index]
        if field.type == pa.string() and old not in _AS_TEXT:
            declared = digits.get(field.name)
            chunks = [_texts(chunk, declared) for chunk in table.column(index).chunks]
            table = table.set_column(index, field, pa.chunked_array(chunks, pa.string()))
        elif pa.types.is_decimal(field.type) and pa.types.is_integer(old):
            # At once, the type has to have room for each integer, not for those that are there.
            wide = pa.decimal128(38, field.type.scale)
            table = table.set_column(index, field.name, table.column(index).cast(wide))
        try:
            table = table.set_column(index, field, table.column(index).cast(field.type))
        except pa.ArrowInvalid as error:
            raise pa.ArrowInvalid(
                f"the column {field.name} is {old}, and a value does not become {field.type}: "
                f"{error}"
            ) from None
    return table.cast(schema)


def _texts(values: pa.Array, digits: int | None) -> pa.Array:
    if is_span(values.type, digits):
        values = values.cast(pa.duration("us"))
    return mysql_texts(values, digits)


def write_share(target: DeltaTarget, share: Share[str]) -> DeltaFiles:
    """Write a share's files. What it wrote is read by nobody until a commit names it."""
    files = PyFileSystem(DeltaStorageHandler(target.uri, target.options))
    output, removed = _Output(files, target.schema), []
    for path in share.files:
        with files.open_input_file(path) as source:
            parquet = pq.ParquetFile(source)
            hit = _rows_hit(parquet, target)
            if not hit.any():
                continue
            removed.append(path)
            first = 0
            for batch in parquet.iter_batches(_BATCH_ROWS):
                stays = ~hit[first : first + batch.num_rows]
                first += batch.num_rows
                output.write(_of_schema(batch.filter(pa.array(stays)), target.schema))
    output.write(_of_schema(share.upserts, target.schema))
    return DeltaFiles(removed, output.close())


def _rows_hit(parquet: pq.ParquetFile, target: DeltaTarget) -> Bools:
    """Return which rows of a file have a key that is touched."""
    key = target.touched.column_names
    schema = pa.schema([target.schema.field(name) for name in key])
    names = [name for name in key if name in parquet.schema_arrow.names]
    found = [
        has_key_of(_of_schema(batch, schema), target.touched)
        for batch in parquet.iter_batches(_BATCH_ROWS, columns=names)
    ]
    return np.concatenate([np.zeros(0, bool), *found])


def _of_schema(rows: pa.Table | pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    """Return rows of an older file; columns that were added since are null."""
    columns = [
        rows[field.name].cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


class _Output:
    """Files that are begun as they are needed."""

    def __init__(self, files: FileSystem, schema: pa.Schema) -> None:
        self._files = files
        self._schema = schema
        self._added: list[AddAction] = []
        self._path = ""
        self._stream: pa.NativeFile | None = None
        self._writer: pq.ParquetWriter | None = None
        self._told: list[pq.FileMetaData] = []
        self._rows: list[pa.Table] = []
        self._waiting = 0, 0  # rows and bytes that are in no row group yet

    def write(self, rows: pa.Table) -> None:
        """Add rows of the table's schema."""
        if not rows.num_rows:
            return
        self._rows.append(rows)
        self._waiting = self._waiting[0] + rows.num_rows, self._waiting[1] + rows.nbytes
        if self._waiting[0] >= _GROUP_ROWS or self._waiting[1] >= _GROUP_BYTES:
            self._write_group()

    def _write_group(self) -> None:
        rows, self._rows, self._waiting = self._rows, [], (0, 0)
        if not rows:
            return
        if self._writer is None:
            self._path = f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"
            self._stream = self._files.open_output_stream(self._path)
            self._told = []
            self._writer = pq.ParquetWriter(
                self._stream, self._schema, compression="snappy", metadata_collector=self._told
            )
        self._writer.write_table(pa.concat_tables(rows))
        if self._stream is not None and self._stream.tell() > _FILE_BYTES:
            self._end_file()

    def _end_file(self) -> None:
        if self._writer is not None and self._stream is not None:
            self._writer.close()
            size = self._stream.tell()
            self._stream.close()
            now = int(time.time() * 1000)
            stats = json.dumps(_statistics(self._told[0]))
            self._added.append(AddAction(self._path, size, {}, now, True, stats))
        self._writer = self._stream = None

    def close(self) -> list[AddAction]:
        """End the file in hand; return all that were written."""
        self._write_group()
        self._end_file()
        return self._added


def _statistics(told: pq.FileMetaData) -> dict[str, Any]:
    """Return what Delta keeps of a file: rows, and of columns with plain numbers and short text
    the least value, the greatest, and how many are null."""
    groups = [told.row_group(n) for n in range(told.num_row_groups)]
    lows, highs, nulls = {}, {}, {}
    for number in range(told.num_columns):
        columns = [group.column(number) for group in groups]
        name = columns[0].path_in_schema
        found = [column.statistics for column in columns]
        if "." in name or any(each is None or not each.has_null_count for each in found):
            continue
        nulls[name] = sum(each.null_count for each in found)
        if all(each.has_min_max for each in found):
            low, high = min(each.min for each in found), max(each.max for each in found)
            if _is_told(low) and _is_told(high):
                lows[name], highs[name] = low, high
    rows = sum(group.num_rows for group in groups)
    return {"numRecords": rows, "minValues": lows, "maxValues": highs, "nullCount": nulls}


def _is_told(value: object) -> bool:
    if isinstance(value, float):
        return bool(np.isfinite(value))
    return isinstance(value, int) or (isinstance(value, str) and len(value) <= _TOLD_TEXT)


def plain_text(error: Exception) -> str:
    """Return an error of delta-rs in one line: it gives each cause a line and a colour."""
    return _CAUSE.sub(": ", str(error)).strip()
