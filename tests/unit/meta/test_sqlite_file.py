"""A SQLite file under a running program: damaged, replaced, removed; and who may read it."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ray_canal.errors import ConfigError, MetaDamaged, MetaUnavailable
from ray_canal.meta.schema_sqlite import SqliteSchemaStore
from ray_canal.meta.sqlite import SqliteBackend
from tests.meta_conformance import held, record


@pytest.fixture
def _as_usual() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def rights(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


@pytest.mark.usefixtures("_as_usual")
def test_only_the_owner_may_read_what_has_rows_or_cursors(tmp_path: Path) -> None:
    """C7: the file, its logs, its copies; also of one that an earlier version made."""
    backend = SqliteBackend(str(tmp_path / "meta.db"))
    backend.save("orders", backend.acquire("orders"), 1, "kept")
    schemas = SqliteSchemaStore(str(tmp_path / "meta.tsdb.db"))
    schemas.append("orders", [record(1)])
    schemas.quarantine("orders", [held(4)])
    found = rights(tmp_path)
    assert set(found) >= {"meta.db", "meta.db-wal", "meta.db-shm", "meta.db.1", "meta.tsdb.db"}
    assert set(found.values()) == {0o600}
    backend.close()
    schemas.close()
    for path in tmp_path.iterdir():
        path.chmod(0o644)
    SqliteBackend(str(tmp_path / "meta.db")).close()
    SqliteSchemaStore(str(tmp_path / "meta.tsdb.db")).close()
    assert rights(tmp_path) == {"meta.db": 0o600, "meta.db.1": 0o644, "meta.tsdb.db": 0o600}


def opened(path: Path) -> tuple[Callable[[], object], Callable[[], object], Callable[[], None]]:
    """A read, a write and the end of a backend with something in it."""
    backend = SqliteBackend(str(path))
    epoch = backend.acquire("orders")
    for client_id in range(200):
        backend.save("orders", epoch, client_id, "x" * 100)
    database = backend._database

    def read() -> object:
        database.execute("pragma shrink_memory")
        return backend.load("orders")

    return read, lambda: backend.save("orders", epoch, 1, "y"), backend.close


def test_damage_is_told_as_such_with_what_to_do(tmp_path: Path) -> None:
    """D6: not as a server that is away, which would be asked again for ever."""
    path = tmp_path / "meta.db"
    read, write, close = opened(path)
    for _ in range(2):
        with SqliteBackendAt(path) as other:
            other.execute("pragma wal_checkpoint(truncate)")
    data = path.read_bytes()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (len(data) - 4096))
    for call in (read, write):
        with pytest.raises(MetaDamaged, match=r"is damaged: .*`dmesg`.*put back its newest copy"):
            call()
    close()


class SqliteBackendAt:
    """Another process's connection, as it were."""

    def __init__(self, path: Path) -> None:
        self._backend = SqliteBackend(str(path))

    def __enter__(self) -> object:
        return self._backend._database

    def __exit__(self, *_: object) -> None:
        self._backend.close()


def test_a_file_that_was_replaced_or_removed_is_not_written_on(tmp_path: Path) -> None:
    """D6: an ack into a file that nobody finds any more would be lost with the process."""
    path, other = tmp_path / "meta.db", tmp_path / "other.db"
    read, write, close = opened(path)
    shutil.copy(path, other)
    other.replace(path)
    for call in (read, write):
        with pytest.raises(MetaDamaged, match="was replaced while it was in use"):
            call()
    path.unlink()
    for call in (read, write):
        with pytest.raises(MetaDamaged, match=r"was removed while it was in use.*put back"):
            call()
    with pytest.raises(ConfigError, match="removed while it was in use"):
        SqliteBackend(str(path), must_exist=True)
    assert not path.exists()
    close()


def test_a_schema_history_likewise(tmp_path: Path) -> None:
    """D6: records of schemas are as needed as cursors are."""
    path = tmp_path / "meta.tsdb.db"
    store = SqliteSchemaStore(str(path))
    store.append("orders", [record(1)])
    path.rename(tmp_path / "elsewhere")
    with pytest.raises(MetaDamaged, match=r"schema history .* was removed"):
        store.append("orders", [record(2)])
    with pytest.raises(MetaDamaged):
        store.records("orders")
    (tmp_path / "elsewhere").rename(path)
    assert store.records("orders") == [record(1)]
    store.close()


@pytest.mark.parametrize("refused", ["meta.tsdb.db", ""])
def test_what_another_user_owns_is_not_taken_for_damaged(
    refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests' user may write everything."""

    def connect(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("attempt to write a readonly database")

    path = tmp_path / "meta.tsdb.db"
    if refused:
        path.touch()
    monkeypatch.setattr(os, "access", lambda name, _: Path(name) != tmp_path / refused)
    monkeypatch.setattr("sqlite3.connect", connect)
    with pytest.raises(ConfigError, match="cannot be used") as caught:
        SqliteSchemaStore(str(path))
    assert f"may not write {tmp_path / refused}: give it the right" in str(caught.value)
    assert "damaged" not in str(caught.value)


def test_no_more_open_files_are_not_taken_for_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite says "unable to open database file", and the advice was to move it away."""

    def connect(*_: object, **__: object) -> None:
        monkeypatch.setattr(os, "open", no_more)
        raise sqlite3.OperationalError("unable to open database file")

    def no_more(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("sqlite3.connect", connect)
    with pytest.raises(MetaUnavailable, match="`ulimit -n`") as caught:
        SqliteSchemaStore(str(tmp_path / "meta.tsdb.db"))
    assert "damaged" not in str(caught.value)
