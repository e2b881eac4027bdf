"""`canal.read_snapshot`: the rows of tables as Arrow batches, and the place to stream on from."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import TracebackType
from typing import Literal

import pyarrow as pa

from ray_canal.config import CanalConfig, load
from ray_canal.model.log_context import LogContext
from ray_canal.model.position import EntryPosition
from ray_canal.snapshot.consistent import ConsistentSnapshot, Read
from ray_canal.views.arrow import batches

_CONTEXT = LogContext(numbered=False)  # rows that were read are in no transaction
ALL_TABLES = r".*\..*"


class Snapshot:
    """An iterator over Arrow batches of rows, one table each, with the stream's schema: their
    `event_type` is READ, `before` is null. A context manager: leaving it closes the connections.

    `position`: the place of the log at which all rows are so; reading changes goes on there.
    `tables`: the names of what is read. `left_out`: (name, reason) of what the patterns match that
    has no rows to read, such as views.
    """

    def __init__(
        self, source: ConsistentSnapshot, irregular_dates: Literal["null", "error"]
    ) -> None:
        self._source = source
        self._irregular = irregular_dates
        self.tables = tuple(table.meta.full_name for table in source.tables)
        self.left_out = source.left_out
        self.rows = 0
        self._found = self._batches()

    @property
    def position(self) -> EntryPosition:
        return self._source.position

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        return next(self._found)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for read in self._source.chunks():
            self.rows += read.rows
            yield from self._of(read)

    def _of(self, read: Read) -> Iterator[pa.RecordBatch]:
        count = read.chunk.layout.event_count
        return batches(
            read.chunk, 0, count, irregular=self._irregular, context=_CONTEXT
        )

    def close(self) -> None:
        """End reading and close the connections."""
        self._source.close()


def read_snapshot(
    config: CanalConfig | str | os.PathLike[str],
    destination: str,
    *,
    tables: str = ALL_TABLES,
    readers: int = 1,
    may_lock: bool = False,
) -> Snapshot:
    """Read all rows of tables as they are at one place of a server's log. No Ray is needed.

    `tables` is Canal's regex list over `schema.table`; `readers` so many connections read at once;
    `may_lock` allows FLUSH TABLES WITH READ LOCK for some milliseconds, for servers without GTIDs
    and for those that write too much for several readers to begin at one moment.

    Raises ConfigError: no such table, or one whose engine has no read view; ServerSettingRefused;
    SourceError and DecodeError kinds.
    """
    deployment = config if isinstance(config, CanalConfig) else load(config)
    instance = deployment.destination(destination)
    source = ConsistentSnapshot(instance, tables, readers, may_lock)
    return Snapshot(source, instance.irregular_dates)
