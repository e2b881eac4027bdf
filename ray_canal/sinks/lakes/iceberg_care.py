"""Keeps an Iceberg table's files few: manifests at each commit, data files and old snapshots by
command. pyiceberg merges manifests only where it appends, and its expiry leaves all files."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterable, Sequence

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile
from pyiceberg.table import FileScanTask, Table, TableProperties, Transaction
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update.snapshot import _ManifestMergeManager, _OverwriteFiles
from pyiceberg.utils.properties import property_as_bool, property_as_int

from ray_canal.sinks.lakes.iceberg_files import HELD_BYTES, IcebergTarget, files_of, rows_of

_SMALL_BYTES = 16 << 20
"""Files below this are joined."""


class _Replacement(_OverwriteFiles):  # type: ignore[misc]
    """An overwrite after which no manifest is left that has only what earlier snapshots removed,
    and small ones are merged once there are many."""

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        kept = [
            each
            for each in super()._process_manifests(manifests)
            if each.added_snapshot_id == self._snapshot_id
            or each.has_added_files()
            or each.has_existing_files()
        ]
        properties, names = self._transaction.table_metadata.properties, TableProperties
        merges = _ManifestMergeManager(
            target_size_bytes=property_as_int(
                properties,
                names.MANIFEST_TARGET_SIZE_BYTES,
                names.MANIFEST_TARGET_SIZE_BYTES_DEFAULT,
            )
            or names.MANIFEST_TARGET_SIZE_BYTES_DEFAULT,
            min_count_to_merge=property_as_int(
                properties, names.MANIFEST_MIN_MERGE_COUNT, names.MANIFEST_MIN_MERGE_COUNT_DEFAULT
            )
            or names.MANIFEST_MIN_MERGE_COUNT_DEFAULT,
            merge_enabled=property_as_bool(properties, names.MANIFEST_MERGE_ENABLED, True),
            snapshot_producer=self,
        )
        data = [each for each in kept if each.content == ManifestContent.DATA]
        others = [each for each in kept if each.content != ManifestContent.DATA]
        return [*merges.merge_manifests(data), *others]


def replace_files(
    transaction: Transaction, io: FileIO, removed: Iterable[DataFile], added: Iterable[DataFile]
) -> None:
    """Have data files instead of others, in a snapshot of a transaction."""
    is_first = transaction.table_metadata.current_snapshot() is None
    operation = Operation.APPEND if is_first else Operation.OVERWRITE
    with _Replacement(operation, transaction, io) as snapshot:
        for file in removed:
            snapshot.delete_data_file(file)
        for file in added:
            snapshot.append_data_file(file)


def joined_files(table: Table) -> tuple[list[DataFile], list[DataFile]]:
    """Write the rows of small files, and of those with delete files, into fewer; return the old and
    the new ones. No more is held in memory at once than a sink's commit has."""
    target = IcebergTarget(metadata=table.metadata, io=table.io, touched=pa.table({}))
    removed: list[DataFile] = []
    added: list[DataFile] = []
    tasks: list[FileScanTask] = []
    held: list[pa.Table] = []

    def flush() -> None:
        if len(tasks) > 1 or any(task.delete_files for task in tasks):
            removed.extend(task.file for task in tasks)
            added.extend(files_of(target, held))
        tasks.clear()
        held.clear()

    for task in table.scan().plan_files():
        if task.file.file_size_in_bytes < _SMALL_BYTES or task.delete_files:
            rows = rows_of(target, task, None)
            if held and sum(each.nbytes for each in held) + rows.nbytes > HELD_BYTES:
                flush()
            tasks.append(task)
            held.append(rows)
    flush()
    return removed, added


def expire(table: Table, age: dt.timedelta) -> tuple[int, int]:
    """Forget snapshots that are older, but for heads of branches and tags, and remove the files
    that only these have. Returns how many snapshots and files went."""
    before = list(table.snapshots())
    table.maintenance.expire_snapshots().older_than(dt.datetime.now(dt.timezone.utc) - age).commit()
    kept = {snapshot.snapshot_id for snapshot in table.refresh().snapshots()}
    gone = [snapshot for snapshot in before if snapshot.snapshot_id not in kept]
    needed = _files_of_snapshots(table.io, table.snapshots(), are_live=True)
    unused = _files_of_snapshots(table.io, gone, are_live=False) - needed
    for path in unused:
        with contextlib.suppress(OSError):  # it is gone, or the next one's turn
            table.io.delete(path)
    return len(gone), len(unused)


def _files_of_snapshots(io: FileIO, snapshots: Sequence[Snapshot], *, are_live: bool) -> set[str]:
    """Return paths of the snapshots' lists, manifests and data files. `are_live`: of data files
    those alone that a snapshot has, not what it removed."""
    found: set[str] = set()
    for snapshot in snapshots:
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(io):
            if manifest.manifest_path not in found:
                found.add(manifest.manifest_path)
                entries = manifest.fetch_manifest_entry(io, discard_deleted=are_live)
                found.update(entry.data_file.file_path for entry in entries)
    return found
