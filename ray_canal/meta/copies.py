"""Earlier generations of a SQLite file, next to it: FILE.1 (the newest) to FILE.3.

A copy is whole: it is written under another name, by one process at a time, fsync'd and renamed;
only its owner may read it. An old cursor is a safe one
as long as the server has its binlogs: what was acked since comes again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import time
from pathlib import Path

KEPT = 3
_DISK_FIRST = "See first whether its disk works and is mounted (`dmesg`, `df`). "
EVERY_S = 3600.0


def keep_copy(database: sqlite3.Connection, path: str) -> bool:
    """Copy the file if its newest copy is older than an hour. Whether it did.

    Raises OSError, sqlite3.Error: the copy could not be made; earlier ones are untouched.
    """
    newest = Path(f"{path}.1")
    if _is_young(newest):
        return False
    made = Path(f"{path}.copying")
    descriptor = os.open(made, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        if not _is_mine(descriptor, made):
            return False  # another process is at it
        try:
            if _is_young(newest):
                return False  # another process has just made it
            os.ftruncate(descriptor, 0)  # of one that was killed
            database.execute("vacuum into ?", (str(made),))
            _sync(made)
            for number in range(KEPT, 1, -1):
                with contextlib.suppress(FileNotFoundError):
                    os.replace(f"{path}.{number - 1}", f"{path}.{number}")
            os.replace(made, newest)
        finally:
            made.unlink(missing_ok=True)
    finally:
        os.close(descriptor)
    _sync(newest.parent)
    return True


def _is_young(copy: Path) -> bool:
    try:
        return 0 <= time.time() - copy.stat().st_mtime < EVERY_S
    except FileNotFoundError:
        return False


def _is_mine(descriptor: int, path: Path) -> bool:
    """Return whether this process alone writes the file from now on. The lock ends with the
    descriptor, however that ends."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        opened, there = os.fstat(descriptor), path.stat()
    except (BlockingIOError, FileNotFoundError):
        return False
    return (opened.st_dev, opened.st_ino) == (there.st_dev, there.st_ino)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def advice(path: str) -> str:
    """Return what to do with a damaged file. Its write-ahead log must not be played into another
    one. (SQLite calls a file malformed, too, whose disk has failed.)"""
    copies = [name for n in range(1, KEPT + 1) if Path(name := f"{path}.{n}").exists()]
    if copies:
        return (
            f"{_DISK_FIRST}If it is damaged, put back its newest copy: "
            f"rm -f {path}-wal {path}-shm; "
            f"mv {copies[0]} {path} (subscribers then receive again what they acked since)"
        )
    return (
        f"{_DISK_FIRST}If it is damaged, put back a copy; without one, move it away, with "
        f"{path}-wal: "
        "subscribers then start where the configuration says"
    )
