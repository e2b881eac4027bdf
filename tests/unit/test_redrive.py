"""What goes into quarantine comes out again, with a schema given later; nothing else comes out."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ray_canal.config import InstanceConfig, MetaConfig
from ray_canal.errors import InstanceError, TableMetaMismatch
from ray_canal.meta.open import open_schema_store
from ray_canal.meta.schema_store import SchemaStore
from ray_canal.model.position import EntryPosition
from ray_canal.redrive import redrive
from ray_canal.render import print_durably
from ray_canal.schema.event_parser import EventParser
from ray_canal.schema.keeper import OnDdlError, SchemaKeeper
from ray_canal.schema.registry import SchemaRegistry
from ray_canal.source.open_source import open_source
from ray_canal.views.arrow import batches
from tests.unit.binlog.golden import GOLDEN, needs_golden

BINLOG = GOLDEN / "mysql56" / "mysql56_dml.binlog"
BEHIND_THE_FIRST_TABLE = 5166
"""Whose CREATE is not read then; the others' are."""
SQL = (GOLDEN / "mysql56" / "mysql56_dml.schema.sql").read_text() if GOLDEN.is_dir() else ""
pytestmark = needs_golden

Row = tuple[str, int, int]


def rows(found: list[pa.RecordBatch]) -> dict[Row, Any]:
    return {
        (batch.schema.metadata[b"canal.table"].decode(), row["position"], row["row"]): row
        for batch in found
        for row in batch.to_pylist()
    }


def run(
    policy: OnDdlError,
    position: int,
    store: SchemaStore | None = None,
    destination: str = "d",
) -> tuple[list[Exception], list[pa.RecordBatch]]:
    """(failures, batches) of the file from a position; what is to be kept goes to the store."""
    config = {"destination": "d", "source": {"files": [str(BINLOG)]}, "chunk_bytes": 4096}
    source = open_source(InstanceConfig.model_validate(config))
    parser = EventParser(SchemaRegistry(), SchemaKeeper(None, policy))
    start = EntryPosition(BINLOG.name, position)
    parser.begin([], "files", start)
    source.open(start)
    failures: list[Exception] = []
    found: list[pa.RecordBatch] = []
    while not failures and (raw := source.read(0.0, 0.0)) is not None:
        info, decoded = parser.decode_chunk(raw)
        failures += [info.failure] if info.failure is not None else []
        found.extend(batches(decoded, 0, len(info.entries)))
        if store is not None:
            store.append(destination, info.records)
            store.quarantine(destination, info.quarantined)
    source.close()
    return failures, found


def test_what_was_held_and_what_was_not_are_all_rows(tmp_path: Path) -> None:
    _, whole = run("stop", 4)
    wanted = {k: v for k, v in rows(whole).items() if k[1] >= BEHIND_THE_FIRST_TABLE}
    config = {"meta": {"path": str(tmp_path / "meta.db")},
              "instance": [{"destination": "d", "source": {"files": [str(BINLOG)]}}]}  # fmt: skip
    store = open_schema_store(MetaConfig.model_validate(config["meta"]), "")
    failures, found = run("quarantine", BEHIND_THE_FIRST_TABLE, store)
    assert not failures
    passed = rows(found)
    assert {name for name, *_ in passed} == {"t_nopk", "t_myisam", "t_parent", "t_child"}
    held = store.quarantined("d")
    assert {table for chunk in held for table in chunk.tables} == {("g_dml", "t_dml")}
    with pytest.raises(TableMetaMismatch, match="t_dml"):
        list(redrive(config, "d"))
    assert store.quarantined("d") == held, "nothing was let go"
    schema = tmp_path / "fix.sql"
    schema.write_text(SQL)
    kept = rows([b for part in redrive(config, "d", schema_sql=schema, keep=True) for b in part])
    assert store.quarantined("d") == held, "--keep lets go of nothing"
    driven = rows([batch for part in redrive(config, "d", schema_sql=schema) for batch in part])
    assert driven == kept
    assert driven
    assert not driven.keys() & passed.keys()
    assert {name for name, *_ in driven} == {"t_dml"}
    shown = {key: _without_types(value) for key, value in (driven | passed).items()}
    assert shown == {key: _without_types(value) for key, value in wanted.items()}
    assert list(redrive(config, "d")) == []
    store.close()


def _without_types(row: dict[str, Any]) -> dict[str, Any]:
    return {key: row[key] for key in ("event_type", "position", "row", "before", "after")}


@pytest.mark.parametrize("policy", ["stop", "catalog"])
def test_without_quarantine_it_stops_behind_the_good_events(policy: OnDdlError) -> None:
    failures, found = run(policy, BEHIND_THE_FIRST_TABLE)
    assert [type(f) for f in failures] == [TableMetaMismatch]
    assert rows(found), "t_nopk's first rows come before t_dml's"


@pytest.fixture
def quarantine(tmp_path: Path) -> tuple[Path, SchemaStore]:
    """A canal.toml whose destination has chunks in quarantine, the mending schema beside it."""
    config = tmp_path / "canal.toml"
    config.write_text(
        f'[meta]\npath = "{tmp_path}/meta.db"\n[[instance]]\ndestination = "d"\n'
        f'[instance.source]\nfiles = ["{BINLOG}"]\n'
    )
    (tmp_path / "fix.sql").write_text(SQL)
    store = open_schema_store(MetaConfig(path=str(tmp_path / "meta.db")), "")
    run("quarantine", BEHIND_THE_FIRST_TABLE, store)
    return config, store


def test_a_full_disk_loses_no_chunk(quarantine: tuple[Path, SchemaStore]) -> None:
    """b17: what could not be written stays in quarantine, and one line says why."""
    config, store = quarantine
    held = store.quarantined("d")
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "ray_canal", "redrive", str(config), "d", "--schema",
             str(config.parent / "fix.sql")],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert ended.returncode == 1
    assert ended.stderr.strip() == (
        "ray-canal: InstanceError: the changes could not be written (No space left on device); "
        "those that were not stay where they are"
    )
    assert store.quarantined("d") == held
    store.close()


def test_a_disk_that_fails_later_loses_no_chunk(
    quarantine: tuple[Path, SchemaStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """b17: a write may succeed and the disk be full when the page goes there; so it is asked."""
    config, store = quarantine
    held = store.quarantined("d")
    synced: list[int] = []

    def fails_the_second_time(descriptor: int) -> None:
        synced.append(descriptor)
        if len(synced) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fails_the_second_time)
    parts = redrive(config, "d", schema_sql=config.parent / "fix.sql")
    with open(tmp_path / "out.jsonl", "w") as out:
        print_durably(next(parts), out)
        second = next(parts)
        with pytest.raises(InstanceError, match="No space"):
            print_durably(second, out)
        parts.close()
    assert len(held) > 1
    assert store.quarantined("d") == held[1:]
    store.close()
