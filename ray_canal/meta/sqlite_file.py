"""A SQLite file of ours: private, checked, and refused once it is damaged or not the same file.

No other descriptor of the file is ever opened in a process that has a connection to it: closing one
would release SQLite's locks (sqlite.org/howtocorrupt.html).
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ray_canal.disk_trial import NO_ROOM, write_failure
from ray_canal.errors import (
    MORE_OPEN_FILES,
    CanalError,
    ConfigError,
    MetaDamaged,
    MetaUnavailable,
)

BUSY_S = 10.0
PRIVATE = 0o600


class SqliteFile:
    """`what`: how an error calls it. `advice`: what to do when it is damaged."""

    def __init__(
        self, path: str, what: str, advice: Callable[[], str], *, must_exist: bool = False
    ) -> None:
        """Raises ConfigError: it cannot be opened; it is not there, and `must_exist`.
        MetaUnavailable: its disk is full or mounted read-only, or no more files may be open."""
        self.path = path
        self._what = what
        self._advice = advice
        try:
            if must_exist and not os.path.exists(path):
                raise FileNotFoundError("it was removed while it was in use")
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            _make_private(path)
            self.database = self.another(BUSY_S)
            self._is = _identity(path)
        except (sqlite3.Error, OSError) as error:
            raise self.unusable(error) from error

    def another(self, timeout_s: float) -> sqlite3.Connection:
        """Return another connection, which waits so long for those that have the file locked."""
        return sqlite3.connect(
            self.path, timeout=timeout_s, isolation_level=None, check_same_thread=False
        )

    @contextmanager
    def preparing(self) -> Iterator[sqlite3.Connection]:
        """Tell whatever fails while the file is prepared as ConfigError, but for a file that others
        keep locked, or a disk that takes nothing: MetaUnavailable."""
        try:
            yield self.database
        except (sqlite3.Error, OSError, CanalError) as error:
            self.database.close()
            if is_locked(error) or is_locked(error.__cause__):
                raise MetaUnavailable(f"{self._what} cannot be opened: {error}") from error
            raise self.unusable(error) from error

    def unusable(self, error: Exception) -> CanalError:
        """Return the error that says what is wrong with the file, and what to do."""
        cause = error.__cause__ if isinstance(error, MetaUnavailable) else error
        if disk := _disk_advice(self.path, cause):
            if isinstance(error, MetaUnavailable):
                return error  # of a statement, which says so
            return MetaUnavailable(f"{self._what} cannot be opened: {error}. {disk}")
        advice = _rights_advice(self.path, error) or self._advice()
        return ConfigError(f"{self._what} cannot be used: {error}. {advice}")

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A write transaction: all of it durable at the end, or none. Raises MetaUnavailable,
        MetaDamaged."""
        database = self.database
        with self._told("written"):
            self._refuse_other()
            database.execute("begin immediate")
            try:
                yield database
                database.execute("commit")
            except BaseException:
                if database.in_transaction:
                    database.execute("rollback")
                raise

    def write(self, sql: str, *values: object) -> int:
        """Run one statement, a transaction of its own; return how many rows it has written. Raises
        MetaUnavailable, MetaDamaged."""
        with self._told("written"):
            self._refuse_other()
            return self.database.execute(sql, values).rowcount

    def rows(self, sql: str, *values: object) -> list[tuple[object, ...]]:
        """Raises MetaUnavailable, MetaDamaged."""
        with self._told("read"):
            self._refuse_other()
            return self.database.execute(sql, values).fetchall()

    @contextmanager
    def _told(self, done: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            # Of SQLite's codes only CORRUPT and NOTADB have no class of their own.
            if type(error) is sqlite3.DatabaseError:
                raise MetaDamaged(f"{self._what} is damaged: {error}. {self._advice()}") from error
            disk = _disk_advice(self.path, error)
            text = f"{self._what} cannot be {done}: {error}{'. ' * bool(disk)}{disk}"
            raise MetaUnavailable(text) from error

    def is_there(self) -> bool:
        """Return whether what is open is what lies at the path."""
        with contextlib.suppress(OSError):
            return _identity(self.path) == self._is
        return False

    def _refuse_other(self) -> None:
        """Raises MetaDamaged: what is open is not what lies at the path; a write into it would be
        gone with this process."""
        try:
            now = _identity(self.path)
        except FileNotFoundError:
            now = None
        except OSError as error:
            raise MetaUnavailable(f"{self._what} cannot be looked at: {error}") from error
        if now != self._is:
            happened = "removed" if now is None else "replaced"
            raise MetaDamaged(
                f"{self._what} was {happened} while it was in use: what is acked would not be kept."
                + (f" {self._advice()}" if now is None else " The file that is there now is opened")
            )

    def close(self) -> None:
        self.database.close()


def is_locked(error: BaseException | None) -> bool:
    """Return whether SQLite says that another connection has the file locked."""
    return isinstance(error, sqlite3.OperationalError) and "locked" in str(error)


def _disk_advice(path: str, error: BaseException | None) -> str:
    """Return what to do about a disk that takes no writes, or a process that may open no more
    files, which SQLite does not tell; empty if it is not that."""
    if _is_out_of_descriptors():
        return f"What was acked is kept, but {MORE_OPEN_FILES}"
    if _has_no_room(path, error):
        return "Free space there: what was acked is kept, and it goes on by itself then"
    with contextlib.suppress(OSError):
        if os.statvfs(os.path.dirname(path) or ".").f_flag & os.ST_RDONLY:
            return (
                "Its disk is mounted read-only (after an error: `dmesg`); mount it for writing "
                "again: what was acked is kept, and it goes on by itself then"
            )
    return ""


def _has_no_room(path: str, error: BaseException | None) -> bool:
    """Return whether a disk is full. SQLite tells it of its file; where it is the file's -shm or
    -wal that cannot be made, it tells of an I/O error, or of a file that cannot be opened."""
    if isinstance(error, OSError):
        return error.errno in NO_ROOM
    if "disk is full" in str(error):
        return True
    if not isinstance(error, sqlite3.OperationalError) or is_locked(error):
        return False
    failure = write_failure(os.path.dirname(path) or ".")
    return failure is not None and failure.errno in NO_ROOM


def _is_out_of_descriptors() -> bool:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno == errno.EMFILE
    return False


def _rights_advice(path: str, error: Exception) -> str:
    """Return what to do about a file or folder of another user; empty if it is not that."""
    folder = os.path.dirname(path) or "."
    refused = path if os.path.exists(path) and not os.access(path, os.R_OK | os.W_OK) else ""
    if not refused and os.path.exists(folder) and not os.access(folder, os.W_OK | os.X_OK):
        refused = folder
    if not refused and not isinstance(error, PermissionError):
        return ""
    return (
        f"This process's user (id {os.geteuid()}) may not write {refused or path}: give it the "
        "right, or set meta.path to a place where it has that"
    )


def _identity(path: str) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino


def _make_private(path: str) -> None:
    """Let nobody else read the file: make it so if it is new, tighten it if it is ours. SQLite
    gives its log files the same rights."""
    if not os.path.exists(path):
        descriptor, made = tempfile.mkstemp(dir=os.path.dirname(path) or ".")  # 0600
        os.close(descriptor)
        try:
            with contextlib.suppress(OSError):  # it is there now; the file system has no links
                os.link(made, path)
        finally:
            os.unlink(made)
    for name in (path, f"{path}-wal", f"{path}-shm"):
        with contextlib.suppress(OSError):
            if os.stat(name).st_mode & 0o077:
                os.chmod(name, PRIVATE)
