"""Which files of a directory are binlogs, and which cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_canal.errors import CorruptEvent, PositionNotFound, UnsupportedEvent
from ray_canal.source.binlog_files import MAGIC, check_magic, list_binlogs


def written(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).write_bytes(MAGIC if "." in name else b"text")
    return folder


def test_a_directory_stands_for_its_binlogs_by_number(tmp_path: Path) -> None:
    written(tmp_path, "bin.000010", "bin.000009", "bin.1000000", "README", "bin.index")
    (tmp_path / "notes.000001").write_bytes(b"no binlog")
    names = [path.name for path in list_binlogs((tmp_path,))]
    assert names == ["bin.000009", "bin.000010", "bin.1000000"]
    given = (tmp_path / "bin.000010", tmp_path / "bin.000009")  # as they are named
    assert list_binlogs(given) == list(given)


def test_what_is_not_there_or_is_there_twice_is_told(tmp_path: Path) -> None:
    with pytest.raises(PositionNotFound, match=r"no binlog file .* in directory"):
        list_binlogs((tmp_path,))
    with pytest.raises(PositionNotFound, match="no binlog file"):
        list_binlogs((tmp_path / "bin.000001",))
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        written(tmp_path / name, "bin.000001")
    with pytest.raises(PositionNotFound, match="a position could mean either"):
        list_binlogs((tmp_path / "a", tmp_path / "b"))


def test_an_encrypted_file_is_told_from_a_broken_one(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedEvent, match="--read-from-remote-server --raw"):
        check_magic(tmp_path / "bin.000001", b"\xfdbin")
    with pytest.raises(CorruptEvent, match="begins with nothing"):
        check_magic(tmp_path / "bin.000001", b"")
    check_magic(tmp_path / "bin.000001", MAGIC)
