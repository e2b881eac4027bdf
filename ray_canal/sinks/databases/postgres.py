"""A mirror in PostgreSQL: rows by COPY into a temporary table and one statement from there.

Everything of a commit is one transaction, changes of tables included. The session ends by itself
where its process sleeps in a transaction (idle_in_transaction_session_timeout), so that a runner
that hangs keeps the lock on the sink's row from nobody for long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import psycopg
import pyarrow as pa

from ray_canal.config import MirrorConfig, secret
from ray_canal.config.section import host_port_of
from ray_canal.sinks.column_specs import ColumnSpec
from ray_canal.sinks.databases.port import TransactionalDatabase, close_quietly
from ray_canal.sinks.databases.postgres_errors import refused, translated
from ray_canal.sinks.databases.postgres_text import copy_text, literal, postgres_type
from ray_canal.sinks.port import Kind, SinkError
from ray_canal.sinks.schema_follower import TableName, TargetTable

_SSL_MODES = {
    "disabled": "disable", "preferred": "prefer", "required": "require",
    "verify_ca": "verify-ca", "verify_identity": "verify-full",
}  # fmt: skip
_NAME_BYTES_MAX = 63
_ANALYZE_ROWS = 1000
_CONVERTED = {
    ("bytea", "text"): "convert_from({}, 'UTF8')",
    ("text", "bytea"): "convert_to({}, 'UTF8')",
}
"""Conversions that a cast does otherwise: it gives the digits of bytes, and reads text as such."""


class PostgresDatabase(TransactionalDatabase):
    """A `Database` of port.py; its databases are PostgreSQL's schemas."""
    _TRIGGERS = (  # not those that are disabled, or act on what a replica's own process writes
        "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal AND tgenabled IN ('O', 'A')"
        " AND tgrelid = to_regclass(format('%%I.%%I', %s::text, %s::text))"
    )

    def __init__(self, config: MirrorConfig) -> None:
        super().__init__(config.cursor_database)
        self._config = config
        self._connection: psycopg.Connection[Any] | None = None
        self._staging: dict[tuple[TableName, tuple[str, ...]], str] = {}
        self._filled: set[str] = set()
        self._staged = 0
        self._session = 0  # of the server, which a pooler may change
        self._delete_first: dict[TableName, bool] = {}
        self._cascades: dict[TableName, list[list[str]]] = {}

    def connect(self) -> None:
        config = self._config
        host, port = host_port_of(config.address, 5432, "mirror.address")
        settings: dict[str, Any] = {
            "host": host, "port": port, "user": config.username or None,
            "password": secret(config.password) or None, "dbname": config.dbname,
            "sslmode": _SSL_MODES[config.tls.mode], "sslrootcert": config.tls.ca or None,
            "sslcert": config.tls.cert or None, "sslkey": config.tls.key or None,
            "connect_timeout": max(2, round(config.timeout_s)), "client_encoding": "UTF8",
            "application_name": "ray_canal", "keepalives_idle": 10, "keepalives_interval": 10,
            "keepalives_count": 3, "tcp_user_timeout": round(1000 * config.timeout_s),
        }  # fmt: skip
        given = {key: value for key, value in settings.items() if value is not None}
        self._forget()
        try:
            connection = psycopg.connect(autocommit=True, **given)
        except psycopg.OperationalError as error:
            raise refused(error) from None
        connection.prepare_threshold = None  # a statement's plan does not outlive its table
        self._connection = connection
        timeout_ms = round(1000 * config.timeout_s)
        settings = {
            "timezone": "UTC", "statement_timeout": timeout_ms, "lock_timeout": timeout_ms,
            "idle_in_transaction_session_timeout": timeout_ms, "client_min_messages": "warning",
            "row_security": "off",  # rows that a policy hides would stay: an error says so
            "quote_all_identifiers": "off",  # names of types are compared
        }  # fmt: skip
        if self._run("SHOW synchronous_commit")[0][0] == "off":
            settings["synchronous_commit"] = "on"  # what is acknowledged must be there
        values = [str(part) for pair in settings.items() for part in pair]
        calls = "set_config(%s, %s, false), " * len(settings)
        self._session = self._run(f"SELECT {calls}pg_backend_pid()", *values)[0][-1]

    def close(self) -> None:
        connection, self._connection = self._connection, None
        close_quietly(connection, psycopg.Error)

    # --- the cursor ------------------------------------------------------------------------------

    def _own(self, table: str) -> str:
        return f"{_quoted(self._cursor_database)}.{table}"

    def take_over(self, sink: str) -> tuple[int, str]:
        self._sink = sink
        if not self._run("SELECT to_regclass(%s) IS NOT NULL", self._sources)[0][0]:
            self._make_schema(self._cursor_database)
            self._run(
                f"CREATE TABLE IF NOT EXISTS {self._cursors} (sink text PRIMARY KEY,"
                " epoch bigint NOT NULL, place text NOT NULL,"
                " written timestamptz NOT NULL DEFAULT now())"
            )
            self._run(
                f"CREATE TABLE IF NOT EXISTS {self._sources} (sink text, of_database text,"
                " of_table text, source text NOT NULL, PRIMARY KEY (sink, of_database, of_table))"
            )
        rows = self._run(
            f"INSERT INTO {self._cursors} AS c (sink, epoch, place) VALUES (%s, 1, '')"
            " ON CONFLICT (sink) DO UPDATE SET epoch = c.epoch + 1 RETURNING epoch, place",
            sink,
        )
        return int(rows[0][0]), str(rows[0][1])

    def begin(self, sink: str) -> int:
        self._run("BEGIN")
        columns = "epoch, pg_backend_pid()"
        rows = self._run(f"SELECT {columns} FROM {self._cursors} WHERE sink = %s FOR UPDATE", sink)
        if rows and rows[0][1] != self._session:
            raise SinkError(
                f"the target {self._config.address} gives a connection another session of the"
                " server for each transaction, without its settings and temporary tables: let the"
                ' pooler have pool_mode = "session" for this user, or go to the server itself'
            )
        return int(rows[0][0]) if rows else -1

    def commit(self, sink: str, place: str) -> None:
        self._run(
            f"UPDATE {self._cursors} SET place = %s, written = now() WHERE sink = %s", place, sink
        )
        self._run("COMMIT")
        self._filled.clear()

    def rollback(self) -> None:
        self._forget()
        if self._connection is not None:
            self._run("ROLLBACK; DISCARD TEMP")

    def _forget(self) -> None:
        self._staging.clear()
        self._filled.clear()
        self._delete_first.clear()

    # --- tables ----------------------------------------------------------------------------------

    def find(self, name: TableName) -> TargetTable | None:
        columns = self._run(
            "SELECT a.attname, coalesce(a.attnum = ANY (i.indkey), false),"
            " coalesce(to_jsonb(a) ->> 'attgenerated', '') <> '' FROM pg_attribute a"
            " LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary"
            " WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped"
            " ORDER BY a.attnum",
            _named(name),
        )
        if not columns:
            return None
        self._delete_first[name], self._cascades[name] = self._run(
            "SELECT EXISTS (SELECT FROM pg_index WHERE indrelid = t AND indisunique"
            " AND NOT indisprimary), ARRAY(SELECT ARRAY[conrelid::regclass::text, conname::text]"
            " FROM pg_constraint WHERE contype = 'f' AND confrelid = t"
            " AND confdeltype IN ('c', 'n', 'd')) FROM to_regclass(%s) t",
            _named(name),
        )[0]
        return TargetTable(
            tuple(str(row[0]) for row in columns),
            tuple(str(row[0]) for row in columns if row[1]),
            tuple(str(row[0]) for row in columns if row[2]),
        )

    def tells_keys(self, name: TableName) -> bool:
        """See Database. Keys of citext, or of a collation that is not deterministic, meet by more
        than their bytes."""
        rows = self._run(
            "SELECT t.typtype = 'b' AND t.typname <> 'citext'"
            " AND coalesce(c.collisdeterministic, true)"
            " FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid"
            " AND a.attnum = ANY (i.indkey) JOIN pg_type t ON t.oid = a.atttypid"
            " LEFT JOIN pg_collation c ON c.oid = a.attcollation"
            " WHERE i.indrelid = to_regclass(%s) AND i.indisprimary",
            _named(name),
        )
        return bool(rows) and all(row[0] for row in rows) and not self._delete_first.get(name, True)

    def missing_rights(self, names: Sequence[TableName], changes: bool) -> list[str]:
        """See Database. Who owns a table may change it: ownership is not asked for."""
        user, database = self._run("SELECT current_user, current_database()")[0]
        found: dict[str, None] = {}
        for name in names:
            for right, on in self._missing(name, str(database)):
                word = "TABLE " if "." in on else ""
                found[f"GRANT {right} ON {word}{on} TO {_quoted(str(user))}"] = None
        return list(found)

    def _missing(self, name: TableName, database: str) -> Iterator[tuple[str, str]]:
        """Rights that a table needs and the user lacks, with what they are on."""
        if not self._run("SELECT 1 FROM pg_namespace WHERE nspname = %s", name.database):
            if not self._has("database", database, "CREATE"):
                yield "CREATE", f"DATABASE {_quoted(database)}"
        elif not self._has("schema", name.database, "USAGE"):
            yield "USAGE, CREATE", f"SCHEMA {_quoted(name.database)}"
        elif self.find(name) is None:
            if not self._has("schema", name.database, "CREATE"):
                yield "CREATE", f"SCHEMA {_quoted(name.database)}"
        else:
            rights = ("SELECT", "INSERT", "UPDATE", "DELETE")
            lacking = [each for each in rights if not self._has("table", _named(name), each)]
            if lacking:
                yield ", ".join(lacking), _named(name)

    def _has(self, kind: str, name: str, right: str) -> bool:
        return bool(self._run(f"SELECT has_{kind}_privilege(%s, %s)", name, right)[0][0])

    def create(self, name: TableName, columns: Sequence[ColumnSpec]) -> None:
        self._make_schema(name.database)
        lines = [_definition(column) for column in columns]
        key = ", ".join(_quoted(column.name) for column in columns if column.is_key)
        lines += [f"PRIMARY KEY ({key})"] if key else []
        self._run(f"CREATE TABLE IF NOT EXISTS {_named(name)} ({', '.join(lines)})")
        self._delete_first[name] = False

    def _make_schema(self, name: str) -> None:
        if not self._run("SELECT 1 FROM pg_namespace WHERE nspname = %s", name):
            self._run(f"CREATE SCHEMA IF NOT EXISTS {_quoted(name)}")

    def add(self, name: TableName, columns: Sequence[ColumnSpec]) -> None:
        """Rows that are there get their values by a DEFAULT, as a table of any size does at
        once."""
        self._alter(name, (f"ADD COLUMN {_definition(c)}{_default(c)}" for c in columns))
        gone = (f"ALTER COLUMN {_quoted(c.name)} DROP DEFAULT" for c in columns if _default(c))
        self._alter(name, gone)

    def rename_columns(self, name: TableName, names: Mapping[str, str]) -> None:
        self._drop_staging(name)
        for old, new in names.items():
            self._run(f"ALTER TABLE {_named(name)} RENAME {_quoted(old)} TO {_quoted(new)}")

    def differing(self, name: TableName, columns: Sequence[ColumnSpec]) -> list[ColumnSpec]:
        kinds = self.types(name)
        return [c for c in columns if kinds[c.name] != _type(c)]

    def types(self, name: TableName) -> dict[str, str]:
        return dict(
            self._run(
                "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
                " WHERE attrelid = to_regclass(%s) AND attnum > 0",
                _named(name),
            )
        )

    def change(self, name: TableName, columns: Sequence[ColumnSpec]) -> None:
        parts, kinds, any_row = [], self.types(name), self.has_rows(name)
        for column in columns:
            kind, text = _type(column), _quoted(column.name)
            collation = _collation(column, kind)
            value = _CONVERTED.get((kinds[column.name], kind), "{}::" + kind).format(text)
            value = value if any_row else f"NULL::{kind}"  # many casts are none that it knows
            parts.append(f"ALTER COLUMN {text} TYPE {kind}{collation} USING {value}")
        self._alter(name, parts)

    def remove(self, name: TableName, columns: Sequence[str]) -> None:
        self._alter(name, (f"DROP COLUMN {_quoted(column)}" for column in columns))

    def _alter(self, name: TableName, parts: Iterable[str]) -> None:
        text = ", ".join(parts)
        if not text:
            return
        self._drop_staging(name)
        try:
            self._run(f"ALTER TABLE {_named(name)} {text}")
        except SinkError as error:  # values that do not fit another type are no entry's fault
            kind: Kind = "schema" if error.kind == "poison" else error.kind
            raise SinkError(str(error), kind) from None

    def has_rows(self, name: TableName) -> bool:
        return bool(self._run(f"SELECT 1 FROM {_named(name)} LIMIT 1"))

    def note_source(self, name: TableName, source: str) -> None:
        self._run(
            f"INSERT INTO {self._sources} VALUES (%s, %s, %s, %s) ON CONFLICT"
            " (sink, of_database, of_table) DO UPDATE SET source = excluded.source",
            self._sink,
            *name,
            source,
        )

    def _rename(self, name: TableName, to: TableName) -> None:
        self._drop_staging(name)
        self._make_schema(to.database)
        if to.database != name.database:  # by way of a name that is free in both
            self._run(f"ALTER TABLE {_named(name)} RENAME TO canal_moving")
            name = name._replace(table="canal_moving")
            self._run(f"ALTER TABLE {_named(name)} SET SCHEMA {_quoted(to.database)}")
            name = name._replace(database=to.database)
        self._run(f"ALTER TABLE {_named(name)} RENAME TO {_quoted(to.table)}")

    def empty(self, name: TableName) -> None:
        self._run(f"TRUNCATE TABLE {_named(name)}")

    def drop(self, name: TableName) -> None:
        self._drop_staging(name)
        self._run(f"DROP TABLE IF EXISTS {_named(name)}")

    # --- rows ------------------------------------------------------------------------------------

    def delete(self, name: TableName, keys: pa.Table) -> None:
        self._deleted(name, keys)

    def _deleted(self, name: TableName, keys: pa.Table) -> int:
        """Remove rows by their keys; return how many there were."""
        staged = self._stage_to_join(name, keys)
        gone = f"DELETE FROM {_named(name)} t USING {staged} s WHERE {_same(keys)} RETURNING 1"
        return int(self._run(f"WITH gone AS ({gone}) SELECT count(*) FROM gone")[0][0])

    def upsert(self, name: TableName, key: Sequence[str], rows: pa.Table) -> None:
        """Write rows by their key. Where the table has other unique keys, they are removed first: a
        value may move from one row to another."""
        keys = rows.select(list(key))
        if key and self._delete_first.get(name, True) and self._deleted(name, keys):
            self._refuse_cascade(name)
        staged = self._stage(name, rows)
        columns = [_quoted(column) for column in rows.column_names]
        listed = ", ".join(columns)
        end = ""
        if key:
            rest = [_quoted(column) for column in rows.column_names if column not in key]
            updates = ", ".join(f"{column} = excluded.{column}" for column in rest)
            end = f" ON CONFLICT ({', '.join(map(_quoted, key))}) DO "
            end += f"UPDATE SET {updates}" if rest else "NOTHING"
        given = "OVERRIDING SYSTEM VALUE"  # also what an identity column would count itself
        into = f"{_named(name)} AS t ({listed})"  # "excluded" would mean a table of this name
        self._run(f"INSERT INTO {into} {given} SELECT {listed} FROM {staged}{end}")

    def _refuse_cascade(self, name: TableName) -> None:
        """Raise SinkError if rows of another table have changed with those that were removed."""
        for table, constraint in self._cascades.get(name, ()):
            raise SinkError(
                f"{name} has another unique key, so its rows are removed and written again, and"
                f" ON DELETE of the foreign key {constraint} would change those of {table} each"
                f" time: drop one of the two keys, and start again",
                "schema",
            )

    def delete_like(self, name: TableName, rows: pa.Table) -> None:
        """Rows are compared as records, which can be hashed and in which NULL equals NULL. Tables
        that are parts of one have each a row of the same ctid."""
        staged = self._stage_to_join(name, rows)
        row = f"ROW({', '.join(_quoted(column) for column in rows.column_names)})"
        self._run(
            f"WITH gone AS MATERIALIZED (SELECT r, count(*) AS n, row_number() OVER () AS id"
            f" FROM (SELECT {row} AS r FROM {staged}) s GROUP BY r)"
            f" DELETE FROM {_named(name)} WHERE (tableoid, ctid) IN (SELECT part, place FROM"
            " (SELECT part, place, n, row_number() OVER (PARTITION BY id) AS k FROM gone JOIN"
            f" (SELECT tableoid AS part, ctid AS place, {row} AS r FROM {_named(name)}) t"
            " USING (r)) like_it WHERE k <= n)"
        )

    def _stage(self, name: TableName, rows: pa.Table) -> str:
        """Put rows into a temporary table; return its name."""
        place = name, tuple(rows.column_names)
        staged = self._staging.get(place)
        if staged is None:
            self._staged += 1
            staged = f"pg_temp.canal_rows_{self._staged}"
            columns = ", ".join(_quoted(column) for column in rows.column_names)
            self._run(
                f"CREATE TEMPORARY TABLE {staged} ON COMMIT DELETE ROWS AS"
                f" SELECT {columns} FROM {_named(name)} WITH NO DATA"
            )
            self._staging[place] = staged
        elif staged in self._filled:
            self._run(f"TRUNCATE {staged}")
        self._filled.add(staged)
        text, connection = copy_text(rows), self._connected()
        try:
            with connection.cursor() as cursor, cursor.copy(f"COPY {staged} FROM STDIN") as copy:
                copy.write(text)
        except psycopg.Error as error:
            raise translated(error, f"COPY for {name}") from None
        return staged

    def _stage_to_join(self, name: TableName, rows: pa.Table) -> str:
        """Stage rows for a plan that depends on how many they are."""
        staged = self._stage(name, rows)
        if rows.num_rows >= _ANALYZE_ROWS:
            self._run(f"ANALYZE {staged}")
        return staged

    def _drop_staging(self, name: TableName) -> None:
        for place in [place for place in self._staging if place[0] == name]:
            self._run(f"DROP TABLE {self._staging.pop(place)}")

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            raise SinkError("the target is not connected", "retry")
        return self._connection

    def _run(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Run one statement. Raises SinkError."""
        connection = self._connected()
        try:
            cursor = connection.execute(sql.encode(), values or None)
            return list(cursor.fetchall()) if cursor.description else []
        except psycopg.Error as error:
            raise translated(error, sql) from None


def _quoted(name: str) -> str:
    if len(name.encode()) > _NAME_BYTES_MAX:
        raise SinkError(
            f"the name {name!r} has more than PostgreSQL's {_NAME_BYTES_MAX} bytes: leave the table"
            " out, or give its column another name with `transform`",
            "schema",
        )
    return '"' + name.replace('"', '""') + '"'


def _named(name: TableName) -> str:
    return f"{_quoted(name.database)}.{_quoted(name.table)}"


def _same(keys: pa.Table) -> str:
    columns = map(_quoted, keys.column_names)
    return " AND ".join(f"t.{column} = s.{column}" for column in columns)


def _type(column: ColumnSpec) -> str:
    return postgres_type(column.kind, column.declared, column.charset)


def _definition(column: ColumnSpec) -> str:
    kind = _type(column)
    needed = " NOT NULL" if column.is_key else ""
    return f"{_quoted(column.name)} {kind}{_collation(column, kind)}{needed}"


def _default(column: ColumnSpec) -> str:
    if column.fill is None:
        return ""
    text = literal(pa.array([column.fill], column.kind))
    return f" DEFAULT {text}::{_type(column)}"


def _collation(column: ColumnSpec, kind: str) -> str:
    """Keys compare as bytes: what differs at the source never meets here."""
    return ' COLLATE "C"' if column.is_key and kind == "text" else ""
