"""Cursors in one SQLite file: the default.

A committed write is on the disk: a write-ahead log (FILE-wal) with synchronous=FULL, one fsync a
commit, where a rollback journal needs four (sqlite.org/wal.html). Whole copies of earlier hours are
kept beside the file (copies.py).
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ray_canal.errors import ConfigError, InstanceError, MetaUnavailable
from ray_canal.meta.backend import clock_epoch, fenced, refused
from ray_canal.meta.copies import advice, keep_copy

log = logging.getLogger(__name__)

_BUSY_S = 10.0
_BUSY_PAUSE_S = 0.01
_VERSION = 2
_SCHEMA = """
create table if not exists epoch (destination text primary key, epoch integer not null,
    owner text not null default '');
create table if not exists subscriber (
    destination text not null, client_id integer not null, record text not null,
    primary key (destination, client_id)
);
"""


class SqliteBackend:
    """See MetaBackend. Several processes may open the file; each destination has one owner.

    Raises ConfigError on opening: the folder cannot be written, the file is damaged or not ours.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self.where = f"meta file {path}"
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(
                path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
            )
            self._prepare()
        except (sqlite3.Error, OSError, InstanceError) as error:
            if hasattr(self, "_database"):
                self._database.close()
            raise ConfigError(f"{self.where} cannot be used: {error}. {advice(path)}") from error
        self._keep_copy()

    def _prepare(self) -> None:
        database = self._database
        self._write_ahead()
        database.execute("pragma synchronous=full")
        if self._version() not in (0, 1, _VERSION):
            raise sqlite3.DatabaseError(
                f"its version is {self._version()}, this program reads {_VERSION}"
            )
        verdict = database.execute("pragma integrity_check").fetchone()[0]
        if verdict != "ok":
            raise sqlite3.DatabaseError(f"integrity check: {verdict}")
        if self._version() == _VERSION:
            return
        with self._transaction():
            version = self._version()  # another process may have been faster
            if version == 0:
                for statement in _SCHEMA.split(";"):
                    database.execute(statement)
            elif version == 1:
                database.execute("alter table epoch add column owner text not null default ''")
            database.execute(f"pragma user_version={_VERSION}")

    def _version(self) -> int:
        return int(self._database.execute("pragma user_version").fetchone()[0])

    def _write_ahead(self) -> None:
        """Of processes that switch a new file at once, SQLite tells all but one, without waiting,
        that it is locked."""
        deadline = time.monotonic() + _BUSY_S
        while True:
            try:
                self._database.execute("pragma journal_mode=wal")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
            time.sleep(_BUSY_PAUSE_S)

    def _keep_copy(self) -> None:
        """A copy now and then; a disk that has no room for it is no reason to stop."""
        try:
            if self._database.execute("select 1 from subscriber limit 1").fetchone():
                keep_copy(self._database, self._path)
        except (sqlite3.Error, OSError) as error:
            log.warning("%s: no copy could be kept: %s", self.where, error)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """A write transaction: all of it durable at the end, or none. Raises MetaUnavailable."""
        database = self._database
        try:
            database.execute("begin immediate")
            try:
                yield database
                database.execute("commit")
            except BaseException:
                if database.in_transaction:
                    database.execute("rollback")
                raise
        except sqlite3.Error as error:
            raise MetaUnavailable(f"{self.where} cannot be written: {error}") from error

    def acquire(self, destination: str, owner: str = "", after: int | None = None) -> int:
        with self._transaction() as database:
            newest = self._newest(destination)
            if after is not None and newest > after and not self._made_by(destination, owner):
                raise fenced(destination, after, newest)
            epoch = max(newest + 1, clock_epoch())
            database.execute(
                "insert into epoch values (?, ?, ?)"
                " on conflict do update set epoch = excluded.epoch, owner = excluded.owner",
                (destination, epoch, owner),
            )
            return epoch

    def _made_by(self, destination: str, owner: str) -> bool:
        row = self._database.execute(
            "select owner from epoch where destination = ?", (destination,)
        ).fetchone()
        return bool(owner) and row == (owner,)

    def epoch(self, destination: str) -> int:
        try:
            return self._newest(destination)
        except sqlite3.Error as error:
            raise MetaUnavailable(f"{self.where} cannot be read: {error}") from error

    def _newest(self, destination: str) -> int:
        row = self._database.execute(
            "select epoch from epoch where destination = ?", (destination,)
        ).fetchone()
        return int(row[0]) if row else 0

    def load(self, destination: str) -> dict[int, str]:
        try:
            rows = self._database.execute(
                "select client_id, record from subscriber where destination = ?", (destination,)
            ).fetchall()
        except sqlite3.Error as error:
            raise MetaUnavailable(f"{self.where} cannot be read: {error}") from error
        return {int(client_id): str(record) for client_id, record in rows}

    def save(self, destination: str, epoch: int, client_id: int, record: str) -> None:
        with self._owned(destination, epoch) as database:
            database.execute(
                "insert into subscriber values (?, ?, ?) on conflict do update set record = ?",
                (destination, client_id, record, record),
            )
        self._keep_copy()

    def remove(self, destination: str, epoch: int, client_id: int) -> None:
        with self._owned(destination, epoch) as database:
            database.execute(
                "delete from subscriber where destination = ? and client_id = ?",
                (destination, client_id),
            )

    @contextmanager
    def _owned(self, destination: str, epoch: int) -> Iterator[sqlite3.Connection]:
        """A transaction in which `epoch` is the destination's newest. Raises Fenced."""
        with self._transaction() as database:
            newest = self._newest(destination)
            if newest != epoch:
                raise refused(destination, epoch, newest)
            yield database

    def close(self) -> None:
        self._database.close()
