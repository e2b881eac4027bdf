"""A look at a destination from Spark, beside those that live on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ray_canal as canal
from ray_canal import spark as canal_spark
from ray_canal.demo import binlog_files
from ray_canal.errors import ConfigError


def test_a_look_leaves_nothing_behind_and_takes_nobody_over(spark: Any, tmp_path: Path) -> None:
    """D1: `changes` had the client id 1001, which is everybody's default."""
    files = [str(path) for path in binlog_files()]
    instance = {"destination": "looked_at", "source": {"files": files, "start": "earliest"}}
    canal.start({"meta": {"path": str(tmp_path / "meta.db")}, "instance": [instance]})
    try:
        with canal.connect("looked_at") as connector:  # 1001
            connector.subscribe(r"shop\..*")
            message = connector.get_without_ack(64, timeout=60.0)
            frame = canal_spark.changes(spark, "looked_at", "shop.items", timeout=60.0)
            assert frame.count() > 0
            known = canal.subscribers("looked_at")["looked_at"]
            assert [subscriber["client_id"] for subscriber in known] == [1001]
            connector.ack(message.id)
            assert connector.get_without_ack(64, timeout=60.0).id == message.id + 1
        with pytest.raises(ConfigError, match="client_id"):
            canal_spark.changes(spark, "looked_at", "shop.items", ack=True)
        canal_spark.release_changes()
    finally:
        canal.stop("looked_at")


def test_a_table_without_its_schema_is_refused() -> None:
    no_session: Any = None
    with pytest.raises(ConfigError, match="has no schema: give schema"):
        canal_spark.changes(no_session, "looked_at", "items")
