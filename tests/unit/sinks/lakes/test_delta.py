"""Delta tables: whatever is cut, repeated or written by two, a table has each change once."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import ray_canal as canal
from ray_canal.demo import binlog_files, expected
from ray_canal.demo.truth import digest
from ray_canal.sinks.lakes.delta import DeltaFile, merge_changes
from ray_canal.sinks.port import SinkError
from ray_canal.views.row_places import RowPlace, place_at

IMAGE = pa.struct([("Id", pa.uint16()), ("v", pa.string())])
SCHEMA = pa.schema(
    [("event_type", pa.string()), ("timeline", pa.int64()), ("journal_name", pa.string()),
     ("position", pa.int64()), ("row", pa.int64()), ("before", IMAGE), ("after", IMAGE)],
    {b"canal.table": b"t", b"canal.key": b'["Id"]'},
)  # fmt: skip


def change(kind: str, at: int, before: Any, after: Any) -> dict[str, Any]:
    images = [None if image is None else dict(zip(("Id", "v"), image, strict=True))
              for image in (before, after)]  # fmt: skip
    file, position = divmod(at, 50)
    return {"event_type": kind, "timeline": 1, "journal_name": f"b.{file:06d}",
            "position": position, "row": 0, "before": images[0], "after": images[1]}  # fmt: skip


def life(seed: int, count: int = 300) -> tuple[list[dict[str, Any]], dict[int, str]]:
    """Random changes of a table, keys that move among them, and its rows at the end."""
    pick, rows, changes = random.Random(seed), {}, []  # type: ignore[var-annotated]
    for at in range(count):
        key, value = pick.randrange(12), f"{at}"
        if key not in rows:
            changes.append(change("INSERT", at, None, (key, value)))
            rows[key] = value
            continue
        free = [k for k in range(12) if k not in rows]
        kind = pick.choice(["UPDATE", "DELETE", "MOVE" if free else "UPDATE"])
        before = key, rows.pop(key)
        if kind == "DELETE":
            changes.append(change("DELETE", at, before, None))
            continue
        to = pick.choice(free) if kind == "MOVE" else key
        changes.append(change("UPDATE", at, before, (to, value)))
        rows[to] = value
    return changes, rows


def batches(changes: list[dict[str, Any]], pick: random.Random) -> list[pa.RecordBatch]:
    """Cut anywhere, but each batch of one file as in the log."""
    cuts = {0, len(changes), *(pick.randrange(len(changes)) for _ in range(3))}
    cuts |= {n for n in range(1, len(changes))
             if changes[n]["journal_name"] != changes[n - 1]["journal_name"]}  # fmt: skip
    ends = sorted(cuts)
    return [pa.RecordBatch.from_pylist(changes[a:b], SCHEMA)
            for a, b in pairwise(ends) if a < b]  # fmt: skip


def rows_of(uri: str) -> list[dict[str, Any]]:
    return pa.table(DeltaTable(uri).to_pyarrow_table()).to_pylist()


@pytest.mark.parametrize("seed", range(6))
def test_any_cuts_and_repetitions_give_the_rows_once(seed: int, tmp_path: Path) -> None:
    pick = random.Random(seed)
    changes, rows = life(seed)
    uri, done = str(tmp_path / "t"), 0
    while done < len(changes):
        first = max(0, done - pick.randrange(60))  # some come again
        last = min(len(changes), first + pick.randrange(1, 120))
        new = merge_changes(uri, batches(changes[first:last], pick), app="a")
        assert new == max(0, last - done)
        done = max(done, last)
    assert merge_changes(uri, batches(changes, pick), app="a") == 0
    assert {row["Id"]: row["v"] for row in rows_of(uri)} == rows
    assert len(rows_of(uri)) == len(rows)


def test_of_two_writers_the_one_that_is_behind_fails_and_then_leaves_out(tmp_path: Path) -> None:
    changes, held = life(1, 100)
    uri = str(tmp_path / "t")
    pick = random.Random(0)
    merge_changes(uri, batches(changes[:50], pick), app="a")
    sleeper = DeltaFile(uri, "a")
    merge_changes(uri, batches(changes[50:], pick), app="a")
    stale = batches(changes[50:60], pick)[0]
    rows, place = pa.table({"Id": pa.array([1], pa.uint16()), "v": ["stale"]}), place_at(stale, -1)
    for write in (
        lambda: sleeper.merge(["Id"], rows.select(["Id"]).slice(1), rows, place),
        lambda: sleeper.empty(place),
    ):
        with pytest.raises(SinkError) as caught:
            write()
        assert caught.value.kind == "retry"
    assert merge_changes(uri, batches(changes[50:60], pick), app="a") == 0
    assert {row["Id"]: row["v"] for row in rows_of(uri)} == held


def test_a_tables_place_is_asked_of_each_of_its_versions_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answer takes longer the more commits there are, and each batch asks several times."""
    asked = Mock(side_effect=DeltaTable.transaction_version)
    monkeypatch.setattr(DeltaTable, "transaction_version", lambda *of: asked(*of))
    table = DeltaFile(str(tmp_path), "mine")
    table.create(pa.schema([("id", pa.int32())]))
    for position in (1, 2):
        table.empty(RowPlace(1, 1, position, 0))
        asked.reset_mock()
        for _ in range(3):
            assert table.exists
            assert table.place == RowPlace(1, 1, position, 0)
        assert asked.call_count == 5


def test_a_compaction_beside_a_writer_loses_nothing(tmp_path: Path) -> None:
    changes, rows = life(2, 200)
    uri = str(tmp_path / "t")
    for first in range(0, 200, 20):
        merge_changes(uri, batches(changes[first : first + 20], random.Random(0)), app="a")
        if first == 100:
            DeltaFile(uri, "care").compact()
            assert DeltaFile(uri, "care").vacuum(0) > 0
    assert {row["Id"]: row["v"] for row in rows_of(uri)} == rows
    assert DeltaFile(uri, "a").place == RowPlace(1, 3, 49, 0)


def test_batches_of_the_log_with_ddl_among_them(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    found = [
        batch for batch in canal.decode_files(binlog_files())
        if batch.schema.metadata[b"canal.table"] == b"customers"
    ]  # fmt: skip
    assert len({batch.schema for batch in found}) > 1
    truth = expected()["tables"]["customers"]
    merge_changes(uri, found[: len(found) // 2], app="a")
    assert merge_changes(uri, found, app="a") > 0
    assert digest("customers", rows_of(uri), truth["columns"]) == truth["digest"]
    last = place_at(found[-1], -1)
    notes = {**found[-1].schema.metadata, b"canal.sql": b"TRUNCATE TABLE customers"}
    row = found[-1].slice(found[-1].num_rows - 1).to_pylist()[0]
    row.update(event_type="TRUNCATE", position=last.position + 1, before=None, after=None)
    emptied = pa.RecordBatch.from_pylist([row], found[-1].schema.with_metadata(notes))
    for _ in range(2):
        merge_changes(uri, [*found, emptied], app="a")
        assert rows_of(uri) == []


def test_a_value_that_does_not_fit_is_named(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    table = DeltaFile(uri, "a")
    table.create(pa.schema([("id", pa.int32())]))
    rows = pa.table({"id": pa.array([1 << 40], pa.int64())})
    with pytest.raises(SinkError, match="column id is int32") as caught:
        table.merge(["id"], rows.slice(1), rows, RowPlace(1, 1, 1, 1))
    assert caught.value.kind == "schema"


def test_what_a_table_of_ones_own_refuses_is_not_tried_for_ever(tmp_path: Path) -> None:
    """Rows that break a constraint are those of an entry that goes to the dead letters."""

    def merge(name: str, v: int | None, column: str = "v") -> str:
        keys = pa.table({"id": pa.array([], pa.int32())})
        rows = pa.table({"id": pa.array([1], pa.int32()), column: pa.array([v], pa.int32())})
        try:
            DeltaFile(str(tmp_path / name), "app").merge(["id"], keys, rows, RowPlace(1, 1, 1, 1))
        except SinkError as error:
            return error.kind
        return ""

    columns = pa.schema([pa.field("id", pa.int32()), pa.field("v", pa.int32())])
    table = DeltaTable.create(tmp_path / "positive", columns)
    table.alter.add_constraint({"positive": "v > 0"})
    assert [merge("positive", v) for v in (-1, 1, -1, 2)] == ["poison", "", "poison", ""]
    there = pa.schema([columns.field("id"), pa.field("v", pa.int32(), nullable=False)])
    DeltaTable.create(tmp_path / "there", there)
    assert [merge("there", v) for v in (None, 1, None, 2)] == ["poison", "", "poison", ""]
    settings = {"delta.appendOnly": "true"}
    DeltaTable.create(tmp_path / "log", columns, configuration=settings)
    assert [merge("log", v) for v in (1, 2)] == ["", "schema"]
    for name in ("a`b", "canal_op"):
        named = columns.set(1, columns.field("v").with_name(name))
        DeltaTable.create(tmp_path / "named", named, mode="overwrite")
        assert merge("named", 1, name) == "schema"


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_a_key_from_0_to_minus_0_and_back(kind: pa.DataType, tmp_path: Path) -> None:
    """A merge, which takes them for one number, had refused that again and again."""
    table = DeltaFile(str(tmp_path / "t"), "a")
    table.create(pa.schema([("f", kind), ("s", pa.string()), ("v", pa.int32())]))

    def merge(at: int, gone: list[float], come: list[float]) -> str:
        def keys(values: list[float]) -> pa.Table:
            return pa.table({"f": pa.array(values, kind), "s": ["a"] * len(values)})

        rows = keys(come).append_column("v", pa.array([at] * len(come), pa.int32()))
        table.merge(["f", "s"], keys(gone), rows, RowPlace(1, 1, at, 1))
        found = DeltaTable(tmp_path / "t").to_pyarrow_table().sort_by("v").to_pydict()
        return str([*zip(found["f"], found["v"], strict=True)])

    assert merge(1, [], [0.0, 1.5]) == "[(0.0, 1), (1.5, 1)]"
    assert merge(2, [0.0], [-0.0]) == "[(1.5, 1), (-0.0, 2)]"
    assert merge(3, [-0.0], [0.0]) == "[(1.5, 1), (0.0, 3)]"
    assert merge(4, [-0.0, 0.0], [2.5]) == "[(1.5, 1), (2.5, 4)]"


def test_a_folder_that_cannot_be_made_is_tried_again() -> None:
    """Of a disk that is read-only, say: delta-rs tells it as a table that is not there."""
    table = DeltaFile("/proc/none/t", "a")
    with pytest.raises(SinkError, match="/proc/none/t") as raised:
        table.create(pa.schema([("a", pa.int32())]))
    assert raised.value.kind == "retry"
