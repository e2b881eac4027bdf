"""Folders on disk that hold chunks of a log: made so that nobody else can reach into them, and
removed only where they are certainly ours.

    root                     of a deployment; see root_of
      destination
        life                 of one log, by a random name
          .ray_canal-spill   the marker: says whose folder it is, and is locked while it is used
          000001.segment

Every folder belongs to the user of this process and has mode 0700; a path that leads elsewhere is
refused, not followed. A life whose marker nobody locks is over, and may be removed; one that is
locked is another process's, or another deployment's.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ray_canal.config import InstanceConfig, MetaConfig

logger = logging.getLogger(__name__)

FOLDER = ".ray_canal-spill"
MARKER = ".ray_canal-spill"
_MARK = b"Made by ray_canal. It holds a part of a log for a while, and is removed by itself.\n"
_SEGMENT = re.compile(r"\d{6,}\.segment")
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FILE = os.O_NOFOLLOW | os.O_CLOEXEC


def root_of(config: InstanceConfig, meta: MetaConfig) -> Path:
    """Return the folder for all destinations: inside `store.spill_path`, else next to the cursors'
    file, else a folder of this user's for temporary files."""
    if config.store.spill_path:
        return Path(config.store.spill_path).absolute() / FOLDER
    if meta.backend == "sqlite":
        return Path(meta.path).with_suffix(".spill").absolute()
    return Path(tempfile.gettempdir()).absolute() / f"ray_canal-{os.geteuid()}.spill"


class SpillFolder:
    """One life's folder, in use until it is closed. The path is root/destination/life."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Make it, with what leads to it, and remove sibling lives that are over. Raises OSError:
        PermissionError where a folder on the way is somebody else's."""
        self._path = Path(path)
        with _entered(self._path.parent, make=True) as destination:
            for name in os.listdir(destination):
                if name != self._path.name:
                    _remove(destination, name, self._path.parent)
            self._folder = _enter(destination, self._path.name, self._path, make=True)
        try:
            self._marker = self._marked()
        except BaseException:
            os.close(self._folder)
            raise

    def _marked(self) -> int:
        """The marker's file, which is locked before it has its name."""
        new = MARKER + ".new"
        marker = self.create(new)
        try:
            os.write(marker, _MARK)
            fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.rename(new, MARKER, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        except BaseException:
            os.close(marker)
            with contextlib.suppress(OSError):
                self.unlink(new)  # a full disk, say: the next try makes it again
            raise
        return marker

    def create(self, name: str) -> int:
        """A new file to write to, for us alone. Raises OSError."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN_FILE
        return os.open(name, flags, 0o600, dir_fd=self._folder)

    def open(self, name: str) -> int:
        """A file to read. Raises OSError."""
        return os.open(name, os.O_RDONLY | _OPEN_FILE, dir_fd=self._folder)

    def unlink(self, name: str) -> None:
        """Remove a file. Raises OSError."""
        os.unlink(name, dir_fd=self._folder)

    def close(self) -> None:
        """Remove the folder."""
        if self.leave():
            remove(self._path)

    def leave(self) -> bool:
        """Let another one use the folder. Return False if it was not in use here."""
        if self._folder < 0:
            return False
        for descriptor in (self._folder, self._marker):
            with contextlib.suppress(OSError):  # its disk has failed
                os.close(descriptor)
        self._folder = self._marker = -1
        return True


def remove(path: str | os.PathLike[str]) -> None:
    """Remove a life's folder, whoever uses it. What is not certainly ours stays."""
    path = Path(path)
    with contextlib.suppress(OSError), _entered(path.parent, make=False) as destination:
        _remove(destination, path.name, path.parent, in_use=True)


def sweep(destination: str | os.PathLike[str]) -> None:
    """Remove the lives of a destination (root/destination) that are over."""
    path = Path(destination)
    try:
        with _entered(path, make=False) as folder:
            for name in os.listdir(folder):
                _remove(folder, name, path)
    except FileNotFoundError:
        return
    except OSError as error:
        logger.warning("what may be left of a log on disk stays there: %s", error)


@contextmanager
def _entered(path: Path, *, make: bool) -> Iterator[int]:
    """A destination's folder, by way of its root."""
    root_path = path.parent
    if make:
        root_path.parent.mkdir(parents=True, exist_ok=True)
    root = _enter(None, str(root_path), root_path, make=make)
    try:
        folder = _enter(root, path.name, path, make=make)
    finally:
        os.close(root)
    try:
        yield folder
    finally:
        os.close(folder)


def _enter(parent: int | None, name: str, path: Path, *, make: bool) -> int:
    """A folder that is ours alone. Raises OSError; `path` is for its text."""
    if make:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=parent)
    try:
        folder = os.open(name, _OPEN_FOLDER, dir_fd=parent)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise _foreign(path, "is a link or a file") from None
        raise OSError(error.errno, error.strerror, str(path)) from None
    found = os.fstat(folder)
    if found.st_uid != os.geteuid():
        os.close(folder)
        raise _foreign(path, f"belongs to user {found.st_uid}, this process to {os.geteuid()}")
    if stat.S_IMODE(found.st_mode) != 0o700:
        os.fchmod(folder, 0o700)
    return folder


def _foreign(path: Path, why: str) -> PermissionError:
    return PermissionError(
        errno.EPERM,
        f"{why}, so no rows are put there; give store.spill_path a folder of its own",
        str(path),
    )


def _remove(parent: int, name: str, path: Path, *, in_use: bool = False) -> None:
    """Remove a life that is over, or even one in use. What is not certainly ours stays."""
    try:
        folder = os.open(name, _OPEN_FOLDER, dir_fd=parent)
    except OSError:
        return
    try:
        if os.fstat(folder).st_uid != os.geteuid() or not _empty(folder, in_use):
            return
        os.rmdir(name, dir_fd=parent)
    except OSError as error:
        logger.warning("%s cannot be removed: %s", path / name, error)
    finally:
        os.close(folder)


def _empty(folder: int, in_use: bool) -> bool:
    """Remove our files from a folder that has our marker. False: it is not ours, somebody uses it,
    or there is something else in it. Raises OSError."""
    try:
        marker = os.open(MARKER, os.O_RDONLY | _OPEN_FILE, dir_fd=folder)
    except OSError:
        return False
    try:
        if os.read(marker, len(_MARK) + 1) != _MARK:
            return False
        if not in_use:
            try:
                fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        for name in os.listdir(folder):
            if _SEGMENT.fullmatch(name):
                os.unlink(name, dir_fd=folder)
        if os.listdir(folder) != [MARKER]:
            return False
        os.unlink(MARKER, dir_fd=folder)
    finally:
        os.close(marker)
    return True
