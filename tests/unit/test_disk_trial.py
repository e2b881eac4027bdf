"""A full disk is told by trial, and the trial leaves nothing there."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_canal.config import MetaConfig
from ray_canal.disk_trial import NO_ROOM, write_failure
from ray_canal.errors import MetaUnavailable
from ray_canal.meta.checks import check_cursors
from ray_canal.meta.open import open_schema_store
from ray_canal.sinks.target_checks import path_check
from tests.fixture_disk import SmallDisk


def test_what_a_check_says_of_files_on_a_full_disk(disk: SmallDisk) -> None:
    meta, lines = MetaConfig(path=str(disk.folder / "new" / "meta.db")), disk.folder / "a.jsonl"
    assert write_failure(disk.folder) is None
    assert check_cursors(meta, "d").ok
    assert path_check(lines).ok
    assert list(disk.folder.iterdir()) == []
    lines.touch()
    disk.fill()
    failure = write_failure(disk.folder)
    assert failure is not None
    assert failure.errno in NO_ROOM
    assert "No space left" in check_cursors(meta, "d").detail
    for path in (lines, disk.folder / "lake" / "here"):
        assert "No space left" in path_check(path).detail
    assert {each.name for each in disk.folder.iterdir()} == {"a.jsonl", "ballast"}
    disk.make_room()
    assert check_cursors(meta, "d").ok


def test_a_store_that_is_made_on_a_full_disk_says_once_what_to_do(disk: SmallDisk) -> None:
    disk.fill()
    with pytest.raises(MetaUnavailable, match="disk is full") as caught:
        open_schema_store(MetaConfig(path=str(disk.folder / "meta.db")), "")
    assert str(caught.value).count("Free space there") == 1


def test_what_is_no_folder(tmp_path: Path) -> None:
    failure = write_failure(tmp_path / "none")
    assert isinstance(failure, FileNotFoundError)
    assert path_check(Path("/dev/null")).ok  # a device needs no room
