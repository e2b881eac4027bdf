"""Plan of a snapshot: its tables, and the next range of each."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ray_canal.config import InstanceConfig
from ray_canal.errors import ConfigError, PrivilegeMissing, SourceError, TableMetaMismatch
from ray_canal.filter import TableFilter
from ray_canal.model.position import EntryPosition
from ray_canal.model.snapshot_ledger import Border, TableLedger
from ray_canal.model.snapshot_wish import SnapshotWish
from ray_canal.schema.names import Name
from ray_canal.snapshot.columns import quoted, selection
from ray_canal.snapshot.key_ranges import KeyRanges
from ray_canal.snapshot.late_rows import wait_until_unlocked
from ray_canal.snapshot.marks import ExecutedLow, Marks, PlaceLow, marks_of, shown_now
from ray_canal.snapshot.prepared import not_seen
from ray_canal.snapshot.replica_tables import ReplicaTables, ServerTables
from ray_canal.snapshot.row_reader import RangeOrder
from ray_canal.snapshot.session import close, open_session, other_server, server_of
from ray_canal.snapshot.tables import (
    SnapshotTable,
    WantedTable,
    narrowed,
    refuse_keyless,
    refuse_partial_images,
    tables_now,
    wanted_tables,
)
from ray_canal.snapshot.visibility import wait_until_visible
from ray_canal.source.catalog import Catalog
from ray_canal.source.catalog_tables import CatalogTables
from ray_canal.source.connection import query

logger = logging.getLogger(__name__)

_ADVICE = "read all tables as of one moment: `--mode consistent`, snapshot.mode"


@dataclass(frozen=True, slots=True)
class PlannedRange:
    """A range of table number `table` of a ledger, up to the key `upto`; of about `estimate` rows
    (0: not known)."""

    table: int
    upto: Border
    order: RangeOrder
    estimate: int = 0


class SnapshotPlan:
    """Over a connection of its own; one thread calls."""

    def __init__(self, config: InstanceConfig, within: TableFilter) -> None:
        """`within`: what the subscriber sees. Raises SourceError kinds, ServerSettingRefused: the
        server's log lacks what is needed."""
        self._config = config
        self._within = within
        self._source = config.rows_source
        self._catalog = Catalog(self._source)
        self._streamed = Catalog(config.source) if config.snapshot.address else self._catalog
        self._described = CatalogTables(self._source)
        self._replica: ReplicaTables | None = None
        self._streamed_described = self._described
        if config.snapshot.address:
            self._streamed_described = CatalogTables(config.source)
            self._replica = ReplicaTables(
                self._source.address,
                ServerTables(self._catalog, self._described),
                ServerTables(self._streamed, self._streamed_described),
            )
        self._log_server = ""
        self._connection: Any = None
        self._tables: dict[int, SnapshotTable] = {}
        self._numbers = 0
        try:
            self._connection = open_session(self._source, self._catalog)
            self._server = server_of(self._connection, self._source)
            refuse_partial_images(self._streamed, config.source.address)
            replicated = self._streamed if self._replica else None
            self._marks: Marks = marks_of(self._source, self._catalog, self._connection, replicated)
        except BaseException:
            self.close()
            raise

    def refuse_other_log(self, server: str) -> None:
        """Raise ConnectionLost unless marks are of the log that is read, which is this server's:
        the address may lead to another one by now."""
        streamed = self._streamed.server_uuid()
        rows = streamed if self._replica else self._server
        self._log_server = server
        for found in {streamed, rows} - {server}:
            raise other_server(self._config.source.address, found, server)

    @property
    def _advice(self) -> str:
        address = "leave snapshot.address out and " if self._replica else ""
        return f"leave it out, or {address}{_ADVICE}"

    @property
    def is_mariadb(self) -> bool:
        """Return whether the server is a MariaDB."""
        return self._catalog.is_mariadb

    def if_prepared(self) -> Exception | None:
        """Return what is wrong if the log has XA transactions; None: they are waited for."""
        return None if self._marks.sees_prepared else not_seen(self._source)

    def wanted(
        self, wishes: tuple[SnapshotWish, ...], known: tuple[TableLedger, ...] = ()
    ) -> tuple[TableLedger, ...]:
        """Return the tables that are asked for, the largest last. `known`: what they were before;
        those of them that the subscriber does not see, or that are gone and were not read, are left
        out, and others come behind them: a table that was renamed has its rows elsewhere. Raises
        ConfigError: there are none, or one cannot be read; PrivilegeMissing."""
        found = self._found_again(wishes) if known else self._found(wishes)
        if not known:
            refuse_keyless((table for table, _ in found), self._advice)
        there = {(table.meta.schema, table.meta.table): table for table, _ in found}
        names = {(one.schema, one.table) for one in known}
        known = tuple(one for one in known if self._within.admits(one.schema, one.table))
        gone = [one for one in known if not one.finished and self._is_gone(one, there)]
        for one in gone:
            logger.warning("%s is not read on: there is no such table any more", one.full_name)
        tables = [one for one in known if one not in gone]
        for table, wish in sorted(found, key=lambda one: one.table.rows):
            schema, name = table.meta.schema, table.meta.table
            if (schema, name) in names:
                continue
            if table.key:
                tables.append(TableLedger(schema, name, wish.where, wish.columns))
            else:
                logger.warning("%s is new and not read: %s", table.meta.full_name, table.keyless)
        if self._replica is None:
            now = ((number, there.get((one.schema, one.table))) for number, one in enumerate(tables)
                   if not one.finished)  # fmt: skip
            self._tables = {number: table for number, table in now if table is not None}
        return tuple(tables)

    def _found(self, wishes: tuple[SnapshotWish, ...]) -> tuple[WantedTable, ...]:
        found, left_out = wanted_tables(
            self._streamed, self._streamed_described, wishes, self._within
        )
        for name, why in left_out:
            logger.warning("%s is not read: it is %s", name, why)
        return found

    def _found_again(self, wishes: tuple[SnapshotWish, ...]) -> tuple[WantedTable, ...]:
        """Return the tables of each wish that has any."""
        found: dict[str, WantedTable] = {}
        for wish in wishes:
            with contextlib.suppress(ConfigError):
                for one in self._found((wish,)):
                    found.setdefault(one.table.meta.full_name, one)
        return tuple(found.values())

    def _is_gone(self, one: TableLedger, there: Container[Name]) -> bool:
        """Return whether there is no such table: one that the account may not see is there."""
        if (one.schema, one.table) in there:
            return False
        try:
            self._streamed.rows(f"SELECT 1 FROM {quoted(one.schema, one.table)} LIMIT 0")
        except SourceError as error:
            if error.retryable:
                raise
            return not isinstance(error, PrivilegeMissing)
        return False

    def wait_until_visible(self, place: EntryPosition, stopped: Callable[[], bool]) -> None:
        """Return when all that the log has before this place shows."""
        wait_until_visible(self._config, self._streamed, self._marks, place, stopped)

    def low(self) -> ExecutedLow | PlaceLow:
        """Return what shows by now. Raises SourceError kinds."""
        return shown_now(self._marks)

    def find(self, wanted: Mapping[int, TableLedger]) -> dict[int, SnapshotTable]:
        """Return tables of a ledger, by their number, as they are now, or as `wanted` has just seen
        them. Raises TableMetaMismatch: one is gone; ConfigError: one has no key any more."""
        if self._tables.keys() != wanted.keys():
            self._tables = self._now(wanted)
        refuse_keyless(self._tables.values(), self._advice)
        return self._tables

    def refuse_altered(self, wanted: Mapping[int, TableLedger]) -> None:
        """Raise TableMetaMismatch unless these tables are as they were when they were found."""
        for number, table in self._now(wanted).items():
            before = self._tables[number]
            if _identity(before) != _identity(table):
                raise TableMetaMismatch(
                    f"{table.meta.full_name} was altered when its rows were to be read"
                )

    def _now(self, wanted: Mapping[int, TableLedger]) -> dict[int, SnapshotTable]:
        names = [(each.schema, each.table) for each in wanted.values()]
        if self._replica is None:
            there = tables_now(self._catalog, self._described, names)
        else:
            there = self._replica.now(names)
        found = {}
        for number, progress in wanted.items():
            table = there.get((progress.schema, progress.table))
            if table is None:
                raise TableMetaMismatch(f"there is no table {progress.full_name} any more")
            refuse_keyless((table,), self._advice)
            found[number] = narrowed(table, progress.columns)
        return found

    def begin(self, number: int, progress: TableLedger) -> TableLedger:
        """Begin a table's reading: up to its last key of now."""
        table = self._tables[number]
        wait_until_unlocked(self._ask, table)
        end = self._ranges(number).greatest()
        return progress.begun(table.key_order, end, table.rows, self.made(table))

    def made(self, table: SnapshotTable) -> str:
        """Return when this server made a table, as a ledger has it."""
        return f"{self._server}|{table.made}"

    def ranges(
        self, number: int, progress: TableLedger, rows: Callable[[], int]
    ) -> Iterator[PlannedRange]:
        """Return what is left of a table, in pieces of about so many rows."""
        if progress.finished or progress.end is None:
            return
        where = f" AND ({progress.where})" if progress.where else ""
        for each in self._ranges(number).ranges(progress.done, progress.end, rows):
            self._numbers += 1
            condition = f"({each.condition}){where}"
            order = RangeOrder(
                self._numbers, self._tables[number], condition, self._server, self._log_server
            )
            yield PlannedRange(number, each.upto, order, each.estimate)

    def row_bytes(self, number: int) -> int:
        """Return the mean length in bytes of a row of a table, as estimated; at least 1."""
        return max(self._tables[number].row_bytes, 1)

    def _ranges(self, number: int) -> KeyRanges:
        table = self._tables[number]
        return KeyRanges(table, selection(table.meta), self._ask)

    def _ask(self, sql: str) -> list[dict[str, Any]]:
        return query(self._connection, self._source, sql)

    def close(self) -> None:
        if self._connection is not None:
            close(self._connection)
        self._catalog.close()
        self._streamed.close()
        self._described.close()
        self._streamed_described.close()


def _identity(table: SnapshotTable) -> tuple[object, ...]:
    return table.meta, table.key_order, table.made
