"""Delta tables, written by delta-rs: no JVM.

A table's place is in the same commit as its rows, as the versions of five application transactions
(timeline, file, position, row; and whether the table was dropped): they outlive checkpoints, and of
two writers that began at one version of the table the second fails, whatever it writes.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction, write_deltalake
from deltalake.exceptions import (
    CommitFailedError,
    DeltaError,
    DeltaProtocolError,
    SchemaMismatchError,
    TableNotFoundError,
)

from ray_canal.model.table_event import ERASE, TRUNCATE
from ray_canal.sinks.lakes.delta_ends import same, told_ends
from ray_canal.sinks.lakes.delta_files import (
    DeltaTarget,
    as_schema,
    can_be_shared,
    merge_files,
    plain_text,
)
from ray_canal.sinks.lakes.file_shares import ONE_WRITER, Writers
from ray_canal.sinks.lakes.lake_types import (
    as_logged,
    as_named,
    fitting,
    lake_field,
    lake_table,
)
from ray_canal.sinks.net_change import net_change
from ray_canal.sinks.port import Kind, SinkError
from ray_canal.views.mysql_texts import fraction_digits
from ray_canal.views.row_places import NOWHERE, RowPlace, place_at, rows_above
from ray_canal.views.table_events import is_of_table

_OP = "canal_op"
_REWOUND = "ray_canal.rewound"
_APPEND_ONLY = "table is append-only"
_UNFIT = "rows failed validation check"
"""Words of delta-rs, whose errors are of one class: rows break a constraint of the table."""
_READ_ROWS = 64
_PARTS = ("timeline", "file", "position", "row")
_NONE: Mapping[str, Any] = MappingProxyType({})


def merge_changes(
    uri: str,
    batches: Iterable[pa.RecordBatch],
    *,
    app: str,
    key: Sequence[str] = (),
    storage_options: dict[str, str] | None = None,
) -> int:
    """Merge the change batches of one table, in log order, into the Delta table at `uri`, each row
    once; the table is made, and gets columns, as they need it. Returns how many rows were new.

    `app` names the writer: rows up to the place that the table has of it are left out. `key`: the
    primary key; not given: the batches' own. TRUNCATE empties the table, ERASE drops it. Raises
    SinkError: "retry": somebody else has committed meanwhile, call again; "schema": columns do not
    fit, or rows are changed by what the batches do not tell.
    """
    table, count = DeltaFile(uri, app, storage_options), 0
    for schema, run in groupby(batches, lambda batch: batch.schema):
        place = table.place
        new = [batch.slice(batch.num_rows - n) for batch in run if (n := rows_above(batch, place))]
        if not new:
            continue
        upto = place_at(new[-1], -1)
        if is_of_table(new[-1]):
            _apply_to_table(table, new[-1], upto)
            continue
        kept = list(key) or json.loads((schema.metadata or {})[b"canal.key"])
        if not kept:
            raise SinkError(f"{uri}: the source's table has no primary key to merge by", "schema")
        columns = pa.schema(list(schema.field("after").type))
        net = net_change(new, kept, columns.names)
        if not table.exists:
            table.create(columns)
        missing = [field for field in columns if field.name not in table.schema.names]
        if missing:
            table.add(pa.schema(missing))
        table.merge(kept, net.deletes, net.upserts, upto)
        count += sum(batch.num_rows for batch in new)
    return count


def _apply_to_table(table: DeltaFile, batch: pa.RecordBatch, upto: RowPlace) -> None:
    kind = batch["event_type"][-1].as_py()
    if kind not in (TRUNCATE, ERASE):
        raise SinkError(f"{kind} at {upto}: the rows that it changes are not known", "schema")
    if table.exists:
        table.empty(upto, dropped=kind == ERASE)


class DeltaFile:
    """One Delta table, as it was when it was opened or last written here."""

    def __init__(
        self,
        uri: str,
        app: str,
        storage_options: dict[str, str] | None = None,
        writers: Writers = ONE_WRITER,
        advice: str = "give the column another type there",
    ) -> None:
        """`advice`: what helps where a value does not fit its column."""
        self._advice = advice
        self._uri = uri
        self._app = app
        self._options = storage_options
        self._writers = writers
        self._table: DeltaTable | None = None
        self._noted: dict[str, str] = {}  # properties of a table that is not made yet
        self._told: dict[str, int | None] = {}  # transactions' versions, of this one of the table
        self._told_at = -1
        with _translated(uri), contextlib.suppress(TableNotFoundError):
            self._table = DeltaTable(uri, storage_options=storage_options)

    @property
    def exists(self) -> bool:
        """Return whether the table is there and was not dropped in the source."""
        return self._table is not None and not self._version("dropped")

    @property
    def place(self) -> RowPlace | None:
        """The id of the last row that the table has of this writer."""
        if self._table is None or self._version("position") is None:
            return None
        timeline, number, position, row = (self._version(part) or 0 for part in _PARTS)
        return RowPlace(timeline, number, position, row)

    @property
    def schema(self) -> pa.Schema:
        """Return the table's schema."""
        return pa.schema(self._opened.schema().to_arrow())

    @property
    def has_rows(self) -> bool:
        """Return whether the table has files, so perhaps rows."""
        return self._table is not None and bool(self._opened.file_uris())

    def read(self, columns: Sequence[str], which: Mapping[str, str]) -> pa.Table:
        """Return columns of the rows that have these values. (Given a condition, a dataset compares
        it with what delta-rs tells of its files, at times as another type, which fails.)"""
        names, found = list(dict.fromkeys([*columns, *which])), []
        with _translated(self._uri):
            dataset = self._opened.to_pyarrow_dataset()
            for batch in dataset.to_batches(columns=names, batch_size=_READ_ROWS):
                for name, value in which.items():
                    batch = batch.filter(pc.equal(batch[name].cast(pa.string()), value))
                found.append(batch)
            table = pa.Table.from_batches(found, dataset.scanner(columns=names).projected_schema)
        return table.select(list(columns))

    @property
    def properties(self) -> Mapping[str, str | None]:
        """The table's properties, or those that it will be made with."""
        return self._noted if self._table is None else self._table.metadata().configuration

    def note(
        self, properties: Mapping[str, str], commit: CommitProperties | None = None
    ) -> None:
        """Set properties, if need be when the table is made."""
        self._noted = {**self._noted, **properties}
        if self._table is not None:
            with _translated(self._uri):
                self._table.alter.set_table_properties(
                    dict(properties), raise_if_not_exists=False, commit_properties=commit
                )

    def _make(self, schema: pa.Schema) -> DeltaTable:
        try:
            return DeltaTable.create(
                self._uri, schema, mode="ignore", storage_options=self._options,
                configuration={**self._noted, **told_ends(schema)} or None,
                raise_if_key_not_exists=False,
            )  # fmt: skip
        except TableNotFoundError as error:  # its folder cannot be made
            raise SinkError(f"{self._uri}: {error}", "retry") from None

    def _note_ends(self, schema: pa.Schema) -> None:
        wanted = told_ends(schema)
        if wanted.items() - self._opened.metadata().configuration.items():
            self._opened.alter.set_table_properties(wanted, raise_if_not_exists=False)

    def create(self, schema: pa.Schema) -> None:
        """Make the table, or one of these columns of a table that was dropped."""
        schema = pa.schema([lake_field(f, True) for f in schema])
        with _translated(self._uri):
            if self._table is None:
                self._table = self._make(schema)
        if self._version("dropped"):
            self._overwrite(schema.empty_table().to_reader(), self.place, dropped=False)

    def add(self, fields: pa.Schema, fills: Mapping[str, pa.Scalar] = _NONE) -> None:
        """Add columns; `fills`: values that rows which are there have in them."""
        new = [lake_field(f, True) for f in fields]
        if fills and self.has_rows:
            self.rewrite(pa.schema([*self.schema, *pa.schema(new)]), fills=fills)
            return
        found = Schema.from_arrow(pa.schema(new)).fields
        with _translated(self._uri):
            told = [Field(f.name, f.type, metadata=f.metadata) for f in found]
            self._opened.alter.add_columns(told)
            self._note_ends(self.schema)

    def declare(self, fields: Sequence[pa.Field]) -> None:
        """Note with how many fractional digits columns are declared, where that has changed."""
        schema = self.schema
        for field in fields:
            at = schema.get_field_index(field.name)
            if at >= 0 and fraction_digits(field) not in (None, fraction_digits(schema.field(at))):
                notes = {key.decode(): text.decode() for key, text in field.metadata.items()}
                with _translated(self._uri):
                    self._opened.alter.set_column_metadata(field.name, notes)

    def merge(
        self, key: Sequence[str], deletes: pa.Table, upserts: pa.Table, upto: RowPlace
    ) -> None:
        """Commit a net change, with its place."""
        schema = self.schema
        if unfit := [name for name in schema.names if "`" in name or name == _OP]:
            raise SinkError(
                f"{self._uri}: a merge cannot name the column {unfit[0]}: leave the table out, or "
                "give the column another name with `transform`",
                "schema",
            )
        rows = fitting(lake_table(upserts, True), schema, self._uri, self._advice)
        gone = fitting(lake_table(deletes, True), schema, self._uri, self._advice)
        on = " AND ".join(same(name, schema.field(name).type) for name in key)
        with _translated(self._uri):
            if not self.has_rows:
                self._write(rows, upto)
                return
            if self._merge_files(key, gone, rows, schema, upto):
                return
            left = _numbers_that_go(key, gone, rows)
            source = [_with_op(rows, "U"), _with_op(left, "D")]
            (
                self._opened.merge(
                    pa.concat_tables(source, promote_options="default"),
                    on,
                    source_alias="s",
                    target_alias="t",
                    streamed_exec=False,
                    commit_properties=self._commit(upto),
                )
                .when_matched_delete(f"s.{_OP} = 'D'")
                .when_matched_update_all(except_cols=[_OP])
                .when_not_matched_insert_all(f"s.{_OP} = 'U'", except_cols=[_OP])
                .execute()
            )

    def _merge_files(
        self, key: Sequence[str], gone: pa.Table, rows: pa.Table, schema: pa.Schema, upto: RowPlace
    ) -> bool:
        """Commit a net change that several write. Returns whether that could be done: a row that is
        not given all columns keeps what it has in the others, which a merge alone sees to."""
        table = self._opened
        has_all = set(rows.column_names) == set(schema.names)
        if self._writers.count == 1 or not has_all or not can_be_shared(table):
            return False
        touched = pa.concat_tables([rows.select(list(key)), gone.select(list(key))])
        target = DeltaTarget(uri=self._uri, options=self._options, schema=schema, touched=touched)
        commit = self._commit(upto, retries=0)
        return merge_files(table, target, rows, self._writers, commit)

    def append(self, rows: pa.Table, upto: RowPlace) -> None:
        """Commit rows; new columns are added. Raises SinkError: values do not fit those of now."""
        rows = lake_table(rows, True)
        with _translated(self._uri):
            if self._table is None:
                self._table = self._make(rows.schema)
            log = self.schema
            rows = as_logged(as_named(rows, log), log, self._uri)
            found = [log, rows.schema]
            self._note_ends(pa.unify_schemas(found, promote_options="permissive"))
            self._write(rows, upto, schema_mode="merge")

    def empty(self, upto: RowPlace, *, dropped: bool = False) -> None:
        """Commit that all rows are gone."""
        schema = self.schema
        self._overwrite(schema.empty_table().to_reader(), upto, dropped=dropped)

    def rename_columns(self, names: Mapping[str, str]) -> None:
        """Commit that columns have other names. Files keep those that they were written with, so
        the table is written again."""
        fields = [field.with_name(names.get(field.name, field.name)) for field in self.schema]
        self.rewrite(pa.schema(fields), renamed=names)

    def rewrite(
        self,
        schema: pa.Schema,
        *,
        renamed: Mapping[str, str] = _NONE,
        fills: Mapping[str, pa.Scalar] = _NONE,
    ) -> None:
        """Commit all rows with these columns and types, at the place that the table has come to: a
        statement may have more to do. `renamed`: new names by old ones; `fills`: values of columns
        that are new, which are null else."""
        refused: list[pa.ArrowInvalid] = []
        batches = as_schema(self._opened.to_pyarrow_dataset(), schema, refused, renamed, fills)
        rows = pa.RecordBatchReader.from_batches(schema, batches)
        try:
            self._overwrite(rows, self.place, dropped=False, renamed=renamed)
        except SinkError:
            if refused:  # which delta-rs tells as one of its own
                raise SinkError(f"{self._uri}: {refused[0]}", "schema") from None
            raise

    def copy_from(self, other: DeltaFile, upto: RowPlace, properties: Mapping[str, str]) -> None:
        """Commit another table's columns and rows in place of those that are here, and behind that,
        at once, properties and the place: until then it can be done again."""
        self.create(other.schema)
        rows = other._opened.to_pyarrow_dataset().scanner().to_reader()
        self._overwrite(rows, self.place, dropped=False)
        self.note(properties, self._commit(upto))

    def rewind(self) -> None:
        """Commit that the table has come to no place; its rows stay."""
        dropped = bool(self._version("dropped"))
        with _translated(self._uri):
            self._opened.alter.set_table_properties(
                {_REWOUND: str(time.time_ns())},
                raise_if_not_exists=False,
                commit_properties=self._commit(NOWHERE, dropped=dropped),
            )

    def compact(self) -> tuple[int, int]:
        """Join small files; return how many went, and how many came for them."""
        with _translated(self._uri):
            figures = self._opened.optimize.compact()
        return int(figures["numFilesRemoved"]), int(figures["numFilesAdded"])

    def vacuum(self, hours: int | None) -> int:
        """Remove files that no version of the last `hours` has (None: the table's own property, a
        week by default); return how many."""
        with _translated(self._uri):
            return len(self._opened.vacuum(hours, dry_run=False, enforce_retention_duration=False))

    @property
    def _opened(self) -> DeltaTable:
        if self._table is None:
            raise SinkError(f"{self._uri} is no Delta table", "retry")
        return self._table

    def _overwrite(
        self,
        rows: pa.RecordBatchReader,
        upto: RowPlace | None,
        *,
        dropped: bool,
        renamed: Mapping[str, str] = _NONE,
    ) -> None:
        had = self._opened.metadata().partition_columns
        partitions = [renamed.get(name, name) for name in had]
        partitions = [name for name in partitions if name in rows.schema.names]
        with _translated(self._uri):
            self._note_ends(rows.schema)
            write_deltalake(
                self._opened,
                rows,
                mode="overwrite",
                schema_mode="overwrite",
                partition_by=partitions or None,
                commit_properties=self._commit(upto, dropped=dropped),
            )

    def _write(self, rows: pa.Table, upto: RowPlace, **more: Any) -> None:
        write_deltalake(
            self._opened, rows, mode="append", commit_properties=self._commit(upto), **more
        )

    def _version(self, part: str) -> int | None:
        at = self._opened.version()
        if at != self._told_at:  # asked of the table, each takes 0.1 ms and more
            self._told, self._told_at = {}, at
        if part not in self._told:
            found = self._opened.transaction_version(f"{self._app}#{part}")
            self._told[part] = None if found is None else int(found)
        return self._told[part]

    def _commit(
        self, upto: RowPlace | None, *, dropped: bool = False, retries: int | None = None
    ) -> CommitProperties:
        places = [] if upto is None else list(zip(_PARTS, upto.key, strict=True))
        return CommitProperties(
            app_transactions=[
                Transaction(f"{self._app}#{part}", version)
                for part, version in [*places, ("dropped", int(dropped))]
            ],
            max_commit_retries=retries,
        )


def _numbers_that_go(key: Sequence[str], gone: pa.Table, rows: pa.Table) -> pa.Table:
    """Return the keys that go without those that come: a net change has 0 and -0 as two keys, and
    a merge, which refuses one row of the table for two of the change, takes them for one."""
    floats = [name for name in key if pa.types.is_floating(gone.schema.field(name).type)]
    if not floats:
        return gone
    come = rows.select(list(key))
    for name in floats:
        at, zero = gone.schema.get_field_index(name), pa.scalar(0, gone.schema.field(name).type)
        gone = gone.set_column(at, name, pc.add(gone[name], zero))
        come = come.set_column(list(key).index(name), name, pc.add(come[name], zero))
    return gone.group_by(list(key)).aggregate([]).join(come, list(key), join_type="left anti")


def _with_op(table: pa.Table, op: str) -> pa.Table:
    return table.append_column(_OP, pa.array([op] * table.num_rows, pa.string()))


@contextlib.contextmanager
def _translated(uri: str) -> Iterator[None]:
    try:
        yield
    except TableNotFoundError:
        raise
    except CommitFailedError as error:
        if _APPEND_ONLY in str(error):
            text = "take the property delta.appendOnly from it, or leave it out"
            raise SinkError(f"{uri}: {plain_text(error)}: {text}", "schema") from None
        text = f"somebody else has committed meanwhile: {plain_text(error)}"
        raise SinkError(f"{uri}: {text}", "retry") from None
    except (DeltaError, OSError) as error:
        kind: Kind = "retry"
        if isinstance(error, DeltaProtocolError | SchemaMismatchError):
            kind = "schema"
        elif _UNFIT in str(error):
            kind = "poison"
        raise SinkError(f"{uri}: {plain_text(error)}", kind) from None
