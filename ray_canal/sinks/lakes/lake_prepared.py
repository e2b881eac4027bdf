"""Rows of XA transactions that are prepared, in a table of the lake that is the sink's alone.

It is committed behind the tables that get rows, so at its place they have everything: what ends an
XA transaction up to there lets no row count any more, and what is prepared there is not kept again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Protocol

import pyarrow as pa

from ray_canal.model.position import journal_key
from ray_canal.sinks.column_specs import ColumnSpec
from ray_canal.sinks.port import Cursor
from ray_canal.sinks.prepared_table import COLUMNS, ROW_SCHEMA, TABLE, PreparedTable
from ray_canal.sinks.schema_follower import TableName, TargetTable
from ray_canal.views.row_places import NOWHERE, RowPlace

_NAMESPACE = "ray_canal"
_ID_OF_PLACE = b"place"
_NAME_MAX = 60


class KeptTables(Protocol):
    """Port of a lake: all that is asked of it here."""

    def find(self, name: TableName) -> TargetTable | None: ...
    def place(self, name: TableName) -> RowPlace | None:
        """Return the id of the last row that a table has."""
        ...

    def create(self, name: TableName, columns: Sequence[ColumnSpec]) -> None: ...
    def read(
        self, name: TableName, columns: Sequence[str], which: Mapping[str, str]
    ) -> pa.Table:
        """Return columns of a table's rows that have these values."""
        ...

    def merge(
        self,
        name: TableName,
        key: Sequence[str],
        deletes: pa.Table,
        upserts: pa.Table,
        upto: RowPlace,
    ) -> None:
        """Commit a net change."""
        ...


class LakePrepared(PreparedTable):
    """The table of one sink, with its place as a row that is no sink's. It counts until the table
    is moved to no place, as all tables are that are to be written again."""

    moves_all = True

    def __init__(self, sink: str, destination: str, lake: KeptTables) -> None:
        super().__init__(sink)
        self._lake = lake
        self._name = TableName(_NAMESPACE, kept_name(sink, destination))
        self._place: Cursor | None = None

    def open(self) -> None:
        super().open()
        self._place = None
        if self._lake.place(self._name) not in (None, NOWHERE):
            for (text,) in self._read(["place"], {"sink": ""}):
                self._place = Cursor.from_json(text)

    @property
    def place(self) -> Cursor | None:
        return self._place

    def commit(self, upto: Cursor) -> None:
        """Commit what is kept and dropped, if anything is. Raises SinkError."""
        change = self._change()
        if change is not None:
            if self._lake.find(self._name) is None:
                self._lake.create(self._name, COLUMNS)
            row = {"id": _ID_OF_PLACE, "sink": "", "place": upto.to_json()}
            upserts = pa.concat_tables(
                [change.upserts, pa.Table.from_pylist([row], ROW_SCHEMA)]
            )
            number = journal_key(upto.journal_name)[1]
            place = RowPlace(upto.timeline, number, upto.position, 0, upto.journal_name)
            self._lake.merge(self._name, ["id"], change.deletes, upserts, place)
            self._place = upto
        self.committed()

    def _read(self, columns: Sequence[str], which: Mapping[str, str]) -> Iterable[Sequence[Any]]:
        if self._lake.find(self._name) is None:
            return ()
        found = self._lake.read(self._name, columns, which)
        return zip(*(found[name].to_pylist() for name in columns), strict=True)

    def _have_table(self) -> None:
        """Do nothing: it is made by the commit that has something to be kept."""


def kept_name(sink: str, destination: str) -> str:
    """Return the table's name: letters, digits and `_`, which each catalog takes, and another one
    for each sink."""
    text = re.sub("[^a-z0-9]+", "_", f"{destination}_{sink}".lower())[:_NAME_MAX]
    return f"{TABLE}_{text}_{sha256(json.dumps([destination, sink]).encode()).hexdigest()[:8]}"
