"""Readers of a Delta table who leave files out by what these tell of their columns find all."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from ray_canal.sinks.lakes.delta import DeltaFile
from ray_canal.sinks.lakes.delta_ends import told_ends
from ray_canal.views.row_places import RowPlace

LARGE = pa.decimal128(20, 0)
FIRST = 2**63


def large(first: int) -> pa.Table:
    keys = [Decimal(FIRST + first + n) for n in range(4)]
    return pa.table({"a.b": pa.array(keys, LARGE), "v": pa.array(range(4))})


def count(uri: str, condition: str) -> int:
    """Return how many rows somebody finds who asks for them."""
    query = QueryBuilder().register("t", DeltaTable(uri))
    return len(pa.table(query.execute(f"SELECT * FROM t WHERE {condition}").read_all()))


def test_a_long_number_is_found(tmp_path: Path) -> None:
    """A BIGINT UNSIGNED has more digits than delta-rs tells."""
    uri = str(tmp_path / "made")
    table = DeltaFile(uri, "a")
    table.create(large(0).schema)
    for first in (0, 4):
        new = large(first)
        table.merge(["a.b"], new.select(["a.b"]).slice(4), new, RowPlace(1, 1, first, 0))
    assert [count(uri, f'"a.b" = {FIRST + n}') for n in range(9)] == [1] * 8 + [0]
    told = pa.table(DeltaTable(uri).get_add_actions(flatten=True)).column_names
    assert "max.v" in told
    assert "max.a.b" not in told

    uri = str(tmp_path / "added")
    table = DeltaFile(uri, "a")
    table.create(pa.schema([("id", pa.int64())]))
    table.add(pa.schema([("late", pa.uint64())]))
    new = pa.table({"id": [1], "late": pa.array([Decimal(FIRST + 5)], LARGE)})
    table.merge(["id"], new.select(["id"]).slice(1), new, RowPlace(1, 1, 1, 0))
    assert count(uri, f"late = {FIRST + 5}") == 1

    uri = str(tmp_path / "changed")
    table = DeltaFile(uri, "a")
    table.create(pa.schema([("id", pa.int64())]))
    table.rewrite(pa.schema([("id", LARGE)]))
    new = pa.table({"id": pa.array([Decimal(FIRST + 5)], LARGE)})
    table.merge(["id"], new.slice(1), new, RowPlace(1, 1, 2, 0))
    assert count(uri, f"id = {FIRST + 5}") == 1


def test_a_long_number_of_an_image_is_found(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    table = DeltaFile(uri, "a")
    for step, names in enumerate((["n"], ["n", "k"])):
        image = pa.struct([(name, pa.int64() if name == "n" else pa.uint64()) for name in names])
        after = pa.array([dict.fromkeys(names, 2**62 + 1)], image)
        table.append(pa.table({"row": [step], "after": after}), RowPlace(1, 1, step, 0))
    assert count(uri, f"after['k'] = {2**62 + 1}") == 1


def test_all_is_told_where_it_is_right() -> None:
    assert told_ends(pa.schema([("a", pa.int64()), ("b", pa.decimal128(15, 2))])) == {}
    assert told_ends(pa.schema([("a", LARGE)])) == {"delta.dataSkippingNumIndexedCols": "0"}
    image = pa.struct([("k", LARGE), ("x`y", pa.string())])
    found = told_ends(pa.schema([("a", pa.int64()), ("after", image)]))
    assert found == {"delta.dataSkippingStatsColumns": "`a`,`after`.`x``y`"}
