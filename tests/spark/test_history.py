"""Versions of rows: SCD type 2."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from ray_canal.errors import ConfigError, UnsupportedEvent
from ray_canal.spark.frames import NOTES, to_frames
from ray_canal.spark.history import IS_CURRENT, scd2
from ray_canal.spark.state import latest
from tests.spark.conftest import ITEM, change_batch, inserts

pytestmark = pytest.mark.usefixtures("interpreted")

DAYS = [dt.date(2026, 11, day) for day in (21, 22, 23, 24)]


def item(number: int, name: str) -> dict[str, Any]:
    return {"id": number, "name": name}


def versions(frame: Any) -> list[tuple[Any, ...]]:
    found = [
        (row.id, row.name, row.valid_from.day, row.valid_to and row.valid_to.day, row.is_current)
        for row in frame.collect()
    ]
    return sorted(found, key=lambda each: each[:3])


def batches() -> list[pa.RecordBatch]:
    second = [
        ("UPDATE", item(1, "item 1 ñ"), item(1, "renamed")),
        ("DELETE", item(2, "item 2 ñ"), None),
        ("UPDATE", item(3, "item 3 ñ"), item(30, "moved")),
    ]
    third = [
        ("UPDATE", item(1, "renamed"), item(1, "item 1 ñ")),
        ("INSERT", None, item(2, "back")),
    ]
    return [
        inserts(1, 3, day=DAYS[0]),
        change_batch(second, ITEM, position=2000, day=DAYS[1]),
        change_batch(third, ITEM, position=3000, day=DAYS[2]),
    ]


EXPECTED = [
    (1, "item 1 ñ", 21, 22, False),
    (1, "item 1 ñ", 23, None, True),
    (1, "renamed", 22, 23, False),
    (2, "back", 23, None, True),
    (2, "item 2 ñ", 21, 22, False),
    (3, "item 3 ñ", 21, 22, False),
    (30, "moved", 22, None, True),
]


def test_each_version_has_its_times(spark) -> None:
    with to_frames(spark, batches()) as made:
        assert versions(scd2(made.by_table["shop.item"])) == EXPECTED


def test_a_version_never_ends_before_it_begins(spark) -> None:
    """MariaDB logs when a statement began, also of one that waited for a lock meanwhile."""
    changes = [
        inserts(1, 1, day=DAYS[0]),
        change_batch([("UPDATE", item(1, "x"), item(1, "b"))], ITEM, position=2000, day=DAYS[3]),
        change_batch([("UPDATE", item(1, "b"), item(1, "c"))], ITEM, position=3000, day=DAYS[1]),
    ]
    with to_frames(spark, changes) as made:
        assert versions(scd2(made.by_table["shop.item"])) == [
            (1, "b", 24, 24, False),
            (1, "c", 24, None, True),
            (1, "item 1 ñ", 21, 24, False),
        ]


def noted(batch: pa.RecordBatch, kind: str) -> pa.RecordBatch:
    """A change of the table as a whole, as `with_notes` makes it."""
    kinds = pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array([kind]))
    columns = {name: batch.column(name) for name in batch.schema.names}
    columns["event_type"] = kinds
    columns |= {name: pa.array([kind if name == "sql" else None], pa.string()) for name in NOTES}
    columns["after"] = pa.nulls(1, ITEM)
    return pa.RecordBatch.from_pydict(columns).replace_schema_metadata(batch.schema.metadata)


def test_truncate_ends_all_rows(spark) -> None:
    emptied = noted(inserts(9, 1, position=4000, day=DAYS[3]), "TRUNCATE")
    with to_frames(spark, [*batches(), emptied]) as made:
        found = versions(scd2(made.by_table["shop.item"]))
    assert found == [(i, n, since, until or 24, False) for i, n, since, until, _ in EXPECTED]


def test_what_the_log_does_not_tell_is_refused(spark) -> None:
    unknown = noted(inserts(9, 1, position=4000, day=DAYS[3]), "STATEMENT")
    with to_frames(spark, [*batches(), unknown]) as made:
        frame = made.by_table["shop.item"]
        with pytest.raises(UnsupportedEvent, match="STATEMENT"):
            scd2(frame)
        assert versions(scd2(frame, statements="ignore")) == EXPECTED
        with pytest.raises(ConfigError, match="no primary key"):
            scd2(frame, [])
        with pytest.raises(ConfigError, match="binlog_row_image=FULL"):
            scd2(frame.withColumn("before_present", frame["before"]))


def test_names_with_characters_of_any_kind(spark) -> None:
    """Of columns, and of the key, in current rows and in versions."""
    row = pa.struct([("k.1-x", pa.int32()), ("first name", pa.string()), ("a`b", pa.int32())])
    one, two = ({"k.1-x": 1, "first name": name, "a`b": 1} for name in ("n", "m"))
    changes = [("INSERT", None, one), ("UPDATE", one, two)]
    with to_frames(spark, [change_batch(changes, row)]) as made:
        frame, key = made.by_table["shop.item"], ["k.1-x", "a`b"]
        assert [each.asDict() for each in latest(frame, key).collect()] == [two]
        current = scd2(frame, key).where(IS_CURRENT).collect()
    assert [each["first name"] for each in current] == ["m"]
