"""Iceberg tables, written by pyiceberg into any catalog that it knows.

A table's place is one of its properties, set in the commit of its rows. Two writers cannot both
commit: `commit.retry.num-retries` is 0 in tables that are made here, and each commit changes rows,
so it names the snapshot that it began at. pyiceberg cannot merge; rows are replaced in the files
that have them (copy on write). iceberg_care.py keeps those few.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    NoSuchTableError,
    NotInstalledError,
    OAuthError,
    ResolveError,
    UnauthorizedError,
    ValidationError,
)
from pyiceberg.expressions import AlwaysTrue, And, EqualTo
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table, Transaction

from ray_canal.config.sink import LakeConfig
from ray_canal.sinks.column_specs import ColumnSpec
from ray_canal.sinks.lakes.file_shares import Spread, Writers, in_threads
from ray_canal.sinks.lakes.iceberg_care import expire, joined_files, replace_files
from ray_canal.sinks.lakes.iceberg_files import filled_files, write_files
from ray_canal.sinks.lakes.lake_types import (
    DESTINATION_PROPERTY,
    SOURCE_PROPERTY,
    as_logged,
    as_named,
    fitting,
    lake_fills,
    lake_table,
    lake_type,
    retyping_advice,
    source_told,
)
from ray_canal.sinks.lakes.renames import RENAMES_PROPERTY
from ray_canal.sinks.port import SinkError
from ray_canal.sinks.schema_follower import TableName, TargetTable
from ray_canal.views.row_places import NOWHERE, RowPlace

_NO_RETRIES = {"commit.retry.num-retries": "0"}
_NEEDED = {**_NO_RETRIES, "commit.manifest-merge.enabled": "true"}
_OF_NEW_TABLES = {**_NEEDED, "write.metadata.delete-after-commit.enabled": "true"}
_REFUSED = (UnauthorizedError, ForbiddenError, OAuthError, BadRequestError, NotInstalledError)
_LARGE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
"""Types by which pyiceberg tells text and bytes of a table."""
_CLIENTS = {"pyiceberg", "sqlalchemy", "botocore", "thrift", "google"}
"""Packages whose errors a catalog may raise, of those that pyiceberg knows."""
_HOURS = 168
_TRIES = 5


class IcebergLake:
    """A `Lake` of lake.py."""

    def __init__(self, sink: str, config: LakeConfig, spread: Spread = in_threads) -> None:
        self._property = f"ray_canal.{sink}"
        self._writers = Writers(config.writers, spread)
        self._config = config
        self._catalog: Catalog | None = None
        self._tables: dict[TableName, Table | None] = {}
        self._noted = defaultdict[TableName, dict[str, str]](dict)  # of tables not made yet
        self._making = threading.Lock()  # two threads may miss the same namespace
        self.now = RowPlace(0, 0, 0, 0)
        self.destination = ""

    def open(self) -> None:
        self._tables.clear()
        properties = self._config.resolved_options()
        with _translated("the catalog"):
            self._catalog = load_catalog("ray_canal", **properties)

    def close(self) -> None:
        catalog, self._catalog = self._catalog, None
        self._tables.clear()
        if catalog is not None:
            catalog.close()

    def names(self) -> list[TableName]:
        """Return the catalog's tables."""
        catalog = self._opened
        with _translated("the catalog"):
            return [
                TableName(".".join(name[:-1]), name[-1])
                for space in catalog.list_namespaces()
                for name in catalog.list_tables(space)
            ]

    def place(self, name: TableName) -> RowPlace | None:
        table = self._find(name)
        text = None if table is None else table.properties.get(self._property)
        return None if text is None else RowPlace(*json.loads(text))

    def rewind(self, name: TableName) -> None:
        with _translated(str(name)), self._commit(self._known(name), NOWHERE):
            pass

    def has_rows(self, name: TableName) -> bool:
        table = self._find(name)
        snapshot = None if table is None else table.current_snapshot()
        if snapshot is None or snapshot.summary is None:
            return False
        return int(snapshot.summary.additional_properties.get("total-records", 1)) > 0

    def read(
        self, name: TableName, columns: Sequence[str], which: Mapping[str, str]
    ) -> pa.Table:
        wanted = [EqualTo(column, value) for column, value in which.items()]
        with _translated(str(name)):
            scan = self._known(name).scan(And(AlwaysTrue(), AlwaysTrue(), *wanted), tuple(columns))
            return scan.to_arrow()

    def merge(
        self,
        name: TableName,
        key: Sequence[str],
        deletes: pa.Table,
        upserts: pa.Table,
        upto: RowPlace,
    ) -> None:
        table = self._known(name)
        schema = schema_to_pyarrow(table.schema(), include_field_ids=False)
        advice = retyping_advice(self._config)
        rows = fitting(lake_table(upserts, False), schema, str(name), advice)
        gone = fitting(lake_table(deletes, False), schema, str(name), advice)
        touched = pa.concat_tables([rows.select(list(key)), gone.select(list(key))])
        try:
            rows = rows.cast(_schema_of(rows, schema))
        except ValueError as error:  # a column of a table that was made by hand has to have values
            raise SinkError(f"{name}: {error}", "poison") from None
        with _translated(str(name)):
            written = write_files(table, touched, rows, self._writers)
            if not written.removed and not written.added:
                return
            with self._commit(table, upto) as transaction:
                replace_files(transaction, table.io, written.removed, written.added)

    def append(self, name: TableName, rows: pa.Table, upto: RowPlace) -> None:
        rows = lake_table(rows, False)
        if self._find(name) is None:
            self._make(name, rows.schema)
        table = self._known(name)
        with _translated(str(name)):
            known = schema_to_pyarrow(table.schema(), include_field_ids=False)
            rows = as_named(rows, known)
            if not _has_all(known, rows.schema):
                with table.update_schema() as update:
                    update.union_by_name(rows.schema)
                table = self._load(name)
            rows = as_logged(rows, known, str(name))
            with self._commit(table, upto) as transaction:
                transaction.append(rows)

    # --- tables ----------------------------------------------------------------------------------

    def find(self, name: TableName) -> TargetTable | None:
        table = self._find(name)
        return (
            None
            if table is None
            else TargetTable(tuple(f.name for f in table.schema().fields), None)
        )

    def create(self, name: TableName, columns: Sequence[ColumnSpec]) -> None:
        self._make(name, _fields(columns))

    def add(self, name: TableName, columns: Sequence[ColumnSpec]) -> None:
        """Add columns. If rows that are there have values in them, these rows are written again, in
        the same commit: readers know no defaults before version 3 of the format."""
        table, fills = self._known(name), lake_fills(columns, False)
        with _translated(str(name)):
            with table.transaction() as transaction:
                with transaction.update_schema() as update:
                    update.union_by_name(_fields(columns))
                if fills and self.has_rows(name):
                    written = filled_files(table, transaction.table_metadata, fills)
                    replace_files(transaction, table.io, written.removed, written.added)
            self._load(name)

    def rename_columns(self, name: TableName, names: Mapping[str, str]) -> None:
        with _translated(str(name)):
            with self._known(name).update_schema() as update:
                for old, new in names.items():
                    update.rename_column(old, new)
            self._load(name)

    def differing(self, name: TableName, columns: Sequence[ColumnSpec]) -> list[ColumnSpec]:
        known = schema_to_pyarrow(self._known(name).schema(), include_field_ids=False)
        wanted = [lake_type(column.kind, False) for column in columns]
        pairs = zip(columns, (_LARGE.get(kind, kind) for kind in wanted), strict=True)
        return [column for column, kind in pairs if known.field(column.name).type != kind]

    def types(self, name: TableName) -> dict[str, str]:
        return {field.name: str(field.field_type) for field in self._known(name).schema().fields}

    def change(self, name: TableName, columns: Sequence[ColumnSpec]) -> None:
        """Widen types; Iceberg refuses what is not wider, but for another column of the name."""
        if not self.has_rows(name) and not any(column.is_key for column in columns):
            self.remove(name, [column.name for column in columns])
        with _translated(str(name)):
            with self._known(name).update_schema() as update:
                update.union_by_name(_fields(columns))
            self._load(name)

    def declare(self, name: TableName, columns: Sequence[ColumnSpec]) -> None:
        """Do nothing: types are only widened, so no column becomes text."""

    def remove(self, name: TableName, columns: Sequence[str]) -> None:
        with _translated(str(name)):
            with self._known(name).update_schema() as update:
                for column in columns:
                    update.delete_column(column)
            self._load(name)

    def source_of(self, name: TableName) -> str:
        return source_told(self._properties(name), self.destination)

    def note_source(self, name: TableName, source: str) -> None:
        self._note(name, {SOURCE_PROPERTY: source, DESTINATION_PROPERTY: self.destination})

    def renames(self, name: TableName) -> str:
        return str(self._properties(name).get(RENAMES_PROPERTY) or "")

    def tell_renames(self, name: TableName, renames: str) -> None:
        self._note(name, {RENAMES_PROPERTY: renames})

    def move(self, name: TableName, to: TableName, renames: str) -> None:
        """Rename a table by the catalog, behind a commit of the place: what was moved is not moved
        once more. The source's table is to be noted again."""
        noted = {SOURCE_PROPERTY: "", RENAMES_PROPERTY: renames}
        with _translated(str(name)):
            with self._known(name).transaction() as transaction:
                transaction.set_properties({self._property: json.dumps([*self.now]), **noted})
            self._opened.create_namespace_if_not_exists(to.database)
            if self._find(to) is not None:
                self._opened.drop_table(tuple(to))
            self._opened.rename_table(tuple(name), tuple(to))
        self._tables.clear()

    def empty(self, name: TableName) -> None:
        if self.has_rows(name):
            table = self._known(name)
            with _translated(str(name)), self._commit(table, self.now) as transaction:
                transaction.delete(AlwaysTrue())

    def drop(self, name: TableName) -> None:
        self._noted[name][RENAMES_PROPERTY] = self.renames(name)  # it may be made again
        with _translated(str(name)), contextlib.suppress(NoSuchTableError):
            self._opened.drop_table(tuple(name))
        self._tables.pop(name, None)

    def compact(self, name: TableName, vacuum: bool, hours: int | None) -> str:
        """Join small files, and forget snapshots that are older (a week, if not given) with their
        files; return what was done."""
        gone, came = self._join(name)
        done = f"{gone} files joined into {came}"
        if vacuum:
            age = dt.timedelta(hours=_HOURS if hours is None else hours)
            with _translated(str(name)):
                snapshots, files = expire(self._load(name), age)
            done += f", {snapshots} old snapshots forgotten, {files} old files removed"
        return done

    def _join(self, name: TableName) -> tuple[int, int]:
        """Join small files; again from what is there then, if a sink has committed meanwhile."""
        for attempt in range(1, _TRIES + 1):
            with _translated(str(name)):
                table: Table = self._load(name)
                removed, added = joined_files(table)
                if not removed:
                    return 0, 0
                try:
                    with table.transaction() as transaction:
                        _have_properties(transaction, table)
                        replace_files(transaction, table.io, removed, added)
                except CommitFailedException:
                    if attempt == _TRIES:
                        raise
                else:
                    return len(removed), len(added)
        raise AssertionError

    # --- access ----------------------------------------------------------------------------------

    @property
    def _opened(self) -> Catalog:
        if self._catalog is None:
            raise SinkError("the catalog is not open", "retry")
        return self._catalog

    def _find(self, name: TableName) -> Table | None:
        if name not in self._tables:
            self._load(name)
        return self._tables[name]

    def _known(self, name: TableName) -> Table:
        table = self._find(name)
        if table is None:
            raise SinkError(f"the catalog has no table {name} any more", "retry")
        return table

    def _load(self, name: TableName) -> Any:
        table = None
        with _translated(str(name)), contextlib.suppress(NoSuchTableError):
            table = self._opened.load_table(tuple(name))
        self._tables[name] = table
        return table

    def _make(self, name: TableName, schema: pa.Schema) -> None:
        if any("/" in part or part in (".", "..") for part in name):
            raise SinkError(
                f"{name}: a name with a slash would be a folder outside of its own: name it "
                f"otherwise by {self._config.setting('table')}, or leave it out",
                "schema",
            )
        noted = dict(self._noted[name])
        if self.now.position:  # what came before the table was made is not its own
            noted[self._property] = json.dumps([*self.now])
        with _translated(str(name)), self._making:
            self._opened.create_namespace_if_not_exists(name.database)
            self._tables[name] = self._opened.create_table(
                tuple(name), schema, properties={**_OF_NEW_TABLES, **noted}
            )

    def _properties(self, name: TableName) -> Mapping[str, str]:
        """Return a table's properties, or those that it will be made with."""
        table = self._find(name)
        return self._noted[name] if table is None else table.properties

    def _note(self, name: TableName, properties: dict[str, str]) -> None:
        """Set properties, if need be when the table is made."""
        table = self._find(name)
        self._noted[name].update(properties)
        if table is not None:
            with _translated(str(name)), table.transaction() as transaction:
                transaction.set_properties(properties)
            self._load(name)

    @contextlib.contextmanager
    def _commit(self, table: Table, upto: RowPlace) -> Iterator[Transaction]:
        with table.transaction() as transaction:
            _have_properties(transaction, table)
            yield transaction
            transaction.set_properties({self._property: json.dumps([*upto])})


def _have_properties(transaction: Transaction, table: Table) -> None:
    """Set in a table what its writers need, where it is not."""
    wanted = {**_NEEDED, **table.properties, **_NO_RETRIES}
    if wanted != table.properties:
        transaction.set_properties({name: wanted[name] for name in _NEEDED})


def _fields(columns: Sequence[ColumnSpec]) -> pa.Schema:
    return pa.schema([(column.name, lake_type(column.kind, False)) for column in columns])


def _schema_of(rows: pa.Table, schema: pa.Schema) -> pa.Schema:
    return pa.schema([schema.field(name) for name in rows.column_names])


def _has_all(schema: pa.Schema, wanted: pa.Schema) -> bool:
    for field in wanted:
        at = schema.get_field_index(field.name)
        if at < 0:
            return False
        if pa.types.is_struct(field.type) and not _has_all(
            pa.schema(list(schema.field(at).type)), pa.schema(list(field.type))
        ):
            return False
    return True


@contextlib.contextmanager
def _translated(what: str) -> Iterator[None]:
    try:
        yield
    except SinkError:
        raise
    except (CommitFailedException, CommitStateUnknownException) as error:
        raise SinkError(f"{what}: somebody else has committed: {error}", "retry") from None
    except (ValidationError, ResolveError) as error:
        raise SinkError(f"{what}: {error}", "schema") from None
    except _REFUSED as error:
        raise SinkError(f"{what}: {error}", "fatal") from None
    except Exception as error:
        client = type(error).__module__.partition(".")[0]
        if isinstance(error, OSError) or client in _CLIENTS:  # it is away, busy, or too slow
            raise SinkError(f"{what}: {error}", "retry") from None
        raise
