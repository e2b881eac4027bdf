"""Mirrors: Delta tables with the rows as they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

import ray_canal as canal
from ray_canal import spark as canal_spark
from ray_canal.client.connector import Connector
from ray_canal.client.transport import RayTransport
from ray_canal.config import SinkConfig
from ray_canal.demo import BINLOGS
from ray_canal.errors import ConfigError
from ray_canal.sinks.lakes.lake_types import retyping_advice
from ray_canal.sinks.open import lake_of
from ray_canal.spark import mirrors
from ray_canal.spark.mirrors import compact, mirror
from ray_canal.spark.parquet import read_rows
from tests import in_process_sink

TABLES = r"shop\.(orders|items)"


@pytest.fixture
def destination(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The demo's files as a destination of this process."""
    monkeypatch.setattr(mirrors, "connect", lambda name, number, **_: _connected(name, number))
    source = {"files": [str(path) for path in BINLOGS], "start": "earliest"}
    with in_process_sink.destination(tmp_path / "x", held=True, source=source):
        yield "x"


def _connected(name: str, client_id: int) -> Connector:
    return Connector(RayTransport(name), client_id)


@pytest.fixture(scope="module")
def truth() -> dict[str, dict[int, tuple[Any, ...]]]:
    """Rows by table and key when all changes are applied."""
    rows: dict[str, dict[int, tuple[Any, ...]]] = {"orders": {}, "items": {}}
    for batch in canal.decode_files(BINLOGS, tables=TABLES):
        table = rows[batch.schema.metadata[b"canal.table"].decode()]
        for change in batch.to_pylist():
            if change["before"]:
                table.pop(change["before"]["id"], None)
            if change["after"]:
                table[change["after"]["id"]] = shown(change["after"])
    assert min(map(len, rows.values())) > 50
    return rows


def test_errors_name_parameters_without_a_section() -> None:
    config, _ = mirrors._sink("x", "/lake", ".*", 1, {})
    assert 'set schema_change to "evolve"' in retyping_advice(config.lake)
    with pytest.raises(ConfigError, match=r'[^.]without_key: "rows" is not for lakes'):
        mirrors._sink("x", "/lake", ".*", 1, {"without_key": "rows"})


def shown(row: dict[str, Any]) -> tuple[Any, ...]:
    """What both formats have alike."""
    return tuple(str(row.get(name)) for name in ("status", "total", "note", "price", "stock"))


def test_delta_tables_have_the_rows_as_they_are(
    destination: str, truth: Any, tmp_path: Path
) -> None:
    lake = str(tmp_path / "lake")
    options = {"commit_interval_s": 0.0, "batch_size": 64, "compact_s": 0.0}
    assert mirror(destination, lake, TABLES, **options) > 1000
    for table, rows in truth.items():
        found = DeltaTable(f"{lake}/shop/{table}").to_pyarrow_table().to_pylist()
        assert {int(row["id"]): shown(row) for row in found} == rows
    assert mirror(destination, lake, TABLES, **options) == 0  # acked, and written once
    config = {"name": "x", "destination": destination, "type": "delta", "client_id": 1}
    before = len(DeltaTable(f"{lake}/shop/orders").file_uris())
    compact(lake_of(SinkConfig.model_validate({**config, "lake": {"path": lake}})))
    assert before >= 1
    assert len(DeltaTable(f"{lake}/shop/orders").file_uris()) == 1


def test_what_comes_again_is_left_out(
    destination: str, truth: Any, tmp_path: Path
) -> None:
    """Of a subscriber that begins again, too."""
    lake = str(tmp_path)
    assert mirror(destination, lake, r"shop\.items", commit_interval_s=0.0) > 100
    version = DeltaTable(f"{lake}/shop/items").version()
    with _connected(destination, 1003) as connector:
        connector.subscribe(r"shop\.items")
        connector.unsubscribe()
    mirror(destination, lake, r"shop\.items", commit_interval_s=0.0)
    assert DeltaTable(f"{lake}/shop/items").version() == version
    found = DeltaTable(f"{lake}/shop/items").to_pyarrow_table().to_pylist()
    assert {int(row["id"]): shown(row) for row in found} == truth["items"]


def test_parquet_has_every_change(spark, destination: str, truth: Any, tmp_path: Path) -> None:
    assert mirror(destination, str(tmp_path), TABLES, format="parquet", session=spark) > 1000
    rows = read_rows(spark, str(tmp_path), "shop.items").collect()
    assert {row.id: shown(row.asDict()) for row in rows} == truth["items"]


def test_options_that_there_are_not() -> None:
    with pytest.raises(ConfigError, match="shema_change"):
        mirror("d", "/tmp/x", shema_change="add")
    with pytest.raises(ConfigError, match="there are delta and parquet"):
        mirror("d", "/tmp/x", format="iceberg")  # type: ignore[arg-type]
    assert canal_spark.mirror is mirror
