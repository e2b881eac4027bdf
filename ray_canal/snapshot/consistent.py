"""All rows of tables as they are at one place of the log.

Each reader is a connection whose transaction sees that moment, and a thread that reads tables, or
parts of large ones, one after the other. Nothing is locked and nothing written; but the server
keeps old versions of rows until the last one is read.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ray_canal.binlog.chunk import FLAVOR_MARIADB, FLAVOR_MYSQL
from ray_canal.config import InstanceConfig
from ray_canal.errors import ConfigError, TableMetaMismatch
from ray_canal.filter import TableFilter
from ray_canal.model.position import EntryPosition
from ray_canal.model.snapshot_wish import SnapshotWish
from ray_canal.snapshot.chunks import Origin
from ray_canal.snapshot.columns import selection
from ray_canal.snapshot.moment_reader import MomentReader, MomentReading, Part, RowsRead
from ray_canal.snapshot.planner import condition_of, has_integer_key, integer_ranges
from ray_canal.snapshot.read_views import open_views
from ray_canal.snapshot.stored_tables import stored_name, stored_now
from ray_canal.snapshot.tables import (
    SnapshotTable,
    WantedTable,
    made_now,
    metas_now,
    names_within,
    wanted_tables,
)
from ray_canal.source.catalog import Catalog
from ray_canal.source.catalog_tables import CatalogTables
from ray_canal.source.start.log_file import read_head
from ray_canal.source.start.server_log import log_of_server

logger = logging.getLogger(__name__)

_PART_BYTES = 64 << 20
"""Bytes of a large table that one reader reads at once."""
_WAITING_CHUNKS = 4  # of each reader
_WAIT_S = 0.1


def moment_readers(config: InstanceConfig, count: int) -> list[MomentReading]:
    """Make readers of this process, for rows that go into no log. Raises ConfigError."""
    if count < 1:
        raise ConfigError(f"a snapshot has at least one reader, not {count}")
    return [MomentReader(config) for _ in range(count)]


class ConsistentSnapshot:
    """Rows of all tables at `position`, of the server `server`. `left_out`: what the patterns match
    that is no table, and why. Close it after use; `stop`, of any thread, ends what waits."""

    def __init__(
        self,
        config: InstanceConfig,
        wishes: Sequence[SnapshotWish],
        readers: Sequence[MomentReading],
        may_lock: bool = False,
        within: TableFilter | None = None,
    ) -> None:
        """`readers` are opened and closed here. `within`: what may be read; None: everything.
        Raises ConfigError: no such table, or one that cannot be read so; SourceError kinds,
        UnsupportedEvent."""
        if not config.source.address:
            raise ConfigError(
                f"destination {config.destination!r} has no source.address: a snapshot is read "
                "from a server"
            )
        self._config = config
        self._wishes, self._within = tuple(wishes), within
        self._catalog = Catalog(config.source)
        self._described = CatalogTables(config.source)
        self._readers = tuple(readers)
        self._threads: list[threading.Thread] = []
        self._stopped = threading.Event()
        self._waiting: queue.Queue[RowsRead | BaseException | None] = queue.Queue(
            len(self._readers) * _WAITING_CHUNKS
        )
        self._lock = threading.Lock()
        try:
            self._choose()
            for reader in self._readers:
                reader.open()
            self._stored = stored_now(self._catalog)
            self.position = open_views(config, self._catalog, self._readers, may_lock)
            self.server = self._catalog.server_uuid()
            self._refuse_others()
            self._choose()  # as they are there
            for table in self.tables:
                selection(table.meta)  # whoever cannot be read is refused before anything is
            self._parts = self._cut()
            self._origin = self._origin_at(self.position)
        except BaseException:
            self.close()
            raise
        if self._stored is None and any(table.partitioned for table in self.tables):
            logger.warning(
                "MySQL at %s: an EXCHANGE PARTITION while rows are read cannot be noticed; run: "
                "GRANT PROCESS ON *.* TO the user of this source", config.source.address
            )  # fmt: skip
        for name, why in self.left_out:
            logger.warning("%s is not read: it is %s", name, why)

    @property
    def tables(self) -> tuple[SnapshotTable, ...]:
        return tuple(table for table, _ in self.wanted)

    def _choose(self) -> None:
        self.wanted: tuple[WantedTable, ...]
        self.wanted, self.left_out = wanted_tables(
            self._catalog, self._described, self._wishes, self._within
        )
        without = [table for table in self.tables if not table.transactional]
        if without:
            names = ", ".join(table.meta.full_name for table in without)
            by_key = ', or read by mode "keyed"' if all(table.key for table in without) else ""
            raise ConfigError(
                f"{names}: the engine has no read view, so its rows of one moment cannot be read; "
                f"leave the table out of the patterns{by_key}"
            )

    def log_place(self) -> EntryPosition:
        """Return `position` with what tells its file from another one of that name: when the server
        created it. Raises SourceError kinds, DecodeError."""
        with log_of_server(self._config.source, self._catalog) as log:
            created_s = read_head(log, self.position.journal_name).created_s
        return replace(self.position, created_s=created_s)

    def not_wanted(self) -> list[str]:
        """Return the names of tables that `within` admits and no wish is of."""
        wanted = [TableFilter(wish.tables) for wish in self._wishes]
        return [
            ".".join(name) for name in names_within(self._catalog, self._within)
            if not any(each.admits(*name) for each in wanted)
        ]  # fmt: skip

    def _origin_at(self, position: EntryPosition) -> Origin:
        return Origin(
            position.journal_name,
            position.position,
            int(self._catalog.variable("server_id") or 0),
            int(time.time()),
            FLAVOR_MARIADB if self._catalog.is_mariadb else FLAVOR_MYSQL,
        )

    def _cut(self) -> Iterator[Part]:
        """The largest table first, so that no reader is left with it at the end."""
        number = 0
        largest_first = sorted(self.wanted, key=lambda w: -w.table.rows * w.table.row_bytes)
        for table, wish in largest_first:
            conditions: Iterator[str] = iter([""])
            is_large = table.rows * table.row_bytes > 2 * _PART_BYTES
            if len(self._readers) > 1 and is_large and has_integer_key(table):
                rows = max(_PART_BYTES // max(table.row_bytes, 1), 1)
                found = integer_ranges(self._catalog, table, rows)
                conditions = (condition_of(table, part) for part in found)
            for condition in conditions:
                if wish.where:
                    condition = f"({wish.where})" + (condition and f" AND {condition}")
                yield Part(number, table, condition)
                number += 1

    def chunks(self) -> Iterator[RowsRead]:
        """All rows, once; parts of several readers mixed. Raises SourceError and DecodeError kinds;
        TableMetaMismatch: a table was altered meanwhile."""
        if self._threads:
            raise ConfigError("a snapshot is read once")
        for reader in self._readers:
            thread = threading.Thread(target=self._run, args=(reader,), daemon=True)
            self._threads.append(thread)
            thread.start()
        running = len(self._threads)
        while running:
            try:
                found = self._waiting.get(timeout=_WAIT_S)
            except queue.Empty:
                if self._stopped.is_set():
                    return
                continue
            if isinstance(found, BaseException):
                raise found
            if found is None:
                running -= 1
            else:
                yield found
        self._refuse_altered()

    def _run(self, reader: MomentReading) -> None:
        try:
            while not self._stopped.is_set():
                with self._lock:
                    part = next(self._parts, None)
                if part is None:
                    break
                with contextlib.closing(reader.read(part, self._origin)) as found:
                    for rows in found:
                        self._hand_out(rows)
                        if self._stopped.is_set():
                            return
            self._hand_out(None)
        except BaseException as error:
            self._hand_out(error)

    def _hand_out(self, found: RowsRead | BaseException | None) -> None:
        while not self._stopped.is_set():
            with contextlib.suppress(queue.Full):
                self._waiting.put(found, timeout=_WAIT_S)
                return

    def _refuse_others(self) -> None:
        """Raise TableMetaMismatch if a name is another table's now, of which the readers would see
        the rows: it was renamed, made again, or got a partition."""
        made = made_now(self._catalog)
        stored = None if self._stored is None else stored_now(self._catalog)
        for table in self.tables:
            name = table.meta.full_name
            of = stored_name(table.meta.schema, table.meta.table)
            moved = stored is not None and self._stored is not None and (
                stored.get(of) != self._stored.get(of)
            )
            if moved or made.get(name, table.made) != table.made:
                raise TableMetaMismatch(
                    f"{name} was made again, or another table got its name or one of its "
                    "partitions, or it was altered"
                )

    def _refuse_altered(self) -> None:
        self._refuse_others()
        names = [(table.meta.schema, table.meta.table) for table in self.tables]
        metas = metas_now(self._catalog, self._described, names)
        for table, wish in self.wanted:
            now = metas.get((table.meta.schema, table.meta.table))
            if now is not None and wish.columns:
                read = {column.name for column in table.meta.columns}
                now = replace(now, columns=tuple(c for c in now.columns if c.name in read))
            if now != table.meta:
                raise TableMetaMismatch(
                    f"{table.meta.full_name} was altered while it was read; read it again"
                )

    def stop(self) -> None:
        """Let `chunks` end soon."""
        self._stopped.set()

    def close(self) -> None:
        """End all readers and connections."""
        self.stop()
        for reader in self._readers:
            reader.close()
        for thread in self._threads:
            thread.join()
        self._catalog.close()
        self._described.close()
