"""Schema histories and quarantined events next to the cursors in MySQL or MariaDB (mysql.py): they
move with the head, too. What is written twice is there once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence

from ray_canal.config import MetaConfig
from ray_canal.meta.mysql_database import MetaDatabase, marks
from ray_canal.meta.schema_store import ChunkKey, held_order, is_before
from ray_canal.model.schema_record import Quarantined, QuarantinedChunk, SchemaRecord

_TEXT = "character set utf8mb4 collate utf8mb4_bin not null"
_PLACE = (
    "id bigint not null auto_increment primary key,"
    " destination varchar(255) character set ascii collate ascii_bin not null,"
    f" server varchar(255) {_TEXT}, journal_name varchar(255) {_TEXT}, position bigint not null,"
    " recorded_at double not null, once binary(32) not null unique key"
)
_TABLES = {
    "canal_schema": f"{_PLACE}, kind varchar(32) {_TEXT}, body longblob not null",
    "canal_quarantined": f"{_PLACE}, tables longtext {_TEXT}, reason longtext {_TEXT},"
    " data longblob not null",
}
_STATEMENT_BYTES = 1 << 20  # well below every server's max_allowed_packet

Values = tuple[object, ...]


class MysqlSchemaStore:
    """A SchemaStore in MySQL or MariaDB; MetaDatabase says what it raises."""

    def __init__(self, config: MetaConfig) -> None:
        self._database = MetaDatabase(config, _TABLES)

    def records(self, destination: str) -> list[SchemaRecord]:
        rows = self._database.rows(
            "select server, journal_name, position, kind, recorded_at, body from {d}.canal_schema"
            " where destination = %s order by id",
            destination,
        )
        return [SchemaRecord(**row) for row in rows]

    def outline(self, destination: str) -> list[SchemaRecord]:
        rows = self._database.rows(
            "select server, journal_name, position, kind, recorded_at from {d}.canal_schema"
            " where destination = %s order by id",
            destination,
        )
        return [SchemaRecord(**row, body=b"") for row in rows]

    def append(self, destination: str, records: Sequence[SchemaRecord]) -> None:
        rows = [
            (
                destination, r.server, r.journal_name, r.position, r.recorded_at,
                _once(destination, r.server, r.journal_name, r.position, r.kind, r.body),
                r.kind, r.body,
            )
            for r in records
        ]  # fmt: skip
        columns = "destination, server, journal_name, position, recorded_at, once, kind, body"
        self._insert("canal_schema", columns, "once = once", rows)

    def _insert(self, table: str, columns: str, again: str, rows: Sequence[Values]) -> None:
        for some in _pieces(rows):
            self._database.changed(
                f"insert into {{d}}.{table} ({columns}) values {marks(some)}"
                f" on duplicate key update {again}",
                *(value for row in some for value in row),
            )

    def forget_before(self, destination: str, snapshot: SchemaRecord) -> None:
        for record in self.outline(destination):
            if is_before(record, snapshot):
                self._database.changed(
                    "delete from {d}.canal_schema where destination = %s and server = %s"
                    " and journal_name = %s and position = %s and kind = %s",
                    destination, record.server, record.journal_name, record.position, record.kind,
                )  # fmt: skip

    def forget_log(self, destination: str, server: str) -> None:
        self._database.changed(
            "delete from {d}.canal_schema where destination = %s and server = %s",
            destination, server,
        )  # fmt: skip

    def quarantine(self, destination: str, chunks: Sequence[Quarantined]) -> None:
        rows = [
            (
                destination, c.server, c.journal_name, c.position, c.recorded_at,
                _once(destination, c.server, c.journal_name, c.position),
                json.dumps(c.tables), c.reason, c.data,
            )
            for c in chunks
        ]  # fmt: skip
        columns = (
            "destination, server, journal_name, position, recorded_at, once, tables, reason, data"
        )
        again = "tables = values(tables), reason = values(reason), data = values(data)"
        self._insert("canal_quarantined", columns, again, rows)

    def quarantined(self, destination: str) -> list[QuarantinedChunk]:
        rows = self._database.rows(
            "select server, journal_name, position, tables, length(data) as size_bytes"
            " from {d}.canal_quarantined where destination = %s",
            destination,
        )
        found = [
            QuarantinedChunk(
                **{**row, "tables": tuple((s, t) for s, t in json.loads(row["tables"]))}
            )
            for row in rows
        ]
        return sorted(found, key=held_order)

    def quarantined_data(self, destination: str, chunk: ChunkKey) -> bytes | None:
        rows = self._database.rows(
            "select data from {d}.canal_quarantined where destination = %s and once = %s",
            destination, _once(destination, *chunk),
        )  # fmt: skip
        return bytes(rows[0]["data"]) if rows else None

    def release(self, destination: str, chunk: ChunkKey) -> None:
        self._database.changed(
            "delete from {d}.canal_quarantined where destination = %s and once = %s",
            destination, _once(destination, *chunk),
        )  # fmt: skip

    def close(self) -> None:
        self._database.close()


def _once(*parts: str | int | bytes) -> bytes:
    """A name of what may be there once; a server's index is too short for its parts."""
    digest = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.digest()


def _pieces(rows: Sequence[Values]) -> Iterator[list[Values]]:
    """Rows for one statement each: about a megabyte."""
    some: list[Values] = []
    size = 0
    for row in rows:
        bytes_of_row = sum(len(value) for value in row if isinstance(value, str | bytes))
        if some and size + bytes_of_row > _STATEMENT_BYTES:
            yield some
            some, size = [], 0
        some.append(row)
        size += bytes_of_row
    if some:
        yield some
