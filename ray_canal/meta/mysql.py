"""Cursors in two tables of a MySQL or MariaDB server: for clusters whose head may move.

Every operation is one statement that commits by itself. So an owner that is stopped in the middle
holds no lock on which its successor would wait, and a lost connection leaves nothing half done. A
write reads the epoch with a shared lock, in the statement that writes: no takeover fits between.
As durable as the server's commits are (innodb_flush_log_at_trx_commit = 1).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

from ray_canal.config import MetaConfig, SourceConfig
from ray_canal.driver.connection import connect, query
from ray_canal.errors import (
    CanalError,
    ConfigError,
    ConnectionLost,
    MetaUnavailable,
    PrivilegeMissing,
    SourceError,
)
from ray_canal.meta.backend import fenced

_NAME = "character set ascii collate ascii_bin not null"
_TABLES = (
    "create table if not exists {d}.canal_epoch (destination varchar(255) " + _NAME + ","
    " epoch bigint not null, owner varchar(64) " + _NAME + ","
    " primary key (destination)) engine=InnoDB",
    "create table if not exists {d}.canal_cursor (destination varchar(255) " + _NAME + ","
    " client_id bigint not null, record longtext character set utf8mb4 collate utf8mb4_bin"
    " not null, writes bigint not null, primary key (destination, client_id)) engine=InnoDB",
)
# LAST_INSERT_ID carries the new value out of the statement that made it.
_ACQUIRE = (
    "insert into {d}.canal_epoch values (%s, last_insert_id(1), %s)"
    " on duplicate key update epoch = last_insert_id(epoch + 1), owner = %s"
)
_ACQUIRE_AGAIN = (
    "update {d}.canal_epoch set epoch = last_insert_id(epoch + 1), owner = %s"
    " where destination = %s and (epoch = %s or (owner = %s and owner <> ''))"
)
_EPOCH = "select epoch from {d}.canal_epoch where destination = %s"
_LOAD = "select client_id, record from {d}.canal_cursor where destination = %s"
# `writes` makes a repeated record a change, so that the number of changed rows tells what happened.
_SAVE = (
    "insert into {d}.canal_cursor select destination, %s, %s, 1 from {d}.canal_epoch"
    " where destination = %s and epoch = %s lock in share mode"
    " on duplicate key update record = %s, writes = writes + 1"
)
_REMOVE = (
    "delete from {d}.canal_cursor where destination = %s and client_id = %s and exists (select 1"
    " from {d}.canal_epoch where destination = %s and epoch = %s lock in share mode)"
)
_THERE = "select 1 from {d}.canal_epoch, {d}.canal_cursor limit 0"

T = TypeVar("T")


class MysqlBackend:
    """See MetaBackend. Makes its database and tables when they are not there.

    Raises MetaUnavailable; on opening ConfigError, too: refused, not allowed.
    """

    def __init__(self, config: MetaConfig) -> None:
        self._database = f"`{config.database}`"
        self.where = f"meta tables {config.database}.canal_* at {config.address}"
        login = {
            "address": config.address,
            "username": config.username,
            "password": config.password,
            "connect_timeout_s": config.timeout_s,
            "read_timeout_s": config.timeout_s,
            "tls": config.tls,
        }
        self._login = SourceConfig.model_validate(login)
        self._connection: Any = None
        try:
            self._prepare()
        except CanalError as error:
            self.close()
            kind = MetaUnavailable if isinstance(error, ConnectionLost) else ConfigError
            raise kind(self._explained(error)) from None

    def _prepare(self) -> None:
        """Make what is not there. A user that may not make it may use what is there."""
        try:
            self._run(_THERE)
        except ConnectionLost:
            raise
        except SourceError:
            with contextlib.suppress(PrivilegeMissing):  # the database may be there
                self._run("create database if not exists {d}")
            for table in _TABLES:
                self._run(table)

    def acquire(self, destination: str, owner: str = "", after: int | None = None) -> int:
        def statements() -> int:
            if after is None:
                self._run(_ACQUIRE, destination, owner, owner)
            elif not self._changed(_ACQUIRE_AGAIN, owner, destination, after, owner):
                return 0
            return int(self._run("select last_insert_id() epoch")[0]["epoch"])

        epoch = self._again_if_lost(statements)
        if not epoch:
            raise fenced(destination, after or 0, self.epoch(destination))
        return epoch

    def epoch(self, destination: str) -> int:
        rows = self._again_if_lost(lambda: self._run(_EPOCH, destination))
        return int(rows[0]["epoch"]) if rows else 0

    def load(self, destination: str) -> dict[int, str]:
        rows = self._again_if_lost(lambda: self._run(_LOAD, destination))
        return {int(row["client_id"]): str(row["record"]) for row in rows}

    def save(self, destination: str, epoch: int, client_id: int, record: str) -> None:
        values = (client_id, record, destination, epoch, record)
        if not self._again_if_lost(lambda: self._changed(_SAVE, *values)):
            raise fenced(destination, epoch, self.epoch(destination))

    def remove(self, destination: str, epoch: int, client_id: int) -> None:
        values = (destination, client_id, destination, epoch)
        if not self._again_if_lost(lambda: self._changed(_REMOVE, *values)):
            newest = self.epoch(destination)
            if newest != epoch:
                raise fenced(destination, epoch, newest)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close()

    # --- the connection -----------------------------------------------------------------------

    def _run(self, sql: str, *values: object) -> list[dict[str, Any]]:
        if self._connection is None:
            self._connection = connect(self._login)
        # `d` is the database; texts of the caller are values, never part of the statement.
        return query(self._connection, self._login, sql.replace("{d}", self._database), *values)

    def _changed(self, sql: str, *values: object) -> int:
        self._run(sql, *values)
        return int(self._connection.affected_rows())

    def _again_if_lost(self, operation: Callable[[], T]) -> T:
        """Run; once more on a new connection if the old one has ended. Raises
        MetaUnavailable."""
        try:
            try:
                return operation()
            except ConnectionLost:
                self.close()
                return operation()
        except CanalError as error:
            self.close()
            raise MetaUnavailable(self._explained(error)) from None

    def _explained(self, error: CanalError) -> str:
        text = str(error).replace("source.", "meta.")
        if isinstance(error, PrivilegeMissing):
            text = text.partition("; run:")[0] + (
                f"; run: GRANT CREATE, SELECT, INSERT, UPDATE, DELETE ON {self._database}.* TO "
                f"'{self._login.username}'@'%'"
            )
        return f"{self.where} cannot be used: {text}"
