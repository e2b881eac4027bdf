"""Copies of the meta file: when they are made, how many, and that one can be put back."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ray_canal.errors import ConfigError
from ray_canal.meta import copies
from ray_canal.meta.sqlite import SqliteBackend


def age(path: Path, seconds: float) -> None:
    then = path.stat().st_mtime - seconds
    os.utime(path, (then, then))


def test_a_copy_an_hour_and_three_of_them(tmp_path: Path) -> None:
    path = tmp_path / "meta.db"
    backend = SqliteBackend(str(path))
    epoch = backend.acquire("orders")
    assert not (tmp_path / "meta.db.1").exists()
    for number in range(5):
        backend.save("orders", epoch, 1, f"hour {number}")
        backend.save("orders", epoch, 1, f"later in hour {number}")
        age(tmp_path / "meta.db.1", copies.EVERY_S + 1)
    backend.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "meta.db", "meta.db.1", "meta.db.2", "meta.db.3"
    ]  # fmt: skip
    kept = []
    for name in ("meta.db.1", "meta.db.2", "meta.db.3"):
        copy = SqliteBackend(str(tmp_path / name))
        kept.append(copy.load("orders")[1])
        copy.close()
    assert kept == ["hour 4", "hour 3", "hour 2"]


@pytest.mark.parametrize("ended", ["closed", "killed"])
def test_the_advice_for_a_damaged_file_works(tmp_path: Path, ended: str) -> None:
    path = tmp_path / "meta.db"
    backend = SqliteBackend(str(path))
    epoch = backend.acquire("orders")
    backend.save("orders", epoch, 1, "kept")
    backend._database.execute("pragma wal_checkpoint(truncate)")
    backend.save("orders", epoch, 1, "behind the copy")
    log = path.with_name("meta.db-wal").read_bytes()
    backend.close()
    if ended == "killed":  # its write-ahead log stays
        path.with_name("meta.db-wal").write_bytes(log)
    path.write_bytes(b"\xff" * path.stat().st_size)
    with pytest.raises(ConfigError, match="put back its newest copy") as caught:
        SqliteBackend(str(path))
    command = str(caught.value).partition("newest copy: ")[2].partition(" (")[0]
    assert command == f"rm -f {path}-wal {path}-shm; mv {path}.1 {path}"
    subprocess.run(command, shell=True, check=True)
    backend = SqliteBackend(str(path))
    assert backend.load("orders") == {1: "kept"}
    assert backend.acquire("orders") > epoch
    backend.close()


def test_a_copy_that_cannot_be_made_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(copies, "_sync", refuse)
    backend = SqliteBackend(str(tmp_path / "meta.db"))
    backend.save("orders", backend.acquire("orders"), 1, "kept")
    assert "no copy could be kept: No space left" in caplog.text
    assert not [p.name for p in tmp_path.iterdir() if p.suffix not in (".db", ".db-wal", ".db-shm")]
    assert backend.load("orders") == {1: "kept"}
    backend.close()
