"""Tables of a lake that follow the source's: rows by primary key, or every change.

A lake has no transaction over tables. Each table keeps its own place, the id of the last row that
it has, in the commit of its rows, and rows up to that place are left out. So each is there once,
whatever is repeated, by whom ever.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from ray_canal.client.message import ALTER
from ray_canal.config.sink import LakeConfig
from ray_canal.model.position import journal_key
from ray_canal.model.table_event import RENAME
from ray_canal.sinks.net_change import net_change
from ray_canal.sinks.port import Changed, Changes, Cursor, Guarantee, Rows, SinkError, naming
from ray_canal.sinks.schema_follower import SchemaFollower, TableName, Tables
from ray_canal.views.row_places import Place, place_at, rows_above

_PLACE = ("timeline", "journal_name", "position", "row")
_ENVELOPE = ("timeline", "journal_name", "position", "row", "execute_time", "gtid", "transaction")


class Lake(Tables, Protocol):
    """A kind of table format. Every change of a table that is given no place of its own, but for
    `create` and `add`, is committed with `now`."""

    now: Place

    def open(self) -> None: ...
    def close(self) -> None: ...
    def place(self, name: TableName) -> Place | None:
        """Return the id of the last row that a table has."""
        ...

    def merge(
        self, name: TableName, key: Sequence[str], deletes: pa.Table, upserts: pa.Table, upto: Place
    ) -> None:
        """Commit a net change."""
        ...

    def append(self, name: TableName, rows: pa.Table, upto: Place) -> None:
        """Commit rows, in a table that is made or gets columns as they need them."""
        ...

    def has_rows(self, name: TableName) -> bool: ...
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
    columns: list[str]
    schema: pa.Schema
    batches: list[pa.RecordBatch]


class LakeSink:
    """A sink into a lake: exactly once."""

    guarantee: Guarantee = "exactly_once"

    def __init__(self, config: LakeConfig, lake: Lake) -> None:
        self._config = config
        self._lake = lake
        self._appends = config.mode == "append"
        self._follower = SchemaFollower(config, lake)
        self._runs: dict[TableName, list[_Run]] = defaultdict(list)
        self._at: tuple[int, str, int] = (-1, "", -1)
        self._done_there: Counter[TableName] = Counter()

    def open(self) -> Cursor | None:
        """Tables have places of their own: there is none of all."""
        self._forget()
        self._lake.open()
        return None

    def close(self) -> None:
        self._forget()
        self._lake.close()

    def abort(self) -> None:
        """What tables have committed stays, and is left out when it comes again."""
        self._forget()

    def _forget(self) -> None:
        self._runs.clear()
        self._follower.forget()

    def write(self, changes: Changes) -> None:
        for step in changes.steps():
            if isinstance(step, Changed):
                self._flush()
                with naming(step.change.schema, step.change.table):
                    self._follow(step, changes.message.timeline)
            else:
                with naming(step.schema, step.table):
                    self._stage(step)

    def commit(self, upto: Cursor) -> None:
        self._flush()

    # --- rows ------------------------------------------------------------------------------------

    def _stage(self, rows: Rows) -> None:
        if self._follower.leaves_out(rows):
            return
        name = self._follower.name(rows.schema, rows.table)
        if gone := [column for column in _PLACE if column not in rows.batch.schema.names]:
            raise SinkError(
                f"{rows.schema}.{rows.table}: `transform` has left out {', '.join(gone)}, by which "
                "a lake tells what it has already; keep these columns"
            )
        count = rows_above(rows.batch, self._lake.place(name))
        if not count:
            return
        batch = rows.batch.slice(rows.batch.num_rows - count)
        columns: list[str] = []
        if not self._appends:
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
                net = net_change(run.batches, run.key, run.columns)
                self._lake.merge(name, run.key, net.deletes, net.upserts, upto)

    # --- tables ----------------------------------------------------------------------------------

    def _follow(self, step: Changed, timeline: int) -> None:
        change = step.change
        name = self._follower.name(change.schema, change.table)
        at = timeline, change.journal_name, change.position
        if at != self._at:
            self._at = at
            self._done_there.clear()
        ordinal = self._done_there[name]  # one statement may drop a table and make it
        self._done_there[name] += 1
        number = journal_key(change.journal_name)[1]
        now = Place(timeline, number, change.position, ordinal, change.journal_name)
        self._lake.now = now
        if self._appends:
            if change.kind != ALTER and self._is_new(name, now):
                self._lake.append(name, _change_of_table(now, change.kind), now)
        elif change.kind == RENAME and self._config.schema_change in ("add", "evolve"):
            self._rename(change.renamed_from, name, now)
        elif self._is_new(name, now):
            self._follower.follow(step)

    def _is_new(self, name: TableName, now: Place) -> bool:
        place = self._lake.place(name)
        return place is None or place.key < now.key

    def _rename(self, renamed_from: str, name: TableName, now: Place) -> None:
        """Copy the rows, then empty the table that had them: files of a lake do not move. Each half
        is left out where it was done before."""
        schema, _, table = renamed_from.partition(".")
        old = self._follower.name(schema, table)
        self._follower.forget()
        if old == name:
            return
        if self._is_new(name, now) and self._lake.find(old) is not None:
            if self._lake.has_rows(name):
                text = f"{old} was renamed to {name}, which has rows in the target already"
                raise SinkError(text, "schema")
            self._lake.rename(old, name)
        if self._lake.find(old) is not None and self._is_new(old, now):
            self._lake.drop(old)


def _changes_of(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """Every change as a row: what happened, its place, and both images."""
    table = pa.Table.from_batches(batches)
    return table.select(["event_type", *_ENVELOPE, "before", "after"]).replace_schema_metadata(None)


def _change_of_table(place: Place, kind: str) -> pa.Table:
    columns = {
        "event_type": [kind], "timeline": [place.timeline], "journal_name": [place.journal_name],
        "position": [place.position], "row": [place.row],
    }  # fmt: skip
    return pa.table(columns)
