"""Data files of an Iceberg table, written by several writers for one commit (file_shares.py)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue, And, GreaterThanOrEqual, LessThanOrEqual
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import ArrowScan, _dataframe_to_data_files
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.metadata import TableMetadata

from ray_canal.sinks.lakes.file_shares import Share, Writers, has_key_of, shares_of

HELD_BYTES = 256 << 20
"""Rows in memory before a file is written."""


@dataclass(frozen=True, kw_only=True)
class IcebergTarget:
    """A table, for each of its writers. `touched`: the keys whose rows change."""

    metadata: TableMetadata
    io: FileIO
    touched: pa.Table


@dataclass(frozen=True)
class IcebergFiles:
    """Files that writers have made, and those that they stand for."""

    removed: list[DataFile]
    added: list[DataFile]


def write_files(
    table: Table, touched: pa.Table, upserts: pa.Table, writers: Writers
) -> IcebergFiles:
    """Write files in which the rows of the touched keys are replaced by `upserts`; they count when
    a commit names them. In columns that these lack, a row keeps what it has. Raises what pyiceberg
    raises."""
    key, lacking = touched.column_names, _lacking(table.metadata, upserts)
    ends = pc.min_max(touched[key[0]]).as_py()
    between = And(GreaterThanOrEqual(key[0], ends["min"]), LessThanOrEqual(key[0], ends["max"]))
    found = list(table.scan(row_filter=between).plan_files())
    found.sort(key=lambda task: task.file.file_path)
    sizes = [task.file.file_size_in_bytes for task in found]
    shares = shares_of(found, sizes, upserts, key, 1 if lacking else writers.count)
    target = IcebergTarget(metadata=table.metadata, io=table.io, touched=touched)
    written = writers.write(write_share, target, shares)
    return IcebergFiles(
        [file for each in written for file in each.removed],
        [file for each in written for file in each.added],
    )


def write_share(target: IcebergTarget, share: Share[FileScanTask]) -> IcebergFiles:
    """Write a share's files: what is left of old ones and the new rows, together."""
    removed, replaced = list[DataFile](), list[pa.Table]()
    key, lacking = target.touched.column_names, _lacking(target.metadata, share.upserts)

    def rows() -> Iterator[pa.Table]:
        for task in share.files:
            keys = rows_of(target, task, key)
            hit = has_key_of(keys.cast(target.touched.schema), target.touched)
            if hit.any():
                removed.append(task.file)
                if not hit.all():
                    yield rows_of(target, task, None).filter(pa.array(~hit))
                if lacking:
                    old = rows_of(target, task, [*key, *lacking])
                    replaced.append(old.filter(pa.array(hit)))
        yield _completed(share.upserts, replaced, key, lacking)

    added = _joined_files(target, rows())
    return IcebergFiles(removed, added)


def _lacking(metadata: TableMetadata, rows: pa.Table) -> list[str]:
    """Return the table's columns that are not given."""
    return [f.name for f in metadata.schema().fields if f.name not in rows.column_names]


def _completed(
    upserts: pa.Table, replaced: Sequence[pa.Table], key: Sequence[str], lacking: Sequence[str]
) -> pa.Table:
    """Return rows with the columns that they lack, as the rows of their keys have them."""
    if not replaced:
        return upserts
    old = pa.concat_tables(replaced, promote_options="permissive")
    keys = upserts.select(list(key))
    places = old.select(list(key)).cast(keys.schema)
    places = places.append_column("canal_old", pa.array(range(len(old)), pa.int64()))
    # A row that was written twice by hand is one again.
    places = places.group_by(list(key)).aggregate([("canal_old", "max")])
    numbered = keys.append_column("canal_row", pa.array(range(len(keys)), pa.int64()))
    joined = numbered.join(places, list(key), join_type="left outer").sort_by("canal_row")
    for name in lacking:
        upserts = upserts.append_column(old.field(name), old[name].take(joined["canal_old_max"]))
    return upserts


def filled_files(
    table: Table, metadata: TableMetadata, fills: Mapping[str, pa.Scalar]
) -> IcebergFiles:
    """Write all rows into new files, by what will be the table's metadata: with these values in
    columns that are new. Raises what pyiceberg raises."""
    target = IcebergTarget(metadata=metadata, io=table.io, touched=pa.table({}))
    tasks = list(table.scan().plan_files())

    def filled(task: FileScanTask) -> pa.Table:
        rows = rows_of(target, task, None)
        for name, value in fills.items():
            at = rows.schema.get_field_index(name)
            rows = rows.set_column(at, name, pa.repeat(value, len(rows)))
        return rows

    return IcebergFiles([task.file for task in tasks], _joined_files(target, map(filled, tasks)))


def _joined_files(target: IcebergTarget, tables: Iterable[pa.Table]) -> list[DataFile]:
    """Write tables into files, those together that fit into memory."""
    added, held, size = list[DataFile](), list[pa.Table](), 0
    for rows in tables:
        held.append(rows)
        size += rows.nbytes
        if size > HELD_BYTES:
            added.extend(files_of(target, held))
            held, size = [], 0
    if held:
        added.extend(files_of(target, held))
    return added


def rows_of(target: IcebergTarget, task: FileScanTask, names: Sequence[str] | None) -> pa.Table:
    """Return a file's rows, those left out that delete files name."""
    schema = target.metadata.schema()
    if names is not None:
        schema = schema.select(*names)
    scan = ArrowScan(target.metadata, target.io, schema, AlwaysTrue())
    return scan.to_table([FileScanTask(task.file, task.delete_files)])


def files_of(target: IcebergTarget, tables: Sequence[pa.Table]) -> list[DataFile]:
    """Write rows into new files."""
    rows = pa.concat_tables(tables, promote_options="permissive")
    if not rows.num_rows:
        return []
    return list(_dataframe_to_data_files(target.metadata, rows, target.io))
