"""A lake of Delta tables below a path: each in a folder `database`/`table`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from ray_canal.config.sink import LakeConfig
from ray_canal.sinks.column_specs import ColumnSpec
from ray_canal.sinks.lakes.delta import DeltaFile
from ray_canal.sinks.lakes.file_shares import Spread, Writers, in_threads
from ray_canal.sinks.lakes.folders import folder_of, name_in
from ray_canal.sinks.lakes.lake_types import (
    DESTINATION_PROPERTY,
    SOURCE_PROPERTY,
    has_other_values,
    lake_field,
    lake_fills,
    lake_type,
    retyping_advice,
    source_told,
)
from ray_canal.sinks.lakes.renames import RENAMES_PROPERTY
from ray_canal.sinks.port import SinkError
from ray_canal.sinks.schema_follower import TableName, TargetTable
from ray_canal.views.row_places import RowPlace


class DeltaLake:
    """A `Lake` of lake.py."""

    def __init__(self, sink: str, config: LakeConfig, spread: Spread = in_threads) -> None:
        self._app = f"ray_canal/{sink}"
        self._writers = Writers(config.writers, spread)
        self._config = config
        self._files: dict[TableName, DeltaFile] = {}
        self.now = RowPlace(0, 0, 0, 0)
        self.destination = ""

    def open(self) -> None:
        self._files.clear()

    def close(self) -> None:
        self._files.clear()

    def file(self, name: TableName) -> DeltaFile:
        """Return the table of this name, opened once."""
        found = self._files.get(name)
        if found is None:
            options = self._config.resolved_options()
            uri = "/".join([self._config.path.rstrip("/"), *map(folder_of, filter(None, name))])
            advice = retyping_advice(self._config)
            found = DeltaFile(uri, self._app, options or None, self._writers, advice)
            self._files[name] = found
        return found

    def names(self) -> list[TableName]:
        """Return the tables that are below the path, if it is of this machine. Raises SinkError."""
        path = self._config.path
        if "://" in path:
            text = f"what is below {path} is not listed: name tables by --table SCHEMA.TABLE"
            raise SinkError(text)
        logs = sorted(Path(path).glob("*/*/_delta_log"))
        return [TableName(*map(name_in, log.parts[-3:-1])) for log in logs]

    def compact(self, name: TableName, vacuum: bool, hours: int | None) -> str:
        """Join small files, remove old ones; return what was done."""
        file = self.file(name)
        gone, came = file.compact()
        removed = f", {file.vacuum(hours)} old files removed" if vacuum else ""
        return f"{gone} files joined into {came}{removed}"

    def place(self, name: TableName) -> RowPlace | None:
        return self.file(name).place

    def rewind(self, name: TableName) -> None:
        self.file(name).rewind()

    def has_rows(self, name: TableName) -> bool:
        return self.file(name).has_rows

    def read(
        self, name: TableName, columns: Sequence[str], which: Mapping[str, str]
    ) -> pa.Table:
        return self.file(name).read(columns, which)

    def merge(
        self,
        name: TableName,
        key: Sequence[str],
        deletes: pa.Table,
        upserts: pa.Table,
        upto: RowPlace,
    ) -> None:
        self.file(name).merge(key, deletes, upserts, upto)

    def append(self, name: TableName, rows: pa.Table, upto: RowPlace) -> None:
        self.file(name).append(rows, upto)

    def find(self, name: TableName) -> TargetTable | None:
        file = self.file(name)
        return TargetTable(tuple(file.schema.names), None) if file.exists else None

    def create(self, name: TableName, columns: Sequence[ColumnSpec]) -> None:
        self.file(name).create(pa.schema([column.field for column in columns]))

    def add(self, name: TableName, columns: Sequence[ColumnSpec]) -> None:
        fields = pa.schema([column.field for column in columns])
        self.file(name).add(fields, lake_fills(columns, True))

    def rename_columns(self, name: TableName, names: Mapping[str, str]) -> None:
        self.file(name).rename_columns(names)

    def differing(self, name: TableName, columns: Sequence[ColumnSpec]) -> list[ColumnSpec]:
        schema = self.file(name).schema
        return [
            column
            for column in columns
            if schema.field(column.name).type != lake_type(column.kind, True)
            or has_other_values(schema.field(column.name), column.kind)
        ]

    def types(self, name: TableName) -> dict[str, str]:
        return {field.name: str(field.type) for field in self.file(name).schema}

    def change(self, name: TableName, columns: Sequence[ColumnSpec]) -> None:
        """Parquet files keep their types: the table is written again. Raises SinkError: its values
        would be other ones than the source's."""
        schema = self.file(name).schema
        wanted = schema
        for column in columns:
            at = schema.get_field_index(column.name)
            if has_other_values(schema.field(at), column.kind) and self.has_rows(name):
                raise SinkError(
                    f"the source's {name} has {column.declared or column.kind} in {column.name}, "
                    "which was a time or a number, and its server made other values of those that "
                    "are there: let `ray-canal snapshot start` bring the rows again",
                    "schema",
                )
            wanted = wanted.set(at, lake_field(column.field, True))
        if wanted.types != schema.types:
            self.file(name).rewrite(wanted)

    def declare(self, name: TableName, columns: Sequence[ColumnSpec]) -> None:
        self.file(name).declare([column.field for column in columns])

    def remove(self, name: TableName, columns: Sequence[str]) -> None:
        schema = self.file(name).schema
        self.file(name).rewrite(pa.schema([f for f in schema if f.name not in columns]))

    def source_of(self, name: TableName) -> str:
        return source_told(self.file(name).properties, self.destination)

    def note_source(self, name: TableName, source: str) -> None:
        self.file(name).note({SOURCE_PROPERTY: source, DESTINATION_PROPERTY: self.destination})

    def renames(self, name: TableName) -> str:
        return str(self.file(name).properties.get(RENAMES_PROPERTY) or "")

    def tell_renames(self, name: TableName, renames: str) -> None:
        self.file(name).note({RENAMES_PROPERTY: renames})

    def move(self, name: TableName, to: TableName, renames: str) -> None:
        self.file(to).copy_from(self.file(name), self.now, {RENAMES_PROPERTY: renames})

    def empty(self, name: TableName) -> None:
        self.file(name).empty(self.now)

    def drop(self, name: TableName) -> None:
        self.file(name).empty(self.now, dropped=True)
