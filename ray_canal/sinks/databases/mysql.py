"""A mirror in MySQL or MariaDB: statements as text that Arrow made, one transaction a commit.

The target's session has its own sql_mode, so that literals mean one thing; foreign keys are not
checked, as tables are written one after the other. Text keys get a binary collation, without
padding where the target has such a one: two keys that differ at the source never meet here, not
even where they differ by a space at the end.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from pymysql.err import MySQLError

from ray_canal.config import MirrorConfig, SourceConfig
from ray_canal.errors import CanalError
from ray_canal.sinks.column_specs import ColumnSpec
from ray_canal.sinks.databases.mysql_errors import of_changed_table, translated
from ray_canal.sinks.databases.mysql_literals import (
    comparable,
    has_values,
    known_values,
    literal,
    tuples,
)
from ray_canal.sinks.databases.mysql_rights import Need, missing_rights
from ray_canal.sinks.databases.mysql_types import (
    KEY_TEXT,
    canonical_type,
    charset_words,
    default_words,
    has_no_empty_label,
    is_since,
    known_to,
    mysql_type,
    shown,
)
from ray_canal.sinks.databases.port import SqlDatabase, close_quietly, in_key_order
from ray_canal.sinks.port import SinkError
from ray_canal.sinks.schema_follower import TableName, TargetTable
from ray_canal.sinks.table_moves import in_order
from ray_canal.source.connection import connect

logger = logging.getLogger(__name__)

_SESSION = (
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_BACKSLASH_ESCAPES,NO_AUTO_VALUE_ON_ZERO',"
    " time_zone = '+00:00', foreign_key_checks = 0, sql_safe_updates = 0"
    "/*!50709 , range_optimizer_max_mem_size = 0 *//*M!100307 , alter_algorithm = 'DEFAULT' */"
)
"""A statement has thousands of keys, which a server may find too many to use its index for: it
would read the whole table, and is refused with sql_safe_updates. (MariaDB skips 50709.) A server
that takes quick ALTERs alone would refuse another type."""
_CHARSETS = (
    "SELECT character_set_name, max(CASE WHEN collation_name LIKE '%nopad_bin'"
    " OR collation_name = 'utf8mb4_0900_bin' THEN collation_name END)"
    " FROM information_schema.collations WHERE character_set_name IS NOT NULL GROUP BY 1"
)
"""The server's character sets, each with its collation for keys. MariaDB has one for each, MySQL
since 8.0.17 for utf8mb4 alone. The others take a space at the end for none."""
_STATEMENT_BYTES_MAX = 4 << 20
_STATEMENT_ROWS_MAX = 5000
_GENERATED = re.compile("virtual|stored|persistent|auto_increment invisible")
"""In the "extra" of a column that the server computes, or the key that it gives a table itself."""


class _Login(SourceConfig):
    section: ClassVar[str] = "mirror"


class MySqlDatabase(SqlDatabase):
    """A `Database` of port.py."""

    ddl_in_transaction = False  # it would commit

    def __init__(self, config: MirrorConfig) -> None:
        super().__init__(config.cursor_database)
        self._config = config
        self._marks: set[str] = set()  # of statements that renamed tables, after this place
        self._marked_at = ""
        self._connection: Any = None
        self._bytes_max = _STATEMENT_BYTES_MAX
        self._packet = 0
        self._version = ""
        self._delete_first: dict[TableName, bool] = {}
        self._labels: dict[TableName, set[str]] = {}
        self._charsets: dict[str, str | None] = {}

    def connect(self) -> None:
        config = self._config
        login = _Login.model_validate(
            {
                "address": config.address,
                "username": config.username,
                "password": config.password,
                "tls": config.tls,
                "read_timeout_s": config.timeout_s,
            }
        )
        try:
            self._connection = connect(login)
        except CanalError as error:
            raise SinkError(f"target: {error}", "retry" if error.retryable else "fatal") from None
        self._delete_first.clear()
        self._run(_SESSION)
        # The server gives a lock up before we do: a statement that waits outlives its connection.
        wait_s = max(1, int(config.timeout_s) // 2)
        self._run(f"SET lock_wait_timeout = {wait_s}, innodb_lock_wait_timeout = {wait_s}")
        if config.senders > 1:  # else one waits for keys that another looked for and did not find
            self._run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        ((packet, version),) = self._run("SELECT @@max_allowed_packet, VERSION()")
        self._packet, self._version = int(packet), str(version)
        self._bytes_max = min(_STATEMENT_BYTES_MAX, self._packet // 2)
        self._charsets = dict(self._run(_CHARSETS))
        self._folds_case = self._run("SELECT @@lower_case_table_names")[0][0] != 0

    def close(self) -> None:
        connection, self._connection = self._connection, None
        close_quietly(connection, MySQLError, OSError)

    # --- the cursor ------------------------------------------------------------------------------

    def take_over(self, sink: str) -> tuple[int, str]:
        self._sink, database = sink, _quoted(self._cursor_database)
        if not self._has_own("canal_table"):
            self._run(f"CREATE DATABASE IF NOT EXISTS {database}")
            self._run(
                f"CREATE TABLE IF NOT EXISTS {self._cursors} ("
                "sink VARCHAR(190) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY,"
                " epoch BIGINT NOT NULL, place TEXT CHARACTER SET utf8 NOT NULL,"
                " written TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP"
                ") ENGINE=InnoDB"
            )
            names = "VARCHAR(64) CHARACTER SET utf8 COLLATE utf8_bin NOT NULL"
            self._run(
                f"CREATE TABLE IF NOT EXISTS {self._sources} ("
                f"sink VARCHAR(190) CHARACTER SET ascii COLLATE ascii_bin, of_database {names},"
                f" of_table {names}, source VARCHAR(130) CHARACTER SET utf8 COLLATE utf8_bin"
                " NOT NULL, PRIMARY KEY (sink, of_database, of_table)) ENGINE=InnoDB"
            )
        self._run("START TRANSACTION")  # else another runner's epoch might be read as this one's
        self._run(
            f"INSERT INTO {self._cursors} (sink, epoch, place) VALUES (%s, 1, '')"
            " ON DUPLICATE KEY UPDATE epoch = epoch + 1",
            sink,
        )
        rows = self._run(f"SELECT epoch, place FROM {self._cursors} WHERE sink = %s", sink)
        self._run("COMMIT")
        self._marks, self._marked_at = self._own_marks(), str(rows[0][1])
        return int(rows[0][0]), self._marked_at

    def begin(self, sink: str) -> int:
        self._run("START TRANSACTION")
        rows = self._run(f"SELECT epoch FROM {self._cursors} WHERE sink = %s FOR UPDATE", sink)
        return int(rows[0][0]) if rows else -1

    def commit(self, sink: str, place: str) -> None:
        self._run(f"UPDATE {self._cursors} SET place = %s WHERE sink = %s", place, sink)
        self._run("COMMIT")
        if self._marks and place != self._marked_at:
            self._run(f"DROP TABLE IF EXISTS {', '.join(map(self._own, sorted(self._marks)))}")
            self._marks.clear()
        self._marked_at = place

    def rollback(self) -> None:
        if self._connection is not None:
            self._run("ROLLBACK")

    # --- tables ----------------------------------------------------------------------------------

    def find(self, name: TableName) -> TargetTable | None:
        of_table = "WHERE table_schema = %s AND table_name = %s"
        columns = self._run(
            "SELECT column_name, column_key, extra, column_type FROM information_schema.columns"
            f" {of_table} ORDER BY ordinal_position",
            *name,
        )
        if not columns:
            return None
        uniques = self._run(
            "SELECT count(*) FROM information_schema.statistics"
            f" {of_table} AND non_unique = 0 AND index_name <> 'PRIMARY'",
            *name,
        )
        self._delete_first[name] = bool(uniques[0][0])
        self._labels[name] = {
            str(column)
            for column, kind, _, declared in columns
            if kind != "PRI" and has_no_empty_label(shown(declared))
        }
        return TargetTable(
            tuple(str(row[0]) for row in columns),
            tuple(str(row[0]) for row in columns if row[1] == "PRI"),
            tuple(str(row[0]) for row in columns if _GENERATED.search(shown(row[2]))),
        )

    def tells_keys(self, name: TableName) -> bool:
        rows = self._run(
            "SELECT c.collation_name, s.sub_part FROM information_schema.statistics s"
            " JOIN information_schema.columns c USING (table_schema, table_name, column_name)"
            " WHERE table_schema = %s AND table_name = %s AND s.index_name = 'PRIMARY'",
            *name,
        )
        is_whole = all(part is None for _, part in rows)  # else keys meet by their first bytes
        in_bytes = all(shown(row[0]).endswith("bin") for row in rows if row[0] is not None)
        return is_whole and in_bytes and not self._delete_first.get(name, True)

    def missing_rights(self, names: Sequence[TableName], changes: bool) -> list[str]:
        """See Database. The rights of roles that a login has by default count."""
        user = str(self._run("SELECT CURRENT_USER()")[0][0])
        of_roles = ""
        with contextlib.suppress(SinkError):  # there are no roles before MySQL 8
            roles = self._run("SELECT CURRENT_ROLE()")[0][0]
            if roles and "@" in str(roles):  # MariaDB shows a role's rights by itself
                of_roles = f" FOR CURRENT_USER() USING {roles}"
        grants = [str(row[0]) for row in self._run(f"SHOW GRANTS{of_roles}")]
        needs = [Need(name, self.find(name) is not None, changes) for name in names]
        login, _, host = user.rpartition("@")
        return missing_rights(grants, needs, f"'{login}'@'{host}'")

    def create(self, name: TableName, columns: Sequence[ColumnSpec]) -> None:
        self._run(f"CREATE DATABASE IF NOT EXISTS {_quoted(name.database)}")
        lines = [self._definition(column) for column in columns]
        key = ", ".join(_quoted(column.name) for column in columns if column.is_key)
        lines += [f"PRIMARY KEY ({key})"] if key else []
        body = ", ".join(lines)
        self._run(f"CREATE TABLE IF NOT EXISTS {_named(name)} ({body}) ENGINE=InnoDB")

    def add(self, name: TableName, columns: Sequence[ColumnSpec]) -> None:
        """Rows that are there get their values by a DEFAULT, as a table of any size does at once;
        it stays no longer than that."""
        parts = (f"ADD COLUMN {self._definition(c)}{self._default(c)}" for c in columns)
        self._alter(name, parts, free=[c.name for c in columns])
        self.change(name, [column for column in columns if self._default(column)])

    def _default(self, column: ColumnSpec) -> str:
        if column.fill is None:
            return ""
        return default_words(self._version, column, literal(pa.array([column.fill], column.kind)))

    def rename_columns(self, name: TableName, names: Mapping[str, str]) -> None:
        pairs = names.items()
        if not is_since(self._version, (8, 0, 3), (10, 5, 2)):
            text = ", ".join(f"{old} to {new}" for old, new in pairs)
            raise SinkError(
                f"the source renamed {text}, and the target's server has no RENAME COLUMN: rename "
                f"in {name}, and start again",
                "schema",
            )
        parts = (f"RENAME COLUMN {_quoted(old)} TO {_quoted(new)}" for old, new in pairs)
        self._alter(name, parts, names, names.values())

    def differing(self, name: TableName, columns: Sequence[ColumnSpec]) -> list[ColumnSpec]:
        kinds = self.types(name)
        return [
            column
            for column in (known_to(self._version, each) for each in columns)
            if column.declared
            and canonical_type(kinds[column.name]) != canonical_type(column.declared)
        ]

    def types(self, name: TableName) -> dict[str, str]:
        rows = self._run(
            "SELECT column_name, column_type FROM information_schema.columns"
            " WHERE table_schema = %s AND table_name = %s",
            *name,
        )
        return {str(row[0]): shown(row[1]) for row in rows}

    def change(self, name: TableName, columns: Sequence[ColumnSpec]) -> None:
        names = [column.name for column in columns]
        try:
            self._alter(name, (f"MODIFY COLUMN {self._definition(c)}" for c in columns), names)
        except SinkError as error:  # MariaDB does not cast between all types
            if error.kind != "schema" or any(c.is_key for c in columns) or self.has_rows(name):
                raise
            parts = (f"DROP {_quoted(c.name)}, ADD {self._definition(c)}" for c in columns)
            self._alter(name, parts, names)

    def remove(self, name: TableName, columns: Sequence[str]) -> None:
        self._alter(name, (f"DROP COLUMN {_quoted(column)}" for column in columns), columns)

    def _alter(
        self,
        name: TableName,
        parts: Iterator[str],
        needed: Iterable[str] = (),
        free: Iterable[str] = (),
    ) -> None:
        """Do this to a table that has the `needed` columns, and none of the `free` names."""
        if text := ", ".join(parts):
            with of_changed_table(lambda: self.types(name), needed, free):
                self._run(f"ALTER TABLE {_named(name)} {text}")

    def has_rows(self, name: TableName) -> bool:
        return bool(self._run(f"SELECT 1 FROM {_named(name)} LIMIT 1"))

    def rename(self, pairs: Mapping[TableName, TableName], where: str) -> None:
        """One statement, which also renames a table of the sink's own: by that the next run sees
        that it was done, where this one ends before its commit. The next commit of another place,
        which may be an earlier one by then, removes it."""
        mark = self._mark(where)
        free = TableName(self._cursor_database, mark.replace("moved", "free"))
        ready = free._replace(table=mark.replace("moved", "ready"))
        column = "none INT PRIMARY KEY"
        self._run(f"CREATE TABLE IF NOT EXISTS {_named(ready)} ({column}) ENGINE=InnoDB")
        for database in {new.database for new in pairs.values()}:
            self._run(f"CREATE DATABASE IF NOT EXISTS {_quoted(database)}")
        steps = [*in_order(pairs, free), (ready, free._replace(table=mark))]
        text = ", ".join(f"{_named(a)} TO {_named(b)}" for a, b in steps)
        with of_changed_table():
            self._run(f"RENAME TABLE {text}")
        self._marks.add(mark)

    def has_renamed(self, where: str) -> bool:
        mark = self._mark(where)
        if self._has_own(mark):
            self._marks.add(mark)
        return mark in self._marks

    def _mark(self, where: str) -> str:
        return self._mark_prefix + _digest(where)

    @property
    def _mark_prefix(self) -> str:
        return f"canal_moved_{_digest(self._sink)}_"

    def _own_marks(self) -> set[str]:
        prefix = self._mark_prefix
        tables = "SELECT table_name FROM information_schema.tables WHERE table_schema = %s"
        which = f"{tables} AND substr(table_name, 1, {len(prefix)}) = %s"
        return {str(row[0]) for row in self._run(which, self._cursor_database, prefix)}

    def _own(self, table: str) -> str:
        return _named(TableName(self._cursor_database, table))

    def _has_own(self, table: str) -> bool:
        found = "WHERE table_schema = %s AND table_name = %s"
        database = self._cursor_database
        return bool(self._run(f"SELECT 1 FROM information_schema.tables {found}", database, table))

    def note_source(self, name: TableName, source: str) -> None:
        values = self._sink, *self._compared(name), source
        self._run(f"REPLACE INTO {self._sources} VALUES (%s, %s, %s, %s)", *values)

    def empty(self, name: TableName) -> None:
        self._run(f"TRUNCATE TABLE {_named(name)}")

    def drop(self, name: TableName) -> None:
        self._run(f"DROP TABLE IF EXISTS {_named(name)}")

    # --- rows ------------------------------------------------------------------------------------

    def delete(self, name: TableName, keys: pa.Table) -> None:
        keys = known_values(self._version, in_key_order(keys, keys.column_names))
        columns = ", ".join(_quoted(column) for column in keys.column_names)
        start = f"DELETE FROM {_named(name)} WHERE ({columns}) IN ("
        for values in tuples(keys, self._bytes_max, _STATEMENT_ROWS_MAX, comparable):
            self._run(start.encode() + values + b")")

    def upsert(self, name: TableName, key: Sequence[str], rows: pa.Table) -> None:
        """Write rows by their key. Where the table has other unique keys, they are removed first:
        an upsert would take any of those for the row that is meant; a row that meets another one by
        such a key is refused. A TIMESTAMP in the key is written, too: else a server before MySQL 8
        may set it to the time now."""
        replaces = bool(key)
        if key and self._delete_first.get(name, True):
            self.delete(name, rows.select(list(key)))
            replaces = False
        rows = self._with_labels(name, in_key_order(rows, key))
        columns = [_quoted(column) for column in rows.column_names]
        start = f"INSERT INTO {_named(name)} ({', '.join(columns)}) VALUES "
        rest = [
            _quoted(field.name)
            for field in rows.schema
            if field.name not in key or pa.types.is_timestamp(field.type)
        ] or columns[:1]
        updates = ", ".join(f"{column} = VALUES({column})" for column in rest)
        end = f" ON DUPLICATE KEY UPDATE {updates}" if replaces else ""
        for values in tuples(rows, self._bytes_max, _STATEMENT_ROWS_MAX):
            self._run(start.encode() + values + end.encode())

    def _with_labels(self, name: TableName, rows: pa.Table) -> pa.Table:
        """Return rows with NULL for a value of an ENUM that is none of its labels, which reads as
        an empty text: a strict server does not take it."""
        for column in self._labels.get(name, set()) & set(rows.column_names):
            values = rows[column]
            if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
                none = pc.if_else(pc.equal(values, ""), pa.scalar(None, values.type), values)
                rows = rows.set_column(rows.column_names.index(column), column, none)
        return rows

    def delete_like(self, name: TableName, rows: pa.Table) -> None:
        rows = self._with_labels(name, rows)
        conditions = [has_values(_quoted(each), rows[each]) for each in rows.column_names]
        start = f"DELETE FROM {_named(name)} WHERE ".encode()
        for row in zip(*conditions, strict=True):
            self._run(start + b" AND ".join(row) + b" LIMIT 1")

    def _definition(self, column: ColumnSpec) -> str:
        """A column as CREATE TABLE has it: as the source declares it, so far as the server knows
        the type, NULL allowed but in the key."""
        column = known_to(self._version, column)
        kind = column.declared or mysql_type(column.kind, column.is_key)
        charset = column.charset
        if (not column.declared and kind == KEY_TEXT) or not self._knows(charset):
            charset = "utf8mb4"
        text = charset_words(kind, charset, column.is_key, self._charsets)
        return f"{_quoted(column.name)} {kind}{text} {'NOT NULL' if column.is_key else 'NULL'}"

    def _knows(self, charset: str) -> bool:
        return charset in ("", "binary", "utf8", "utf8mb3") or charset in self._charsets

    def _run(self, sql: str | bytes, *values: object) -> Sequence[tuple[Any, ...]]:
        """Run one statement. Raises SinkError."""
        if self._connection is None:
            raise SinkError("the target is not connected", "retry")
        if isinstance(sql, bytes) and len(sql) >= self._packet:  # it would end the connection
            raise SinkError(
                f"target: a row takes a statement of {len(sql)} bytes, and the server's"
                f" max_allowed_packet is {self._packet}: raise it there, and start again",
                "poison",
            )
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(sql, values or None)
                return tuple(cursor.fetchall())
        except MySQLError as error:
            raise translated(error, sql) from error
        except OSError as error:
            raise SinkError(f"target: {error}", "retry") from None


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _named(name: TableName) -> str:
    return f"{_quoted(name.database)}.{_quoted(name.table)}"
