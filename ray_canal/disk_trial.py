"""A trial whether a disk takes writes: whether it has room cannot be told from rights."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_TRIAL_BYTES = 64 << 10
"""SQLite needs about as much to open a file and to write a record."""


def write_failure(folder: str | os.PathLike[str]) -> OSError | None:
    """Return what keeps a new file from being written in a folder; None: nothing does. The file is
    gone afterwards, and has had no name where the file system can do that."""
    try:
        with tempfile.TemporaryFile(dir=Path(folder), buffering=0) as file:
            file.write(bytes(_TRIAL_BYTES // 2))
            file.write(bytes(_TRIAL_BYTES // 2))  # one that is cut off is told by the next
            os.fsync(file.fileno())
    except OSError as error:
        return OSError(error.errno, error.strerror or str(error), str(folder))
    return None
