"""Ask a server about itself: tables, variables, binlog files, current position.

Every call may reconnect once, as long-lived idle connections get closed. Raises SourceError kinds.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ray_canal.config import SourceConfig
from ray_canal.errors import (
    ConnectionLost,
    PrivilegeMissing,
    ServerSettingRefused,
    SourceError,
    UnsupportedEvent,
)
from ray_canal.model.position import EntryPosition
from ray_canal.model.table_meta import (
    POLARDBX_HIDDEN_KEY,
    RDS_HIDDEN_KEY,
    ColumnMeta,
)
from ray_canal.source.connection import SERVER_SQL, connect, query, server_uuid, stream
from ray_canal.types import mysql
from ray_canal.types.charsets import canonical
from ray_canal.types.registry import SYNONYMS, WORDS

_LABEL = re.compile(r"'((?:[^']|'')*)'")
_ESCAPED = re.compile(r"''|\\(.)", re.DOTALL)
_ESCAPES = {"0": "\0", "n": "\n", "r": "\r"}
_GENERATED_KEYS = (
    r"SHOW SESSION VARIABLES LIKE 'show\_gipk\_in\_create\_table\_and\_information\_schema'"
)


class Catalog:
    """Questions to one server, over one connection that is made when first needed."""

    def __init__(self, config: SourceConfig) -> None:
        self._config = config
        self._connection: Any = None
        self._hidden_key: str | None = None

    def close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(Exception):
                self._connection.close()
            self._connection = None

    def rows(self, sql: str, *values: object) -> list[dict[str, Any]]:
        """Return the rows of one query as dicts."""
        while True:
            fresh = self._connection is None
            if fresh:
                self._connection = self._connected()
            try:
                return query(self._connection, self._config, sql, *values)
            except ConnectionLost:
                self.close()
                if fresh:
                    raise

    def each(self, sql: str, *values: object) -> Iterator[dict[str, Any]]:
        """Rows of one query as they come, for very many; not asked again where the connection is
        lost. Nothing else may be asked meanwhile."""
        if self._connection is None:
            self._connection = self._connected()
        try:
            yield from stream(self._connection, self._config, sql, *values)
        except BaseException:
            self.close()
            raise

    def _connected(self) -> Any:
        """Return a new connection that is shown the primary keys that MySQL 8 makes by itself: the
        log has them, and a server may be set to leave them out of its catalog."""
        connection = connect(self._config)
        try:
            for found in query(connection, self._config, _GENERATED_KEYS):
                if found["Value"] == "OFF":
                    query(connection, self._config, f"SET SESSION {found['Variable_name']} = ON")
        except BaseException:
            connection.close()
            raise
        return connection

    def variable(self, name: str) -> str | None:
        """A global variable's value as text; None where this server has no such variable."""
        rows = self.rows("SHOW GLOBAL VARIABLES LIKE %s", name.replace("_", r"\_"))
        return None if not rows else str(rows[0]["Value"])

    def text(self, name: str) -> str:
        """A global variable's whole value; empty where this server has no such variable. (What
        SHOW VARIABLES lists is cut after 1,024 characters, or 2,048.)"""
        if self.variable(name) is None:
            return ""
        return str(self.rows(f"SELECT @@GLOBAL.{name} AS value")[0]["value"] or "")

    @property
    def version(self) -> str:
        """Return the server's version, as it writes it."""
        return str(self.rows("SELECT VERSION() AS version")[0]["version"])

    @property
    def is_mariadb(self) -> bool:
        """Return whether the server is a MariaDB."""
        return "mariadb" in self.version.lower()

    def lower_case_table_names(self) -> int:
        """Return how the server compares names of tables and databases (schema/names.py)."""
        return int(self.variable("lower_case_table_names") or 0)

    def server_uuid(self) -> str:
        """MySQL's server_uuid; MariaDB has none, so its server id."""
        return server_uuid(self.rows(SERVER_SQL))

    def hidden_key(self) -> str:
        """The key that this server adds to keyless tables, unseen; empty: it does not."""
        if self._hidden_key is None:
            found = {
                name: self.rows("SHOW GLOBAL VARIABLES LIKE %s", pattern)
                for name, pattern in (
                    (POLARDBX_HIDDEN_KEY, r"polardbx\_%"),
                    (RDS_HIDDEN_KEY, r"rds\_%"),
                )
            }
            self._hidden_key = next((name for name, rows in found.items() if rows), "")
        return self._hidden_key

    def binlogs(self) -> list[tuple[str, int]]:
        """Return (file name, size in bytes), oldest first. Raises ServerSettingRefused: no
        binlog."""
        rows = self.rows("SHOW BINARY LOGS")
        return [(str(row["Log_name"]), int(row["File_size"])) for row in rows]

    def now_us(self) -> int:
        """Return what the server's clock says, in whole seconds as microseconds. Not of NOW(6),
        which is ambiguous in the hour in which daylight saving time ends."""
        return int(self.rows("SELECT UNIX_TIMESTAMP() AS now_s")[0]["now_s"]) * 1_000_000

    def position(self) -> EntryPosition:
        """Return where the binlog ends now, with the GTIDs executed up to there."""
        row = self._log_status()
        position = EntryPosition(str(row["File"]), int(row["Position"]))
        gtid = row.get("Executed_Gtid_Set")
        if gtid is None:
            gtid = self._mariadb_gtid(position)
        return EntryPosition(
            position.journal_name, position.position, gtid=str(gtid).replace("\n", "")
        )

    def log_limits(self) -> tuple[str, str]:
        """Return (databases that the binlog is limited to, databases that it lacks); empty: all,
        none."""
        row = self._log_status()
        return str(row.get("Binlog_Do_DB") or ""), str(row.get("Binlog_Ignore_DB") or "")

    def _log_status(self) -> dict[str, Any]:
        rows: list[dict[str, Any]] = []
        try:
            rows = self.rows("SHOW BINARY LOG STATUS")
        except PrivilegeMissing:
            raise
        except SourceError as error:
            if error.retryable:
                raise
            rows = self.rows("SHOW MASTER STATUS")
        if not rows:
            raise ServerSettingRefused(
                f"MySQL at {self._config.address}: the binary log is off; start the server with "
                "--log-bin"
            )
        return rows[0]

    def _mariadb_gtid(self, position: EntryPosition) -> str:
        try:
            rows = self.rows(
                "SELECT BINLOG_GTID_POS(%s, %s) AS gtid", position.journal_name, position.position
            )
        except SourceError as error:
            if error.retryable:
                raise
            return ""  # MySQL before GTIDs
        return str(rows[0]["gtid"] or "")

    def gtid_executed(self) -> str:
        """All executed GTIDs; empty where GTIDs are off."""
        name = "gtid_binlog_pos" if self.is_mariadb else "gtid_executed"
        return self.text(name).replace("\n", "")

    def known_gtids(self) -> str:
        """All executed GTIDs. Of MariaDB: of each domain the last of every server that wrote in it,
        as the server's log has it, and what it has from another one."""
        if not self.is_mariadb:
            return self.gtid_executed()
        found = [self.text(name) for name in ("gtid_binlog_state", "gtid_slave_pos")]
        return ",".join(filter(None, found)).replace("\n", "")

    def leaves_rows_out(self) -> str:
        """Return why this server may lack rows of transactions that it replicates; empty: as far as
        it says, it takes over all."""
        if why := self.passes_over_errors():
            return why
        try:
            rows = self.replication()
        except PrivilegeMissing as error:
            return str(error)
        filters = [name for row in rows for name in replication_filters(row)]
        return f"{', '.join(filters)} is set" if filters else ""

    def passes_over_errors(self) -> str:
        """Return why this server replicates on after an error; empty: it does not."""
        for name in ("replica_skip_errors", "slave_skip_errors"):
            if (self.variable(name) or "OFF").upper() not in ("OFF", ""):
                return f"{name} is set"
        for name in ("replica_exec_mode", "slave_exec_mode"):
            if (self.variable(name) or "STRICT").upper() != "STRICT":
                return f"{name} is not STRICT"
        return ""

    def replication(self) -> list[dict[str, Any]]:
        """Return how this server replicates: a row for each source."""
        statements = ("SHOW ALL SLAVES STATUS",) if self.is_mariadb else (
            "SHOW REPLICA STATUS", "SHOW SLAVE STATUS"
        )  # fmt: skip
        for statement in statements:
            try:
                return self.rows(statement)
            except PrivilegeMissing:
                raise
            except SourceError as error:
                if error.retryable:
                    raise  # else this server knows the other statement
        return []

    def gtid_purged(self) -> str:
        """GTIDs whose events are gone (MySQL)."""
        return self.text("gtid_purged").replace("\n", "")

    def retention_s(self) -> float:
        """Age at which the server purges a binlog file; 0: it does not by itself."""
        if (self.variable("binlog_expire_logs_auto_purge") or "ON").upper() == "OFF":
            return 0.0
        seconds = float(self.variable("binlog_expire_logs_seconds") or 0)
        return seconds or 86400 * float(self.variable("expire_logs_days") or 0)

    def grants(self) -> list[str]:
        """SHOW GRANTS of the own user."""
        return [str(next(iter(row.values()))) for row in self.rows("SHOW GRANTS")]


def _unescaped(match: re.Match[str]) -> str:
    """Return the character that COLUMN_TYPE writes like this in a label, whatever sql_mode is."""
    return "'" if match[1] is None else _ESCAPES.get(match[1], match[1])


def column_of_row(row: dict[str, Any], is_key: bool) -> ColumnMeta:
    """Return a column of information_schema.COLUMNS. Not even COLUMN_KEY tells `is_key`: it takes
    a unique key of a table without a primary one for it. Raises UnsupportedEvent: a type that is
    not known."""
    data_type, mysql_type = str(row["DATA_TYPE"]).lower(), str(row["COLUMN_TYPE"])
    if isinstance(row["COLUMN_TYPE"], bytes):
        mysql_type = row["COLUMN_TYPE"].decode("utf-8")
    name = str(row["COLUMN_NAME"])
    word = WORDS.get(SYNONYMS.get(data_type, data_type))
    if word is None:
        raise UnsupportedEvent(f"column {name} has a type that is not known: {mysql_type!r}")
    extra = str(row["EXTRA"] or "").lower()
    expression = str(row.get("GENERATION_EXPRESSION") or "")  # asked of MariaDB alone
    labels: tuple[str, ...] = ()
    if data_type in ("enum", "set"):
        labels = tuple(_ESCAPED.sub(_unescaped, label) for label in _LABEL.findall(mysql_type))
    is_binary, is_decimal = word.charset == "binary", word.code == mysql.NEWDECIMAL
    length = row["NUMERIC_PRECISION" if word.code == mysql.BIT else "CHARACTER_MAXIMUM_LENGTH"]
    return ColumnMeta(
        name=name,
        type_code=word.code,
        mysql_type=mysql_type,
        unsigned="unsigned" in mysql_type.lower().replace(")", ") ").split(),
        nullable=row["IS_NULLABLE"] == "YES",
        is_key=is_key,
        charset="binary" if is_binary else canonical(str(row["CHARACTER_SET_NAME"] or "")),
        length=int(length or 0) // (4 if word.code == mysql.VECTOR else 1),
        precision=int(row["NUMERIC_PRECISION"] or 0) if is_decimal else 0,
        scale=int(row["NUMERIC_SCALE"] or 0) if is_decimal else 0,
        fraction=int(row["DATETIME_PRECISION"] or 0),
        labels=labels,
        visible="invisible" not in extra,
        is_generated=bool(expression) and not expression.upper().startswith("ROW "),
    )


def replication_filters(status: Mapping[str, Any]) -> dict[str, str]:
    """Return the filters of one source by the names that SHOW REPLICA STATUS gives them."""
    return {
        name: str(value)
        for name, value in status.items()
        if name.startswith("Replicate_") and "Server_Ids" not in name and value
    }
