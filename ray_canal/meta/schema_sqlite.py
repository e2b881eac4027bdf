"""Schema histories and quarantined events in one SQLite file: the default.

Committed is on the disk, as in sqlite.py. Bodies are compressed by those who made them.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

from ray_canal.meta.schema_store import ChunkKey, held_order, is_before
from ray_canal.meta.sqlite_file import SqliteFile
from ray_canal.model.schema_record import Quarantined, QuarantinedChunk, SchemaRecord

_VERSION = 1
_SCHEMA = """
create table if not exists schema_record (
    destination text not null, server text not null, journal_name text not null,
    position integer not null, kind text not null, recorded_at real not null, body blob not null
);
create unique index if not exists schema_place on schema_record
    (destination, server, journal_name, position, kind, body);
create table if not exists quarantined (
    destination text not null, server text not null, journal_name text not null,
    position integer not null, tables text not null, recorded_at real not null,
    reason text not null, data blob not null,
    primary key (destination, server, journal_name, position)
)
"""
_WHICH = "destination = ? and server = ? and journal_name = ? and position = ?"


_ADVICE = (
    "If it is damaged, put back a copy; without one, move it away: the history then starts from "
    "the catalog as it is now"
)


class SqliteSchemaStore:
    """A SchemaStore in SQLite; SqliteFile says what it raises."""

    def __init__(self, path: str, *, must_exist: bool = False) -> None:
        what = f"schema history {path}"
        self._file = SqliteFile(path, what, lambda: _ADVICE, must_exist=must_exist)
        with self._file.preparing() as database:
            database.execute("pragma synchronous=extra")
            version = database.execute("pragma user_version").fetchone()[0]
            if version not in (0, _VERSION):
                raise sqlite3.DatabaseError(f"version {version}, this program reads {_VERSION}")
            if version == _VERSION:  # a write would wait for those of all other destinations
                return
            with self._file.transaction():
                for statement in _SCHEMA.split(";"):
                    database.execute(statement)
                database.execute(f"pragma user_version={_VERSION}")

    def records(self, destination: str) -> list[SchemaRecord]:
        rows = self._file.rows(
            "select server, journal_name, position, kind, recorded_at, body from schema_record"
            " where destination = ? order by rowid",
            destination,
        )
        return [SchemaRecord(*row) for row in rows]  # type: ignore[arg-type]

    def outline(self, destination: str) -> list[SchemaRecord]:
        rows = self._file.rows(
            "select server, journal_name, position, kind, recorded_at, x'' from schema_record"
            " where destination = ? order by rowid",
            destination,
        )
        return [SchemaRecord(*row) for row in rows]  # type: ignore[arg-type]

    def append(self, destination: str, records: Sequence[SchemaRecord]) -> None:
        if not records:
            return
        with self._file.transaction() as database:
            database.executemany(
                "insert or ignore into schema_record values (?, ?, ?, ?, ?, ?, ?)",
                [
                    (
                        destination, r.server, r.journal_name, r.position, r.kind, r.recorded_at,
                        r.body,
                    )
                    for r in records
                ],
            )  # fmt: skip

    def forget_before(self, destination: str, snapshot: SchemaRecord) -> None:
        gone = [r for r in self.outline(destination) if is_before(r, snapshot)]
        with self._file.transaction() as database:
            database.executemany(
                f"delete from schema_record where {_WHICH} and kind = ?",
                [(destination, r.server, r.journal_name, r.position, r.kind) for r in gone],
            )

    def forget_log(self, destination: str, server: str) -> None:
        with self._file.transaction() as database:
            database.execute(
                "delete from schema_record where destination = ? and server = ?",
                (destination, server),
            )

    def quarantine(self, destination: str, chunks: Sequence[Quarantined]) -> None:
        if not chunks:
            return
        with self._file.transaction() as database:
            database.executemany(
                "insert or replace into quarantined values (?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (
                        destination, c.server, c.journal_name, c.position, json.dumps(c.tables),
                        c.recorded_at, c.reason, c.data,
                    )
                    for c in chunks
                ],
            )  # fmt: skip

    def quarantined(self, destination: str) -> list[QuarantinedChunk]:
        rows = self._file.rows(
            "select server, journal_name, position, tables, length(data) from quarantined"
            " where destination = ?",
            destination,
        )
        found = [
            QuarantinedChunk(
                str(server),
                str(journal_name),
                int(str(position)),
                tuple((schema, table) for schema, table in json.loads(str(tables))),
                int(str(size)),
            )
            for server, journal_name, position, tables, size in rows
        ]
        return sorted(found, key=held_order)

    def quarantined_data(self, destination: str, chunk: ChunkKey) -> bytes | None:
        rows = self._file.rows(f"select data from quarantined where {_WHICH}", destination, *chunk)
        return bytes(rows[0][0]) if rows else None  # type: ignore[call-overload]

    def release(self, destination: str, chunk: ChunkKey) -> None:
        with self._file.transaction() as database:
            database.execute(f"delete from quarantined where {_WHICH}", (destination, *chunk))

    def close(self) -> None:
        self._file.close()
