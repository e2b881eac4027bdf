"""Both schema stores: records once each, order, forgetting, quarantine; a file that is not ours."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_canal.config import MetaConfig
from ray_canal.errors import ConfigError, MetaUnavailable
from ray_canal.meta import sqlite_file
from ray_canal.meta.open import open_schema_store
from ray_canal.meta.schema_store import MemorySchemaStore, SchemaStore
from tests.meta_conformance import SchemaConformance, record


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SchemaStore]:
    config = MetaConfig(backend=request.param, path=str(tmp_path / "meta.db"))
    opened = open_schema_store(config, "")
    yield opened
    opened.close()


class TestInProcess(SchemaConformance):
    """All that a schema store must do, in memory and in a SQLite file."""


def test_it_survives_and_lies_beside_the_cursors(tmp_path: Path) -> None:
    config = MetaConfig(path=str(tmp_path / "meta.db"))
    store = open_schema_store(config, "")
    store.append("d", [record(1)])
    store.close()
    assert (tmp_path / "meta.tsdb.db").exists()
    again = open_schema_store(config, "")
    assert again.records("d") == [record(1)]
    again.close()
    assert isinstance(open_schema_store(MetaConfig(backend="memory"), ""), MemorySchemaStore)


def test_a_file_that_others_write_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "BUSY_S", 0.05)
    config = MetaConfig(path=str(tmp_path / "meta.db"))
    open_schema_store(config, "").close()
    other = sqlite3.connect(tmp_path / "meta.tsdb.db", isolation_level=None)
    other.execute("begin immediate")
    open_schema_store(config, "").close()
    other.execute("rollback")
    other.execute("begin exclusive")
    with pytest.raises(MetaUnavailable, match=r"meta\.tsdb\.db cannot be opened: .*locked"):
        open_schema_store(config, "")
    other.close()


def test_a_file_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(b"not a database at all" * 100)
    with pytest.raises(ConfigError, match=r"x\.db"):
        open_schema_store(MetaConfig(), str(path))
