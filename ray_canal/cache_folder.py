"""The folder of what is compiled on a machine and kept for later processes."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ray_canal.private_folder import private_folder

CACHE_VARIABLE = "RAY_CANAL_CACHE_DIR"
_TEMPORARY = "ray_canal-cache"


def cache_folder(kind: str) -> Path:
    """Return the folder of one kind of files: that of `$RAY_CANAL_CACHE_DIR`, of ~/.cache/ray_canal
    or of this user's temporary files, the first that has some or can be written.

    An image has them in a folder that its user may often only read; a pod may have no home. If none
    can be written it is the first one, and writing tells why. Raises OSError: there is none."""
    first: Path | None = None
    for base in _bases():
        folder = base / kind
        if has_files(folder) or _can_be_written(folder):
            return folder
        first = first or folder
    if first is None:
        raise OSError(f"no folder for compiled code: set {CACHE_VARIABLE} to one")
    return first


def _bases() -> Iterator[Path]:
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        yield Path(named)
    with contextlib.suppress(RuntimeError):  # a user who is in no list of users
        yield Path.home() / ".cache" / "ray_canal"
    with contextlib.suppress(OSError):
        yield private_folder(Path(tempfile.gettempdir()), _TEMPORARY)


def has_files(folder: Path) -> bool:
    """Return whether a folder is there, can be read, and is not empty."""
    try:
        return any(folder.iterdir())
    except OSError:
        return False


def _can_be_written(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True
