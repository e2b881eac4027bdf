"""Iceberg tables: of two writers one commits; rows are found by keys of several columns."""

from __future__ import annotations

import contextlib
import json
import pickle
import random
import sqlite3
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField

from ray_canal.config.sink import LakeConfig
from ray_canal.sinks.column_specs import ColumnSpec
from ray_canal.sinks.lakes import file_shares, iceberg_files
from ray_canal.sinks.lakes.iceberg import IcebergLake
from ray_canal.sinks.lakes.iceberg_files import _completed
from ray_canal.sinks.port import SinkError
from ray_canal.sinks.schema_follower import TableName
from ray_canal.views.row_places import RowPlace
from tests.unit.sinks.lakes.test_delta_files import KEYS
from tests.unit.sinks.lakes.test_lake import options

NAME = TableName("shop", "t")
KEY = ["a", "b"]
COLUMNS = [ColumnSpec("a", pa.int32(), is_key=True), ColumnSpec("b", pa.string(), is_key=True),
           ColumnSpec("v", pa.int64())]  # fmt: skip


def pickled(function: Any, common: Any, pieces: Any) -> Any:
    """A `Spread` to other processes, but for these."""
    back = lambda value: pickle.loads(pickle.dumps(value))  # noqa: E731
    return [back(function)(*back((common, piece))) for piece in pieces]


@pytest.fixture
def lakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[IcebergLake]]:
    """The second one shares its commits out."""
    monkeypatch.setattr(file_shares, "_SHARE_ROWS", 1)
    found = [
        IcebergLake("x.s", LakeConfig(**options("iceberg", tmp_path), writers=count), pickled)
        for count in (1, 3)
    ]
    for lake in found:
        lake.open()
    found[0].create(NAME, COLUMNS)
    yield found
    for lake in found:
        lake.close()


def rows(*values: tuple[int, str, int]) -> pa.Table:
    schema = pa.schema([("a", pa.int32()), ("b", pa.string()), ("v", pa.int64())])
    return pa.Table.from_pylist([dict(zip("abv", row, strict=True)) for row in values], schema)


def held(lake: IcebergLake) -> dict[tuple[int, str], int]:
    found = lake._known(NAME).scan().to_arrow().to_pylist()
    assert len({(row["a"], row["b"]) for row in found}) == len(found)
    return {(row["a"], row["b"]): row["v"] for row in found}


@pytest.mark.parametrize("number", [0, 1])
def test_keys_of_several_columns(number: int, lakes: list[IcebergLake]) -> None:
    lake, pick, truth = lakes[number], random.Random(1), {}  # type: ignore[var-annotated]
    for step in range(12):
        ups = {(pick.randrange(4), pick.choice("xyz")): step for _ in range(3)}
        gone = [key for key in truth if key not in ups and pick.random() < 0.3]
        deletes = rows(*((a, b, 0) for a, b in gone)).select(KEY)
        lake.merge(NAME, KEY, deletes, rows(*((*key, v) for key, v in ups.items())),
                   RowPlace(1, 1, step, 0))  # fmt: skip
        for key in gone:
            del truth[key]
        truth.update(ups)
        assert held(lake) == truth
    assert lake.place(NAME) == RowPlace(1, 1, 11, 0)


@pytest.mark.parametrize("number", [0, 1])
def test_a_row_keeps_what_it_has_in_columns_that_are_not_given(
    number: int, lakes: list[IcebergLake]
) -> None:
    """Such as one of the user's own, or one that the source has dropped."""
    lake, nothing = lakes[number], rows().select(KEY)
    for step, key in enumerate(((1, "x"), (1, "y"), (2, "x"))):
        lake.merge(NAME, KEY, nothing, rows((*key, step + 1)), RowPlace(1, 1, step, 0))
    lake.add(NAME, [ColumnSpec("own", pa.list_(pa.float32()))])
    lake.merge(NAME, KEY, nothing,
               rows((2, "x", 3)).append_column("own", pa.array([[0.5]], pa.list_(pa.float32()))),
               RowPlace(1, 1, 4, 0))  # fmt: skip
    upserts = rows((3, "x", 0), (2, "x", 0), (1, "y", 0)).select(KEY)
    lake.merge(NAME, KEY, rows((1, "x", 0)).select(KEY), upserts, RowPlace(1, 1, 5, 0))
    assert held(lake) == {(3, "x"): None, (2, "x"): 3, (1, "y"): 2}
    found = lake._known(NAME).scan().to_arrow()
    assert {row["a"]: row["own"] for row in found.to_pylist()} == {1: None, 2: [0.5], 3: None}


def test_rows_that_were_written_twice_by_hand_are_one_again() -> None:
    upserts, old = pa.table({"id": [1, 2]}), pa.table({"id": [2, 2], "own": ["a", "b"]})
    assert _completed(upserts, [old], ["id"], ["own"])["own"].to_pylist() == [None, "b"]


def test_of_two_writers_the_one_that_is_behind_fails(lakes: list[IcebergLake]) -> None:
    first, second = lakes
    nothing = rows().select(KEY)
    assert second.find(NAME) is not None  # it has looked
    first.merge(NAME, KEY, nothing, rows((1, "x", 1)), RowPlace(1, 1, 1, 0))
    for _ in range(2):  # also from the empty table on
        with pytest.raises(SinkError) as caught:
            second.merge(NAME, KEY, nothing, rows((1, "x", 7)), RowPlace(1, 1, 1, 0))
        assert caught.value.kind == "retry"
        second.open()
        assert second.place(NAME) == first.place(NAME)
        first.merge(NAME, KEY, nothing, rows((1, "x", 2)), RowPlace(1, 1, 2, 0))
    assert held(first) == {(1, "x"): 2}


def test_tables_change(lakes: list[IcebergLake]) -> None:
    lake = lakes[0]
    lake.merge(NAME, KEY, rows().select(KEY), rows((1, "x", 1)), RowPlace(1, 1, 1, 0))
    lake.add(NAME, [ColumnSpec("n", pa.uint8())])
    lake.change(NAME, [ColumnSpec("a", pa.int64())])
    lake.remove(NAME, ["v"])
    with pytest.raises(SinkError):
        lake.change(NAME, [ColumnSpec("a", pa.int32()), ColumnSpec("b", pa.int32())])
    to = TableName("other", "u")
    lake.now = RowPlace(1, 1, 5, 0)
    lake.move(NAME, to, "")
    assert lake.find(NAME) is None
    found = lake.find(to)
    assert found is not None
    assert found.columns == ("a", "b", "n")
    assert lake.place(to) == lake.now
    assert lake.has_rows(to)
    lake.empty(to)
    assert not lake.has_rows(to)
    assert lake.place(to) == RowPlace(1, 1, 5, 0)
    lake.drop(to)
    assert lake.find(to) is None
    assert lake.names() == []


def test_files_without_the_keys_stay_and_the_others_are_joined(
    lakes: list[IcebergLake], monkeypatch: pytest.MonkeyPatch
) -> None:
    def files() -> set[str]:
        return {task.file.file_path for task in lakes[0]._load(NAME).scan().plan_files()}

    for first in (0, 10, 20):
        ten = rows(*((first + n, "x", 0) for n in range(10)))
        lakes[0].append(NAME, ten, RowPlace(1, 1, first, 0))
    before = files()
    new = rows((5, "x", 1), (15, "x", 1))
    lakes[0].merge(NAME, KEY, new.select(KEY).slice(2), new, RowPlace(1, 1, 50, 0))
    assert len(files()) == 2
    assert len(files() & before) == 1
    monkeypatch.setattr(iceberg_files, "HELD_BYTES", 0)
    new = rows((6, "x", 1), (25, "x", 1))
    lakes[0].merge(NAME, KEY, new.select(KEY).slice(2), new, RowPlace(1, 1, 51, 0))
    assert len(files()) == 3
    assert held(lakes[0]) == {(n, "x"): int(n in (5, 6, 15, 25)) for n in range(30)}


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_any_type(kind: str, lakes: list[IcebergLake]) -> None:
    lake, name, (key_type, keys) = lakes[1], TableName("shop", "k"), KEYS[kind]
    lake.create(name, [ColumnSpec("k", key_type, is_key=True), ColumnSpec("v", pa.int64())])
    truth = {}
    for step in range(1, 6):
        new = {keys[n]: step for n in range(step, 40, 7)}
        gone = pa.table({"k": pa.array([keys[step * 2]], key_type)})
        ups = pa.table({"k": pa.array(new, key_type), "v": pa.array(new.values(), pa.int64())})
        if keys[step * 2] in new:
            gone = gone.slice(1)
        truth.pop(keys[step * 2], None)
        truth |= new
        lake.merge(name, ["k"], gone, ups, RowPlace(1, 1, step, 0))
        found = lake._known(name).scan().to_arrow().to_pylist()
        assert len(found) == len(truth)
        assert {row["k"]: row["v"] for row in found} == truth


class Catalog(BaseHTTPRequestHandler):
    """A REST catalog that answers everything but its settings with one status."""

    status: ClassVar[int] = 200

    def do_GET(self) -> None:
        is_asked = self.path.startswith("/v1/config")
        told = {"defaults": {}, "overrides": {}, "error": {"message": "no", "type": "x", "code": 0}}
        body = json.dumps(told).encode()
        self.send_response(200 if is_asked else self.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.mark.parametrize(("status", "kind"), [(503, "retry"), (401, "fatal")])
def test_a_catalog_that_is_busy_is_asked_again(status: int, kind: str) -> None:
    handler = type("Handler", (Catalog,), {"status": status})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        uri = f"http://127.0.0.1:{server.server_port}"
        lake = IcebergLake("x.s", LakeConfig(options={"type": "rest", "uri": uri}))
        lake.open()
        with pytest.raises(SinkError) as refused:
            lake.find(NAME)
        lake.close()
        server.shutdown()
    assert refused.value.kind == kind


def test_a_catalog_whose_database_is_locked_is_asked_again(tmp_path: Path) -> None:
    given = options("iceberg", tmp_path)
    given["options"]["uri"] += "?timeout=0.1"
    lake = IcebergLake("x.s", LakeConfig(**given))
    lake.open()
    path = given["options"]["uri"].removeprefix("sqlite:///").partition("?")[0]
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(SinkError, match="locked") as refused:
            lake.find(NAME)
    assert refused.value.kind == "retry"
    assert lake.find(NAME) is None
    lake.close()


def test_what_a_table_of_ones_own_refuses_is_not_tried_for_ever(tmp_path: Path) -> None:
    """A null where a value is required is of an entry that goes to the dead letters; a required
    column that the source lacks is a table that does not fit."""
    lake = IcebergLake("x.s", LakeConfig(**options("iceberg", tmp_path)), pickled)
    lake.open()
    key, value = NestedField(1, "a", IntegerType(), required=True), LongType()
    more = NestedField(3, "w", value, required=True)
    schemas = {
        "poison": Schema(key, NestedField(2, "v", value, required=True)),
        "schema": Schema(key, NestedField(2, "v", value), more),
    }
    lake._opened.create_namespace("shop")
    for kind, schema in schemas.items():
        lake._opened.create_table(("shop", kind), schema)
        upserts = pa.table({"a": pa.array([1], pa.int32()), "v": pa.array([None], pa.int64())})
        place = RowPlace(1, 1, 1, 0)
        with pytest.raises(SinkError) as refused:
            lake.merge(TableName("shop", kind), ["a"], upserts.select(["a"]), upserts, place)
        assert refused.value.kind == kind
    lake.close()
