"""A look at a mirror's tables before a start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb

from ray_canal.config import MirrorConfig
from ray_canal.sinks.databases.checks import check_mirror
from ray_canal.sinks.databases.duckdb import DuckDatabase
from ray_canal.sinks.schema_follower import TableName
from ray_canal.sinks.target_checks import SourceTable

TABLES = {TableName("shop", name): SourceTable("shop", name, ("id",)) for name in ("a", "b")}


def found(path: Path, **mirror: Any) -> dict[str, tuple[bool, str]]:
    config = MirrorConfig(**mirror)
    checks = check_mirror(config, DuckDatabase(config, path), TABLES)
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
