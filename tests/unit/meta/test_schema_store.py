"""Both schema stores: records once each, order, forgetting, quarantine; a file that is not ours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_canal.config import MetaConfig
from ray_canal.errors import ConfigError
from ray_canal.meta.schema_store import MemorySchemaStore, SchemaStore, open_schema_store
from ray_canal.protocol.schema_record import Quarantined, SchemaRecord


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SchemaStore]:
    config = MetaConfig(backend=request.param, path=str(tmp_path / "meta.db"))
    opened = open_schema_store(config, "")
    yield opened
    opened.close()


def record(position: int, kind: str = "ddl", body: bytes = b"x", server: str = "u") -> SchemaRecord:
    return SchemaRecord(server, "bin.000002", position, kind, 1.5, body)


def held(position: int, journal_name: str = "bin.000002") -> Quarantined:
    return Quarantined("u", journal_name, position, (("s", "t"),), 2.5, "why", b"data")


def test_records_are_kept_once_by_destination(store: SchemaStore) -> None:
    first = [record(1, "snapshot"), record(2), record(2, "table", b"a"), record(2, "table", b"b")]
    store.append("d", first)
    store.append("d", first[1:])
    store.append("other", [record(7)])
    store.append("d", [])
    assert store.records("d") == first
    assert store.records("other") == [record(7)]
    assert store.records("none") == []


def test_what_lies_before_a_snapshot_is_forgotten(store: SchemaStore) -> None:
    elsewhere = record(1, server="v")
    store.append("d", [record(1, "snapshot"), record(2), record(5, "snapshot"), record(6)])
    store.append("d", [elsewhere])
    store.forget_before("d", record(5, "snapshot"))
    assert store.records("d") == [record(5, "snapshot"), record(6), elsewhere]


def test_quarantine_in_the_logs_order(store: SchemaStore) -> None:
    chunks = [held(9), held(30, "bin.000001"), held(4)]
    store.quarantine("d", chunks)
    store.quarantine("d", chunks[:1])
    assert store.quarantined("d") == [chunks[1], chunks[2], chunks[0]]
    store.release("d", chunks[2])
    assert store.quarantined("d") == [chunks[1], chunks[0]]
    assert store.quarantined("other") == []


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


def test_a_file_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(b"not a database at all" * 100)
    with pytest.raises(ConfigError, match=r"x\.db"):
        open_schema_store(MetaConfig(), str(path))
