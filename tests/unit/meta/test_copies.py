"""Copies of the meta file: when they are made, how many, and that one can be put back."""

from __future__ import annotations

import os
import subprocess
import sys
import time
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
        backend._next_copy_s = 0.0  # some seconds later
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
    page = Path(__file__).parents[3] / "docs/how-to/cursors.md"
    assert f"`{command.replace(str(path), 'meta.db')}`" in page.read_text(encoding="utf-8")
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


def test_a_copy_that_cannot_be_made_is_not_tried_at_each_ack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """D5: on a disk that is nearly full, each try costs a write of the whole file."""
    tries = []

    def refuse(*arguments: object) -> None:
        tries.append(arguments)
        raise OSError("No space left on device")

    monkeypatch.setattr(copies, "_sync", refuse)
    backend = SqliteBackend(str(tmp_path / "meta.db"))
    epoch = backend.acquire("orders")
    for number in range(50):
        backend.save("orders", epoch, 1, str(number))
    assert len(tries) == 1
    assert caplog.text.count("no copy could be kept") == 1
    backend._next_copy_s = 0.0  # some minutes later
    backend.save("orders", epoch, 1, "later")
    assert len(tries) == 2
    backend.close()


_COPIER = """
import sqlite3, sys, time
from ray_canal.meta.copies import keep_copy
database = sqlite3.connect(sys.argv[1], isolation_level=None)
time.sleep(max(0.0, float(sys.argv[2]) - time.time()))
print(sum(keep_copy(database, sys.argv[1]) for _ in range(20)))
"""


def test_of_processes_that_copy_at_once_one_does(tmp_path: Path) -> None:
    """D5: two copies of the same minute would push the older ones out."""
    path = tmp_path / "meta.db"
    backend = SqliteBackend(str(path))
    backend.save("orders", backend.acquire("orders"), 1, "kept")
    for number in (1, 2, 3):
        (tmp_path / f"meta.db.{number}").write_bytes(b"copy %d" % number)
    age(tmp_path / "meta.db.1", copies.EVERY_S + 1)
    (tmp_path / "meta.db.copying").write_bytes(b"of a process that was killed")
    command = [sys.executable, "-c", _COPIER, str(path), str(time.time() + 3)]
    copiers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    made = [int(each.communicate(timeout=60)[0]) for each in copiers]
    assert sum(made) == 1
    assert (tmp_path / "meta.db.2").read_bytes() == b"copy 1"
    assert (tmp_path / "meta.db.3").read_bytes() == b"copy 2"
    copy = SqliteBackend(str(tmp_path / "meta.db.1"))
    assert copy.load("orders") == {1: "kept"}
    assert not (tmp_path / "meta.db.copying").exists()
    copy.close()
    backend.close()
