"""Images that the server has cut, made whole for messages in Debezium's format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from ray_canal.errors import UnsupportedEvent
from ray_canal.model.table_meta import TableMeta
from ray_canal.offline import decode_debezium
from ray_canal.schema.ddl.column_type import column_meta
from ray_canal.views.debezium import DebeziumOptions
from ray_canal.views.whole_images import UNAVAILABLE, whole
from tests.golden import GOLDEN
from tests.unit.views.changes import Row, batch_of

KINDS = {"id": pa.int32(), "n": pa.int32(), "t": pa.large_string(), "b": pa.large_binary()}
META = TableMeta(
    "shop",
    "orders",
    (
        column_meta("id", "int", is_key=True),
        column_meta("n", "int"),
        column_meta("t", "text"),
        column_meta("b", "blob"),
    ),
)


def cut(rows: Sequence[tuple[Row | None, Row | None]]) -> pa.RecordBatch:
    """A batch whose images have the columns that are given, and no others."""
    batch = batch_of(KINDS, rows, keys=["id"])
    kind = pa.struct([pa.field(name, pa.bool_()) for name in KINDS])
    for side, name in enumerate(("before_present", "after_present")):
        flags = [
            None if row[side] is None else {each: each in row[side] for each in KINDS}  # type: ignore[operator]
            for row in rows
        ]
        batch = batch.append_column(name, pa.array(flags, kind))
    return batch.slice(1)


def images(*rows: tuple[Row | None, Row | None]) -> list[tuple[Any, Any]]:
    """Of these rows; one stands before them that the batch was cut from."""
    found = whole(cut([(None, dict.fromkeys(KINDS)), *rows]), META)
    assert found.schema == cut(rows).schema
    return [(row["before"], row["after"]) for row in found.to_pylist()]


def row(id: int, n: int, t: Any, b: Any) -> Mapping[str, Any]:
    return {"id": id, "n": n, "t": t, "b": b}


def test_noblob() -> None:
    """An INSERT has what is not NULL; a text stands for a value that did not change."""
    same, octets = UNAVAILABLE, UNAVAILABLE.encode()
    found = images(
        (None, {"id": 1, "n": 5}),
        ({"id": 1, "n": 5}, {"id": 1, "n": 6}),
        ({"id": 1, "n": 6}, {"id": 2, "n": 6, "t": None}),
        ({"id": 2, "n": 6}, None),
    )
    assert found == [
        (None, row(1, 5, None, None)),
        (row(1, 5, same, octets), row(1, 6, same, octets)),
        (row(1, 6, same, octets), row(2, 6, None, octets)),
        (row(2, 6, same, octets), None),
    ]


def test_what_is_in_the_other_image_is_taken_from_there() -> None:
    full = row(1, 5, "t", b"b")
    assert images((full, {"n": None})) == [(full, {**full, "n": None})]  # MINIMAL, without a key


@pytest.mark.parametrize(
    ("rows", "lacking"),
    [
        ((None, {"id": 1, "t": "t"}), "no n in its image 'after'"),
        (({"id": 1}, {"n": 2}), "no n in its image 'before'"),
        (({"id": 1}, None), "no n in its image 'before'"),
    ],
)
def test_minimal_images_are_refused(
    rows: tuple[Row | None, Row | None], lacking: str
) -> None:
    with pytest.raises(UnsupportedEvent, match=f"shop.orders has {lacking}"):
        images(rows)


def test_keys_of_a_log_with_minimal_images_are_never_null() -> None:
    path = GOLDEN / "mysql97" / "mysql_dml.binlog"
    with pytest.raises(UnsupportedEvent, match="binlog_row_image=FULL"):
        list(decode_debezium([path], DebeziumOptions(prefix="p")))
