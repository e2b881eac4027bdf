"""Earlier generations of a SQLite file, beside it: FILE.1 (the newest) to FILE.3.

A copy is whole: it is written under another name, fsync'd and renamed. An old cursor is a safe one
as long as the server has its binlogs: what was acked since comes again.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from pathlib import Path

KEPT = 3
EVERY_S = 3600.0


def keep_copy(database: sqlite3.Connection, path: str) -> bool:
    """Copy the file if its newest copy is older than an hour. Whether it did.

    Raises OSError, sqlite3.Error: the copy could not be made; earlier ones are untouched.
    """
    newest = Path(f"{path}.1")
    with contextlib.suppress(FileNotFoundError):
        if 0 <= time.time() - newest.stat().st_mtime < EVERY_S:
            return False
    made = Path(f"{path}.{os.getpid()}.tmp")
    made.unlink(missing_ok=True)
    try:
        database.execute("vacuum into ?", (str(made),))
        _sync(made)
        for number in range(KEPT, 1, -1):
            with contextlib.suppress(FileNotFoundError):
                os.replace(f"{path}.{number - 1}", f"{path}.{number}")
        os.replace(made, newest)
    finally:
        made.unlink(missing_ok=True)
    _sync(newest.parent)
    return True


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def advice(path: str) -> str:
    """What to do with a damaged file. Its write-ahead log must not be played into another one."""
    copies = [name for n in range(1, KEPT + 1) if Path(name := f"{path}.{n}").exists()]
    if copies:
        return (
            f"If it is damaged, put back its newest copy: rm -f {path}-wal {path}-shm; "
            f"mv {copies[0]} {path} (subscribers then receive again what they acked since)"
        )
    return (
        f"If it is damaged, put back a copy; without one, move it away, with {path}-wal: "
        "subscribers then start where the configuration says"
    )
