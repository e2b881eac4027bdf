"""Cursors in one SQLite file: the default.

A committed write is on the disk: a write-ahead log (FILE-wal) with synchronous=FULL, one fsync a
commit, where a rollback journal needs four (sqlite.org/wal.html). Whole copies of earlier hours are
kept next to the file (copies.py).
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ray_canal.meta.backend import clock_epoch, fenced, refused
from ray_canal.meta.copies import advice, keep_copy
from ray_canal.meta.sqlite_file import BUSY_S, SqliteFile, is_locked

log = logging.getLogger(__name__)

_COPY_AGAIN_S, _LOOK_AGAIN_S = 600.0, 5.0
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


_EPOCH = "select epoch from epoch where destination = ?"
_SAVE = """
insert into subscriber select ?, ?, ?
where coalesce((select epoch from epoch where destination = ?), 0) = ?
on conflict do update set record = excluded.record
"""


class SqliteBackend:
    """A MetaBackend in a SQLite file. Several processes may open the file; each destination has one
    owner.

    Raises ConfigError on opening: the folder cannot be written, the file is damaged or not ours;
    later MetaDamaged: so it is now, or another file lies there. MetaUnavailable: others keep it
    locked, or its disk is full or mounted read-only.
    """

    def __init__(self, path: str, *, must_exist: bool = False) -> None:
        self.where = f"meta file {path}"
        self._file = SqliteFile(path, self.where, lambda: advice(path), must_exist=must_exist)
        self._database = self._file.database
        self._next_copy_s = 0.0
        self._glances = threading.Lock()
        with self._file.preparing():
            self._prepare()
            self._reader = self._file.another(timeout_s=0.0)
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
        with self._file.transaction():
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
        """Switch the file to a write-ahead log. Of processes that do so at once, SQLite tells all
        but one, without waiting, that it is locked."""
        deadline = time.monotonic() + BUSY_S
        while True:
            try:
                self._database.execute("pragma journal_mode=wal")
                return
            except sqlite3.OperationalError as error:
                if not is_locked(error) or time.monotonic() > deadline:
                    raise
            time.sleep(_BUSY_PAUSE_S)

    def _keep_copy(self) -> None:
        """A copy now and then; a disk that has no room for it is no reason to stop. It is tried
        again after some minutes, and whether one is due is looked at after some seconds, not at
        each ack."""
        if time.monotonic() < self._next_copy_s:
            return
        try:
            if self._database.execute("select 1 from subscriber limit 1").fetchone():
                self._next_copy_s = time.monotonic() + _LOOK_AGAIN_S
                keep_copy(self._database, self._file.path)
        except (sqlite3.Error, OSError) as error:
            self._next_copy_s = time.monotonic() + _COPY_AGAIN_S
            log.warning("%s: no copy could be kept: %s", self.where, error)

    def acquire(self, destination: str, owner: str = "", after: int | None = None) -> int:
        with self._file.transaction() as database:
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
        return self._newest(destination)

    def _newest(self, destination: str) -> int:
        rows = self._file.rows(_EPOCH, destination)
        return int(rows[0][0]) if rows else 0  # type: ignore[call-overload]

    def epoch_at_once(self, destination: str) -> int | None:
        # A write-ahead log's readers wait for no writer, whose fsync may take long.
        if not self._glances.acquire(blocking=False):
            return None
        try:
            if not self._file.is_there():
                return None
            row = self._reader.execute(_EPOCH, (destination,)).fetchone()
            return None if row is None else int(row[0])
        except sqlite3.Error:  # `epoch` tells what is wrong
            return None
        finally:
            self._glances.release()

    def load(self, destination: str) -> dict[int, str]:
        rows = self._file.rows(
            "select client_id, record from subscriber where destination = ?", destination
        )
        return {int(client_id): str(record) for client_id, record in rows}  # type: ignore[call-overload]

    def save(self, destination: str, epoch: int, client_id: int, record: str) -> None:
        # One statement, as this is every ack: each gives up Python's lock, and has to wait for it.
        if not self._file.write(_SAVE, destination, client_id, record, destination, epoch):
            raise refused(destination, epoch, self._newest(destination))
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
        with self._file.transaction() as database:
            newest = self._newest(destination)
            if newest != epoch:
                raise refused(destination, epoch, newest)
            yield database

    def close(self) -> None:
        with self._glances:
            self._reader.close()
        self._file.close()
