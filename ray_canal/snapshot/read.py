"""`canal.read_snapshot`: the rows of tables as Arrow batches, and the place to stream on from."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import TracebackType
from typing import Literal

import pyarrow as pa

from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.config import CanalConfig, load
from ray_canal.errors import ConfigError
from ray_canal.model.arrays import Bools
from ray_canal.model.log_context import LogContext
from ray_canal.model.position import EntryPosition
from ray_canal.model.snapshot_wish import SnapshotWish
from ray_canal.snapshot.changes import LogPart
from ray_canal.snapshot.consistent import ConsistentSnapshot, moment_readers
from ray_canal.snapshot.keyed import KeyedSnapshot
from ray_canal.snapshot.moment_reader import Read
from ray_canal.views.arrow import batches
from ray_canal.views.plain_arrays import bools
from ray_canal.views.table_events import change_batches

_CONTEXT = LogContext(numbered=False)  # rows that were read are in no transaction
Mode = Literal["consistent", "keyed"]
ALL_TABLES = r".*\..*"


class Snapshot:
    """An iterator over Arrow batches of rows, one table each, with the stream's schema: their
    `event_type` is READ, `before` is null. A context manager: leaving it closes the connections.
    In mode "keyed" changes come between them: in this order, later ones replace earlier ones.

    `position`: the place of the log at which all rows are so; reading changes goes on there. In
    mode "keyed" it is known when the last batch has come.
    `tables`: the names of what is read. `left_out`: (name, reason) of what the patterns match that
    has no rows to read, such as views.
    """

    def __init__(
        self,
        source: ConsistentSnapshot | KeyedSnapshot,
        irregular_dates: Literal["null", "error"],
    ) -> None:
        self._source = source
        self._irregular = irregular_dates
        self.tables = tuple(table.meta.full_name for table in source.tables)
        self.left_out = source.left_out
        self.rows = 0
        self._found = self._batches()

    @property
    def position(self) -> EntryPosition:
        """Return the place of the log from which changes go on."""
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
        if isinstance(self._source, KeyedSnapshot):
            for item in self._source.items():
                if isinstance(item, LogPart):
                    yield from self._changes(self._source, item)
                else:
                    yield from self._rows_of(item.chunk, item.kept)
            return
        for read in self._source.chunks():
            assert isinstance(read, Read)  # its readers are of this process
            yield from self._rows_of(read.chunk, None)

    def _rows_of(self, chunk: DecodedChunk, kept: Bools | None) -> Iterator[pa.RecordBatch]:
        count = chunk.layout.event_count
        for batch in batches(chunk, 0, count, irregular=self._irregular, context=_CONTEXT):
            chosen = batch if kept is None or kept.all() else batch.filter(bools(kept))
            self.rows += chosen.num_rows
            if chosen.num_rows:
                yield chosen

    def _changes(self, source: KeyedSnapshot, part: LogPart) -> Iterator[pa.RecordBatch]:
        admitted = part.info.admitted_tables(source.admits)
        mask = part.info.entries_of(admitted)
        return change_batches(
            part.chunk, part.first, part.last, mask, admitted, context=_CONTEXT,
            irregular=self._irregular,
        )  # fmt: skip

    def close(self) -> None:
        """End reading and close the connections."""
        self._source.close()


def read_snapshot(
    config: CanalConfig | str | os.PathLike[str],
    destination: str,
    *,
    tables: str = ALL_TABLES,
    mode: Mode = "consistent",
    readers: int = 1,
    may_lock: bool = False,
) -> Snapshot:
    """Read all rows of tables as they are at one place of a server's log. No Ray is needed.

    `mode` "consistent": all rows are of one moment, which the server keeps until they are read.
    "keyed": rows are read by chunks of their keys, with the changes of the log between them; when
    the last one has come, what came is what all tables hold at `position`. `tables` is Canal's
    regex list over `schema.table`; `readers` so many connections read at once; `may_lock` allows
    FLUSH TABLES WITH READ LOCK for some milliseconds, for servers without GTIDs and for those that
    write too much for several readers to begin at one moment (both: "consistent" only).

    Raises ConfigError: no such table, or one that cannot be read so; ServerSettingRefused;
    SourceError and DecodeError kinds.
    """
    deployment = config if isinstance(config, CanalConfig) else load(config)
    instance = deployment.destination(destination)
    if mode == "keyed":
        if readers != 1 or may_lock:
            raise ConfigError('readers and may_lock are of mode "consistent"')
        return Snapshot(KeyedSnapshot(instance, tables), instance.irregular_dates)
    if mode != "consistent":
        raise ConfigError(f'mode {mode!r}: expected "consistent" or "keyed"')
    opened = moment_readers(instance, readers)
    source = ConsistentSnapshot(instance, (SnapshotWish(tables),), opened, may_lock)
    return Snapshot(source, instance.irregular_dates)
