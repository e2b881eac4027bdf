"""The SQLite file: several processes, kills, damage, a disk that refuses."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ray_canal.errors import ConfigError, Fenced, InstanceError
from ray_canal.meta import sqlite_file
from ray_canal.meta.sqlite import SqliteBackend

_WRITER = """
import sys
from ray_canal.errors import Fenced
from ray_canal.meta.sqlite import SqliteBackend
backend = SqliteBackend(sys.argv[1])
epoch = backend.acquire(sys.argv[2])
print(epoch, flush=True)
number = 0
try:
    while number < int(sys.argv[3]):
        number += 1
        backend.save(sys.argv[2], epoch, 1, f"{epoch}:{number}")
        print(number, flush=True)
except Fenced:
    print("fenced", flush=True)
"""


def writer(path: Path, destination: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _WRITER, str(path), destination, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_a_new_owner_in_another_process_fences_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "meta.db"
    with writer(path, "orders", 10**9) as old:
        assert old.stdout is not None
        first = int(old.stdout.readline())
        assert [old.stdout.readline().strip() for _ in range(2)] == ["1", "2"]
        backend = SqliteBackend(str(path))
        epoch = backend.acquire("orders")
        backend.save("orders", epoch, 1, "mine")
        assert old.stdout.read().splitlines()[-1] == "fenced"
        assert old.wait(20) == 0
    assert epoch > first
    assert backend.load("orders") == {1: "mine"}
    backend.close()


def test_two_processes_write_two_destinations_at_once(tmp_path: Path) -> None:
    path = tmp_path / "meta.db"
    writers, epochs = [writer(path, name, 60) for name in ("orders", "stock")], []
    for each in writers:
        output, _ = each.communicate(timeout=60)
        epochs.append(output.splitlines()[0])
        assert output.splitlines()[-1] == "60"
        assert each.returncode == 0
    backend = SqliteBackend(str(path))
    found = [backend.load(name)[1] for name in ("orders", "stock")]
    assert found == [f"{epoch}:60" for epoch in epochs]
    backend.close()


_OPENER = """
import sys, time
from ray_canal.meta.sqlite import SqliteBackend

for number in range(40):
    time.sleep(max(0.0, float(sys.argv[2]) + number / 50 - time.time()))
    SqliteBackend(f"{sys.argv[1]}.{number}").close()
"""


def test_processes_make_one_new_file_at_once(tmp_path: Path) -> None:
    began = time.time() + 2
    command = [sys.executable, "-c", _OPENER, str(tmp_path / "meta.db"), str(began)]
    openers = [subprocess.Popen(command) for _ in range(4)]
    assert [each.wait(60) for each in openers] == [0, 0, 0, 0]


def test_what_was_saved_outlives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "meta.db"
    process = writer(path, "orders", 10**9)
    assert process.stdout is not None
    printed = [process.stdout.readline() for _ in range(20)]
    time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    printed += process.stdout.read().splitlines()
    last = int(printed[-1])
    process.wait(20)
    process.stdout.close()
    backend = SqliteBackend(str(path))
    epoch, number = backend.load("orders")[1].split(":")
    # The kill may fall between a commit and its print; never the other way round.
    assert int(number) in (last, last + 1)
    assert int(epoch) == int(printed[0]) < backend.acquire("orders")
    backend.close()


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda data: b"not a database, but long enough to be looked at" * 100, "not a database"),
        (lambda data: data[:5000], "malformed"),
        (lambda data: data[:4096] + b"\xff" * 4096 + data[8192:], ""),
    ],
)
def test_a_damaged_file_is_one_clear_error(tmp_path: Path, damage: object, says: str) -> None:
    path = tmp_path / "meta.db"
    backend = SqliteBackend(str(path))
    epoch = backend.acquire("orders")
    for client_id in range(10):
        backend.save("orders", epoch, client_id, "x" * 50)
    backend.close()
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(ConfigError, match="cannot be used") as caught:
        SqliteBackend(str(path))
    assert str(path) in str(caught.value)
    assert says in str(caught.value)


def test_what_lost_power_left_of_a_commit_is_no_commit(tmp_path: Path) -> None:
    path = tmp_path / "meta.db"
    backend = SqliteBackend(str(path))
    epoch = backend.acquire("orders")
    log = path.with_name("meta.db-wal")
    backend.save("orders", epoch, 1, "first")
    first = log.stat().st_size
    backend.save("orders", epoch, 1, "second")
    whole, base = log.read_bytes(), path.read_bytes()
    assert len(whole) > first
    backend.close()
    found = set()
    for size in range(first, len(whole) + 1, 97):
        folder = tmp_path / str(size)
        folder.mkdir()
        (folder / "meta.db").write_bytes(base)
        (folder / "meta.db-wal").write_bytes(whole[:size])
        torn = SqliteBackend(str(folder / "meta.db"))
        assert torn.epoch("orders") == epoch
        found.add(torn.load("orders")[1])
        torn.close()
    assert "first" in found
    assert found <= {"first", "second"}


def test_a_file_of_another_program_or_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "meta.db"
    with sqlite3.connect(path) as other:
        other.execute("pragma user_version=7")
    other.close()
    with pytest.raises(ConfigError, match="its version is 7, this program reads 2"):
        SqliteBackend(str(path))


def test_a_file_of_the_first_version_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "meta.db"
    with sqlite3.connect(path) as first:
        first.executescript(
            "create table epoch (destination text primary key, epoch integer not null);"
            "create table subscriber (destination text not null, client_id integer not null,"
            " record text not null, primary key (destination, client_id));"
            "insert into epoch values ('orders', 4);"
            "insert into subscriber values ('orders', 1, 'kept'); pragma user_version=1"
        )
    first.close()
    for _ in range(2):
        backend = SqliteBackend(str(path))
        assert (backend.epoch("orders") < backend.acquire("orders", "me")) is True
        assert backend.load("orders") == {1: "kept"}
        backend.close()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"file/meta\.db cannot be used"):
        SqliteBackend(str(tmp_path / "file" / "meta.db"))


def test_a_locked_file_is_an_error_and_the_next_write_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "BUSY_S", 0.05)
    path = tmp_path / "meta.db"
    backend = SqliteBackend(str(path))
    epoch = backend.acquire("orders")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("begin exclusive")
    with pytest.raises(InstanceError, match=r"meta\.db cannot be written: database is locked"):
        backend.save("orders", epoch, 1, "a")
    assert backend.load("orders") == {}
    other.execute("rollback")
    other.close()
    backend.save("orders", epoch, 1, "b")
    assert backend.load("orders") == {1: "b"}
    with pytest.raises(Fenced):
        backend.save("orders", epoch - 1, 1, "c")
    backend.save("orders", epoch, 1, "d")
    backend.close()


def test_commits_are_as_durable_as_sqlite_makes_them(tmp_path: Path) -> None:
    backend = SqliteBackend(str(tmp_path / "meta.db"))
    assert backend._database.execute("pragma synchronous").fetchone() == (2,)
    assert backend._database.execute("pragma journal_mode").fetchone() == ("wal",)
    backend.close()
