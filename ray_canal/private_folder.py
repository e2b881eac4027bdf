"""Folders that nobody but this user could have made, in a place where everybody may write."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def private_folder(base: Path, name: str) -> Path:
    """Return `base`/`name`-UID, made where it is missing, which its owner alone may enter.

    Raises OSError: it cannot be made, or belongs to somebody else."""
    folder = base / f"{name}-{os.geteuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise OSError(f"{folder} belongs to somebody else")
    if found.st_mode & 0o077:
        folder.chmod(0o700)
    return folder
