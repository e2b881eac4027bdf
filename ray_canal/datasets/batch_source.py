"""A Ray Data source of Arrow batches: one read task for each part, whose batches become blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any

import pyarrow as pa
import ray
from ray.data import Dataset, Datasource, ReadTask
from ray.data.block import BlockMetadata

from ray_canal.datasets.cluster_size import known_at_once
from ray_canal.errors import ConfigError

Batches = Callable[[], Iterable[list[pa.RecordBatch]]]


class BatchSource(Datasource):  # type: ignore[misc]
    """Parts of a log. `size_bytes`: about how large all of it is in memory; None: not known."""

    def __init__(self, name: str, parts: Sequence[Batches], size_bytes: int | None = None) -> None:
        super().__init__()
        self._name = name
        self._parts = parts
        self._size_bytes = size_bytes

    def get_name(self) -> str:
        return self._name

    def estimate_inmemory_data_size(self) -> int | None:
        return self._size_bytes

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        each = None if self._size_bytes is None else self._size_bytes // max(len(self._parts), 1)
        about = BlockMetadata(None, each, None, None)
        return [
            ReadTask(partial(_blocks, part), about, per_task_row_limit=per_task_row_limit)
            for part in self._parts
        ]


def dataset_of(source: BatchSource, parts: int) -> Dataset:
    """A Dataset whose read tasks are the source's parts."""
    if not parts:
        return ray.data.from_arrow(pa.table({}))
    return known_at_once(ray.data.read_datasource(source, override_num_blocks=parts))


def _blocks(part: Batches) -> Iterator[pa.Table]:
    """A block for each table of each chunk. Raises ConfigError: tables that do not go together."""
    types: dict[str, tuple[str, pa.DataType]] = {}
    for batches in part():
        for batch in batches:
            _refuse_conflict(batch, types)
            yield pa.Table.from_batches([with_table(batch)])


def with_table(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch with `schema.table` as its first column, and no metadata: blocks of several tables
    are joined. Names are text: Arrow groups by no dictionaries whose words differ by block."""
    names = _repeated(_table_of(batch), batch.num_rows)
    columns = [
        _as_text(column) if field.name == "journal_name" else column
        for field, column in zip(batch.schema, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays([names, *columns], names=["table", *batch.schema.names])


def _as_text(words: pa.DictionaryArray) -> pa.Array:
    if len(words.dictionary) != 1 or words.null_count:
        return words.dictionary_decode()
    return _repeated(words.dictionary[0].as_py(), len(words))


def _repeated(word: str, times: int) -> pa.Array:
    return _many(word, 1 << max(times - 1, 0).bit_length()).slice(0, times)


@lru_cache(maxsize=16)
def _many(word: str, times: int) -> pa.Array:
    """Kept, for the next batch is of the same table and file."""
    return pa.repeat(pa.scalar(word), times)


def _table_of(batch: pa.RecordBatch) -> str:
    notes = batch.schema.metadata
    return f"{notes[b'canal.schema'].decode()}.{notes[b'canal.table'].decode()}"


def _refuse_conflict(batch: pa.RecordBatch, types: dict[str, tuple[str, pa.DataType]]) -> None:
    """Raises ConfigError: a column has another type than one of its name in another table."""
    name = _table_of(batch)
    for field in batch.schema.field("after").type:
        known, given = types.setdefault(field.name, (name, field.type))
        if known != name and not _joined(given, field.type):
            raise ConfigError(
                f"column {field.name} is {field.type} in {name} and {given} in {known}: one "
                f"Dataset cannot have both; read each table by itself (tables={name!r})"
            )


def _joined(first: pa.DataType, second: pa.DataType) -> bool:
    """Return whether Ray Data joins blocks of both types."""
    if first == second:
        return True
    try:
        pa.unify_schemas(
            [pa.schema([("c", first)]), pa.schema([("c", second)])], promote_options="permissive"
        )
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return False
    return True
