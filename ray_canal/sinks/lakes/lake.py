"""Tables of a lake that follow the source's: rows by primary key, or every change.

A lake has no transaction over tables. Each table keeps its own place, the id of the last row that
it has, in the commit of its rows, and rows up to that place are left out. So each is there once,
whatever is repeated, by whom ever.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from ray_canal.client.message import ALTER, TableChange
from ray_canal.config.sink import LakeConfig, TablePolicy
from ray_canal.model.position import journal_key
from ray_canal.model.table_meta import TableMeta
from ray_canal.sinks.column_specs import ColumnSpec, column_specs
from ray_canal.sinks.lakes.lake_prepared import KeptTables, LakePrepared
from ray_canal.sinks.lakes.renames import Renames
from ray_canal.sinks.net_change import as_in_target, net_change
from ray_canal.sinks.port import (
    Changed,
    Changes,
    Cursor,
    Guarantee,
    SinkError,
    naming,
    refuse_later_timeline,
)
from ray_canal.sinks.rows import Rows
from ray_canal.sinks.schema_follower import SchemaFollower, TableName, TargetTables
from ray_canal.sinks.table_moves import in_order
from ray_canal.sinks.target_checks import SourceTable, path_check, tables_check
from ray_canal.source.setting_checks import CheckResult
from ray_canal.views.row_places import RowPlace, place_at, rows_above

_NO_TABLE = TableName("ray_canal", "canal_check")
"""Looked for where no table is known: it takes an answer of the lake to miss it."""
_PLACE = ("timeline", "journal_name", "position", "row")
_ENVELOPE = ("timeline", "journal_name", "position", "row", "execute_time", "gtid", "transaction")


class Lake(TargetTables, KeptTables, Protocol):
    """A kind of table format. That a table is emptied, dropped or moved is committed with `now`.
    What else a statement does to it, which may be more than one thing, keeps the place that the
    table has come to: where that ends in the midst, all of it is done again."""

    now: RowPlace
    destination: str
    """Whose changes tables get; "": tables may be of several."""

    def open(self) -> None: ...
    def close(self) -> None: ...
    def declare(self, name: TableName, columns: Sequence[ColumnSpec]) -> None:
        """Note what the declarations of a table's columns say beyond their types."""
        ...

    def append(self, name: TableName, rows: pa.Table, upto: RowPlace) -> None:
        """Commit rows, in a table that is made or gets columns as they need them."""
        ...

    def rewind(self, name: TableName) -> None:
        """Commit that a table has come to no place."""
        ...

    def renames(self, name: TableName) -> str:
        """Return what a table tells of its earlier names (renames.py); "": nothing."""
        ...

    def tell_renames(self, name: TableName, renames: str) -> None:
        """Note what a table tells of its earlier names."""
        ...

    def move(self, name: TableName, to: TableName, renames: str) -> None:
        """Give a table's rows another name, and have it tell its earlier ones; what is there
        goes."""
        ...

    def names(self) -> list[TableName]:
        """Return the tables that there are. Raises SinkError: they cannot be listed."""
        ...

    def compact(self, name: TableName, vacuum: bool, hours: int | None) -> str:
        """Join small files, and forget what is older; return what was done."""
        ...


@dataclass
class _Run:
    """Rows of one table version that are to be written."""

    source: tuple[str, str]
    key: list[str]
    columns: dict[str, str]
    schema: pa.Schema
    batches: list[pa.RecordBatch]


class LakeSink:
    """A sink into a lake: exactly once."""

    guarantee: Guarantee = "exactly_once"

    def __init__(self, config: LakeConfig, lake: Lake, destination: str, sink: str) -> None:
        self.prepared = LakePrepared(sink, destination, lake)
        self._config = config
        self._lake = lake
        self._appends = config.mode == "append"
        lake.destination = "" if self._appends else destination
        self._follower = LakeFollower(config, lake)
        self._runs: dict[TableName, list[_Run]] = defaultdict(list)

    def open(self) -> Cursor | None:
        """Tables have places of their own: there is none of all."""
        self._forget()
        self._lake.open()
        self.prepared.open()
        return None

    def check(self, tables: Sequence[SourceTable]) -> Iterator[CheckResult]:
        """Look into the lake for the source's tables. Raises SinkError."""
        named = [self._follower.name(each.schema, each.table) for each in tables]
        self._lake.open()
        try:
            absent = [name for name in named or [_NO_TABLE] if self._lake.find(name) is None]
        finally:
            self._lake.close()
        path = self._config.path
        where = path or self._config.options.get("uri", "the catalog")
        is_local = path and "://" not in path
        yield path_check(Path(path)) if is_local else CheckResult("storage", True, where)
        if named:
            makes = self._config.create_tables
            setting = self._config.setting("create_tables")
            yield from tables_check("the lake", named, absent, makes, setting)

    def close(self) -> None:
        self._forget()
        self._lake.close()

    def abort(self) -> None:
        """Forget what is not committed. What tables have committed stays, and is left out when it
        comes again."""
        self._forget()

    def _forget(self) -> None:
        self._runs.clear()
        self.prepared.abort()
        self._follower.forget()

    def write(self, changes: Changes) -> None:
        for step in changes.statements():
            if isinstance(step, list):
                self._flush()
                if self._appends:
                    self._note(step, changes.message.timeline)
                    continue
                with naming(step[0].change.schema, step[0].change.table):
                    self._follower.follow(step, changes.message.timeline)
            else:
                with naming(step.schema, step.table):
                    self._stage(step)

    def commit(self, upto: Cursor) -> None:
        self._flush()
        self.prepared.commit(upto)

    # --- rows ------------------------------------------------------------------------------------

    def _stage(self, rows: Rows) -> None:
        if self._follower.leaves_out(rows):
            return
        if gone := [column for column in _PLACE if column not in rows.batch.schema.names]:
            raise SinkError(
                f"{rows.schema}.{rows.table}: `transform` has left out {', '.join(gone)}, by which "
                "a lake tells what it has already; keep these columns"
            )
        first = place_at(rows.batch, 0)
        if not self._appends:
            self._follower.come_to(first, _time_of(rows.batch))
            if self._follower.is_gone(rows.schema, rows.table):
                return
        name = self._follower.name(rows.schema, rows.table)
        place = self._lake.place(name)
        refuse_later_timeline(first.timeline, place)
        count = rows_above(rows.batch, place)
        if not count:
            return
        batch = rows.batch.slice(rows.batch.num_rows - count)
        columns: dict[str, str] = {}
        if self._appends:
            self._follower.claim(name, rows.schema, rows.table)
        else:
            _, columns = self._follower.columns(rows)
        runs = self._runs[name]
        if runs and runs[-1].schema == batch.schema:
            runs[-1].batches.append(batch)
        else:
            source = rows.schema, rows.table
            runs.append(_Run(source, rows.key, columns, batch.schema, [batch]))

    def _flush(self) -> None:
        """Commit what is staged, several tables at once. Raises SinkError."""
        staged, self._runs = self._runs, defaultdict(list)
        if len(staged) < 2:
            for name, runs in staged.items():
                self._write_table(name, runs)
            return
        with ThreadPoolExecutor(min(self._config.threads, len(staged))) as pool:
            for done in [pool.submit(self._write_table, *each) for each in staged.items()]:
                done.result()

    def _write_table(self, name: TableName, runs: list[_Run]) -> None:
        for run in runs:
            upto = place_at(run.batches[-1], -1)
            with naming(*run.source):
                if self._appends:
                    self._lake.append(name, _changes_of(run.batches), upto)
                    continue
                net, named = net_change(run.batches, run.key, run.columns), run.columns
                deletes, upserts = (as_in_target(e, named) for e in (net.deletes, net.upserts))
                self._lake.merge(name, [named.get(e, e) for e in run.key], deletes, upserts, upto)

    # --- tables ----------------------------------------------------------------------------------

    def _note(self, statement: Sequence[Changed], timeline: int) -> None:
        """Append what a statement did to tables as a whole."""
        done_there = Counter[TableName]()  # one statement may drop a table and make it
        for step in statement:
            change = step.change
            name = self._follower.name(change.schema, change.table)
            with naming(change.schema, change.table):
                self._follower.claim(name, change.schema, change.table)
            now = place_of_change(change, timeline, done_there[name])
            done_there[name] += 1
            if change.kind != ALTER and is_new(self._lake, name, now):
                self._lake.append(name, _change_of_table(now, change.kind), now)


class LakeMirror(LakeSink):
    """A lake whose rows are replaced by key, so that they may be written again."""

    def write_again(self) -> None:
        """Let what comes next be written, whatever the tables have. Raises SinkError: they cannot
        be listed."""
        self._lake.open()
        try:
            for name in self._lake.names():
                if self._lake.place(name) is not None:
                    self._lake.rewind(name)
        finally:
            self._lake.close()


def is_new(lake: Lake, name: TableName, now: RowPlace) -> bool:
    """Return whether a table has not come to a place yet."""
    place = lake.place(name)
    return place is None or place.key < now.key


def place_of_change(change: TableChange, timeline: int, ordinal: int) -> RowPlace:
    """Return a schema change's place in the order of delivery."""
    number = journal_key(change.journal_name)[1]
    return RowPlace(timeline, number, change.position, ordinal, change.journal_name)


class LakeFollower(SchemaFollower):
    """Leave out what a statement does to each table where that table has it already: a lake has
    no transaction over tables."""

    def __init__(self, policy: TablePolicy, lake: Lake) -> None:
        super().__init__(policy, lake)
        self._lake = lake
        self._change: TableChange | None = None
        self._timeline = 0
        self._ordinal = 0
        self._renames = Renames(lake)
        self._knows_names = False

    def forget(self) -> None:
        super().forget()
        self._renames.forget()

    def come_to(self, place: RowPlace, time_s: int) -> None:
        """Take tables by the names that they have at a place, where the sink was moved back to."""
        self._renames.at, self._renames.time_s = place, time_s
        self._knows_names = True

    def is_gone(self, schema: str, table: str) -> bool:
        """Return whether the target has the table of this name no more, and another one has it."""
        name = super().name(schema, table)
        return self._renames.present(name) == name and self._renames.is_anothers(name)

    def name(self, schema: str, table: str) -> TableName:
        name = super().name(schema, table)
        return self._renames.present(name) if self._knows_names else name

    def claim(self, name: TableName, schema: str, table: str) -> None:
        if name == super().name(schema, table):
            super().claim(name, schema, table)

    def follow(self, statement: Sequence[Changed], timeline: int = 0) -> None:
        self._change, self._timeline = statement[0].change, timeline
        self._renames.time_s = statement[0].time_s
        self._begin_step(0)
        self._knows_names = False
        super().follow(statement, timeline)

    def _begin_step(self, ordinal: int) -> None:
        """Let what is done to tables from here on be that step of the statement."""
        self._ordinal = ordinal
        if self._change is not None:
            self._lake.now = place_of_change(self._change, self._timeline, ordinal)
            self._renames.at = self._lake.now

    def _is_due(self, name: TableName) -> bool:
        """Return whether the statement's next step is still to be done to a table."""
        return self._change is not None and is_new(self._lake, name, self._lake.now)

    def _rename(self, named: Mapping[TableName, TableName], where: str) -> None:
        """Copy the rows, then empty the table that had them: files of a lake do not move. A table
        that is under the new name belongs to one that the source has no more."""
        try:
            steps = in_order(named)
        except ValueError:
            names = ", ".join(f"{old} to {new}" for old, new in named.items())
            raise SinkError(
                f"the statement at {where} swaps the names of tables ({names}), which cannot be "
                "done once and only once to tables of a lake: swap them there, and go on behind "
                "the statement with `ray-canal sink seek`",
                "schema",
            ) from None
        for old, new in steps:
            if self._renames.has(old):
                came = self._renames.came_from(new)
                if old not in came and self._renames.has(new) and self._is_due(new):
                    if self._lake.find(old) is not None:
                        self._lake.move(old, new, self._renames.renamed(old))
                        self._renames.forget()
                    elif self._lake.find(new) is not None:
                        self._lake.drop(new)
                if not self._renames.came_from(old) and self._is_due(old):
                    if self._lake.renames(old):  # of the rows that went
                        self._lake.tell_renames(old, "")
                    super()._drop(old)
            self._begin_step(self._ordinal + 1)

    def _drop(self, name: TableName) -> None:
        if self._renames.has(name) and self._is_due(name):
            super()._drop(name)
        self._begin_step(self._ordinal + 1)

    def _alter(
        self, name: TableName, meta: TableMeta, change: TableChange, is_known: bool
    ) -> None:
        super()._alter(name, meta, change, is_known)
        found = self._lake.find(name)
        if self._policy.schema_change == "evolve" and found is not None:
            columns = column_specs(change.arrow_schema, meta, ())
            self._lake.declare(name, [c._replace(name=found.spelled(c.name)) for c in columns])

    def _follow(self, step: Changed) -> None:
        self._knows_names = True
        source = step.change.schema, step.change.table
        if not self.is_gone(*source) and self._is_due(self.name(*source)):
            super()._follow(step)
        self._begin_step(self._ordinal + 1)


def _time_of(batch: pa.RecordBatch) -> int:
    """Return when the first change was executed, as Unix time; where `transform` has left that out,
    one that is later than all."""
    if "execute_time" not in batch.schema.names:
        return sys.maxsize
    return int(batch["execute_time"][0].as_py().timestamp())


def _changes_of(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """Every change as a row: what happened, its place, and both images."""
    table = pa.Table.from_batches(batches)
    return table.select(["event_type", *_ENVELOPE, "before", "after"]).replace_schema_metadata(None)


def _change_of_table(place: RowPlace, kind: str) -> pa.Table:
    columns = {
        "event_type": [kind], "timeline": [place.timeline], "journal_name": [place.journal_name],
        "position": [place.position], "row": [place.row],
    }  # fmt: skip
    return pa.table(columns)
