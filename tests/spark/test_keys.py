"""Rows divided by key: each key's changes in one part, in order; without Spark."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from ray_canal.spark.keys import by_key, key_of
from ray_canal.spark.schema import readable_array
from tests.spark.conftest import ITEM, change_batch, inserts

PAIR = pa.struct([("shop", pa.string()), ("id", pa.uint64()), ("n", pa.int32())])


def changes(seed: int, count: int) -> list[tuple[str, Any, Any]]:
    """Inserts, updates, deletes and changes of the key of a few rows; `n` counts all of them."""
    chance, rows, found = random.Random(seed), {}, []
    for n in range(count):
        key = chance.choice("abc"), chance.randrange(12)
        before = rows.pop(key, None)
        after = {"shop": key[0], "id": key[1], "n": n}
        if before is None:
            kind = "INSERT"
        elif chance.random() < 0.2:
            kind, after = "DELETE", None
        else:
            kind = "UPDATE"
            other = chance.choice("abc"), chance.randrange(12)
            if chance.random() < 0.1 and other not in rows:
                after.update(shop=other[0], id=other[1])
        if after is not None:
            rows[after["shop"], after["id"]] = after
        found.append((kind, before, after))
    return found


def test_a_key_is_in_one_part_in_order() -> None:
    for seed in range(5):
        made = changes(seed, 300)
        batches = [change_batch(made[at : at + 70], PAIR) for at in range(0, 300, 70)]
        parts = by_key(batches, ("shop", "id"), 4)
        assert 1 < len(parts) <= 4
        places: dict[tuple[str, int], int] = {}
        numbers = []
        for place, part in enumerate(parts):
            rows = [row for batch in part for row in batch.to_pylist()]
            for row in rows:
                for image in (row["before"], row["after"]):
                    if image is not None:
                        assert places.setdefault((image["shop"], image["id"]), place) == place
            mine = [(row["after"] or row["before"])["n"] for row in rows if row["after"]]
            assert mine == sorted(mine)
            numbers += mine
        assert sorted(numbers) == [n for n, change in enumerate(made) if change[2]]


def test_versions_of_a_key_column_compare() -> None:
    wider = pa.struct([("id", pa.string()), ("name", pa.string())])
    older = inserts(0, 8)
    newer = change_batch([("DELETE", {"id": str(n), "name": ""}, None) for n in range(8)], wider)
    for part in by_key([older, newer], ("id",), 3):
        first, second = (batch.to_pylist() for batch in part)
        assert [str(row["after"]["id"]) for row in first] == [row["before"]["id"] for row in second]


@pytest.mark.parametrize(
    ("older", "newer", "values"),
    [
        (pa.decimal128(5, 2), pa.decimal128(9, 4), [Decimal(n) / 2 for n in range(8)]),
        (pa.date32(), pa.timestamp("us"), [dt.datetime(2026, 1, n + 1) for n in range(8)]),
        (pa.binary(), pa.string(), [bytes([n + 65]) for n in range(8)]),
        (pa.string(), pa.binary(), ["ÿ", *"abcdefg"]),
        (pa.list_(pa.string()), pa.list_(pa.string()), [["a"] * n for n in range(8)]),
        (pa.list_(pa.string()), pa.string(), [["a"] * n for n in range(8)]),
    ],
)
def test_a_key_column_of_any_type(older: pa.DataType, newer: pa.DataType, values: list) -> None:
    """Also of two types in one batch: a key's changes are in one part."""
    batches = []
    for number, given in enumerate((older, newer)):
        shown = values if not number else readable_array(pa.array(values, older), given).to_pylist()
        rows = [("INSERT", None, {"id": value, "n": n}) for n, value in enumerate(shown)]
        batches.append(change_batch(rows, pa.struct([("id", given), ("n", pa.int32())])))
    parts = by_key(batches, ("id",), 3)
    assert len(parts) > 1
    for part in parts:
        first, second = ([row["after"]["n"] for row in batch.to_pylist()] for batch in part)
        assert first == second


def test_one_part_without_a_key_or_for_a_whole_table() -> None:
    batches = [inserts(0, 5)]
    assert by_key(batches, (), 4) == [batches]
    assert by_key(batches, ("id",), 1) == [batches]
    truncated = [*batches, change_batch([("STATEMENT", None, None)], ITEM)]
    assert by_key(truncated, ("id",), 4) == [truncated]
    assert by_key(batches, ("other",), 4) == [batches]


def test_key_of() -> None:
    assert key_of(inserts(0, 1).schema) == ("id",)
    assert key_of(pa.schema([])) == ()
