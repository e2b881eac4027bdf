"""Recognise binlog files: by their names (base.number), and by their first bytes."""

from __future__ import annotations

from io import FileIO
from pathlib import Path

from ray_canal.errors import CorruptEvent, PositionNotFound, UnsupportedEvent
from ray_canal.model.position import BINLOG_START, journal_key

MAGIC = b"\xfebin"
"""First bytes of a binlog file (MySQL: BINLOG_MAGIC, log_event.h)."""
_MYSQL_ENCRYPTED_MAGIC = b"\xfdbin"
_FORMAT_EVENT_BYTES_MAX = 1 << 16


def list_binlogs(given: tuple[Path, ...]) -> list[Path]:
    """The files meant by a list of files and directories, in order. Raises PositionNotFound.

    A directory stands for its files named base.number that begin as a binlog does, by (base,
    number).
    """
    found: list[Path] = []
    for path in given:
        if path.is_dir():
            inside = [each for each in path.iterdir() if journal_key(each.name)[1] >= 0]
            binlogs = [each for each in inside if each.is_file() and _has_magic(each)]
            if not binlogs:
                raise PositionNotFound(f"no binlog file (base.number) in directory {path}")
            found += sorted(binlogs, key=lambda each: journal_key(each.name))
        elif path.is_file():
            found.append(path)
        else:
            raise PositionNotFound(f"no binlog file {path}")
    if len({path.name for path in found}) < len(found):
        raise PositionNotFound(
            f"two binlog files have one name among {[str(path) for path in found]}: a "
            "position could mean either"
        )
    return found


def check_magic(path: Path, head: bytes) -> None:
    """Raise CorruptEvent or UnsupportedEvent if a file that begins so is no binlog file that can be
    read."""
    if head == _MYSQL_ENCRYPTED_MAGIC:
        raise UnsupportedEvent(
            f"{path} is encrypted (binlog_encryption=ON): read it from the server, or make a plain "
            "copy with mysqlbinlog --read-from-remote-server --raw"
        ).at(path.name, 0)
    if head != MAGIC:
        raise CorruptEvent(
            f"{path} is no binlog file: it begins with {head.hex() or 'nothing'}, not {MAGIC.hex()}"
        ).at(path.name, 0)


def format_event(file: FileIO, at: int = BINLOG_START) -> bytes:
    """Return a FORMAT_DESCRIPTION event of a binlog file; the first event is one."""
    file.seek(at)
    event = file.read(_FORMAT_EVENT_BYTES_MAX)
    return event[: int.from_bytes(event[9:13], "little")]


def _has_magic(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(len(MAGIC)) in (MAGIC, _MYSQL_ENCRYPTED_MAGIC)
