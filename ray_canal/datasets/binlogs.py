"""Binlog files as a Ray Dataset, decoded in parallel over files and over ranges within a file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import ray
from ray.data import Dataset

from ray_canal.client.joining import connect_ray
from ray_canal.datasets.batch_source import BatchSource, dataset_of
from ray_canal.file_parts import PART_BYTES, FilePart, plan_parts
from ray_canal.malloc import keep_freed_memory
from ray_canal.offline import ALL_TABLES, PathLike
from ray_canal.source.binlog_files import list_binlogs

_TASKS_OF_CPU, _PART_BYTES_MAX = 4, 256 << 20
_ARROW_PER_BINLOG = 2
"""Bytes of Arrow batches for one of the binlog, about: images are there twice, envelopes too."""


def read_binlogs(
    paths: Sequence[PathLike],
    *,
    tables: str = ALL_TABLES,
    schema_sql: PathLike | None = None,
    lower_case_table_names: int | None = None,
    skip_events: Sequence[str] = (),
    json_diff: bool = False,
    part_bytes: int | None = None,
) -> Dataset:
    """The changes in binlog files (or in directories of them) as a Ray Dataset.

    Rows are those of `decode_files`, which has the parameters, too, with the table's name as a
    first column, `table`. A read task has about `part_bytes` of a file, whole transactions (None:
    four tasks for each CPU of the cluster, of 32 to 256 MiB); it runs on any node, which must see
    the file under the same path. Blocks come in the log's order where
    Ray Data keeps order (`DataContext.execution_options.preserve_order`).

    Files are looked through here for event headers, and parsed around statements that change tables
    (before one that empties or drops a table that no statement has made, all of it). Raises
    ConfigError, PositionNotFound, DecodeError kinds; what a read task finds is raised by the
    Dataset, with file and offset.
    """
    connect_ray()
    paths = [paths] if isinstance(paths, str | os.PathLike) else paths
    parts = plan_parts(
        paths,
        tables=tables,
        schema_sql=schema_sql,
        lower_case_table_names=lower_case_table_names,
        skip_events=skip_events,
        json_diff=json_diff,
        part_bytes=part_bytes or _part_bytes(paths),
    )
    size_bytes = sum(part.range.size_bytes for part in parts) * _ARROW_PER_BINLOG
    source = BatchSource("ReadBinlogs", [partial(_decoded, part) for part in parts], size_bytes)
    return dataset_of(source, len(parts))


def _part_bytes(paths: Sequence[PathLike]) -> int:
    """Return the size of a part by default: a task costs Ray Data as much as decoding megabytes."""
    size_bytes = sum(path.stat().st_size for path in list_binlogs(tuple(map(Path, paths))))
    tasks = _TASKS_OF_CPU * max(1, int(ray.cluster_resources().get("CPU", 1)))
    return min(max(size_bytes // tasks, PART_BYTES), _PART_BYTES_MAX)


def _decoded(part: FilePart) -> Iterator[list[pa.RecordBatch]]:
    """Return a part's batches, in a worker of Ray's that decodes one part after the other."""
    keep_freed_memory()
    return part.batches()
