"""A look at a mirror's tables before a start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from ray_canal.config import MirrorConfig
from ray_canal.sinks.databases.checks import check_mirror
from ray_canal.sinks.databases.duckdb import DuckDatabase
from ray_canal.sinks.databases.sender import Sender
from ray_canal.sinks.port import Cursor, SinkError
from ray_canal.sinks.schema_follower import TableName
from ray_canal.sinks.target_checks import SourceTable

TABLES = {TableName("shop", name): SourceTable("shop", name, ("id",)) for name in ("a", "b")}


def found(path: Path, **mirror: Any) -> dict[str, tuple[bool, str]]:
    config = MirrorConfig(**mirror)
    checks = check_mirror(config, DuckDatabase(config, path), TABLES, "to-duck", "orders")
    return {each.name: (each.ok, each.detail) for each in checks}


def test_tables_that_are_there_and_that_lack(tmp_path: Path) -> None:
    path = tmp_path / "rows.duckdb"
    assert list(found(path)) == ["path"]
    assert not path.exists()
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE SCHEMA shop")
        connection.execute("CREATE TABLE shop.a (id INT)")
    assert found(path)["tables"] == (True, "1 are there, 1 will be made")
    assert found(path, create_tables=False)["tables"] == (False, "the target has no shop.b")


def test_the_name_of_another_destinations_sink_is_refused(tmp_path: Path) -> None:
    config, path = MirrorConfig(), tmp_path / "rows.duckdb"
    database = DuckDatabase(config, path)
    other = Sender("to-duck", "users", database)
    other.open()
    assert found(path)["tables"][0], "it has no place yet"
    other.open()
    other.commit([], Cursor(timeline=1, journal_name="b.000001", position=4))
    other.close()
    with pytest.raises(SinkError, match="of the destination users, and this one is of orders"):
        found(path)
    database.connect()
    assert database.place_of("other") == ""
    database.close()
