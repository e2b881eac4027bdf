"""The net change of a run of rows equals applying them one after the other."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ray_canal.sinks.net_change import net_change, of_one_schema
from ray_canal.sinks.port import SinkError

IMAGE = pa.struct([("a", pa.int32()), ("b", pa.string()), ("v", pa.int64())])
NOTES = {b"canal.schema": b"s", b"canal.table": b"t", b"canal.key": json.dumps(["a", "b"]).encode()}

keys = st.tuples(st.integers(0, 3), st.sampled_from(["x", "X", ""]))


def batch_of(changes: list[tuple[str, Any, Any]]) -> pa.RecordBatch:
    kinds, before, after = (list(each) for each in zip(*changes, strict=True))
    columns = {
        "event_type": pa.array(kinds).dictionary_encode(),
        "before": pa.array(before, IMAGE),
        "after": pa.array(after, IMAGE),
    }
    return pa.record_batch(columns).replace_schema_metadata(NOTES)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("IUD"), keys, keys, st.integers(0, 99)), max_size=20))
def test_net_equals_one_after_the_other(wishes: list[Any]) -> None:
    rows: dict[Any, int] = {(0, "x"): 1, (1, ""): 2}
    start, changes = dict(rows), []
    for kind, key, other, value in wishes:
        old = {"a": key[0], "b": key[1], "v": rows.get(key)}
        new = {"a": other[0], "b": other[1], "v": value}
        if kind == "I" and other not in rows:
            changes.append(("INSERT", None, new))
            rows[other] = value
        elif kind == "U" and key in rows and (other == key or other not in rows):
            changes.append(("UPDATE", old, new))
            del rows[key]
            rows[other] = value
        elif kind == "D" and key in rows:
            changes.append(("DELETE", old, None))
            del rows[key]
    if not changes:
        return
    middle = len(changes) // 2
    batches = [batch_of(part) for part in (changes[:middle], changes[middle:]) if part]
    net = net_change(batches, ["a", "b"], ["a", "b", "v"])
    applied = dict(start)
    for row in net.deletes.to_pylist():
        applied.pop((row["a"], row["b"]), None)
    for row in net.upserts.to_pylist():
        applied[row["a"], row["b"]] = row["v"]
    assert applied == rows
    touched = [(r["a"], r["b"]) for t in (net.deletes, net.upserts) for r in t.to_pylist()]
    assert len(touched) == len(set(touched))


def test_rows_that_lack_columns_are_refused() -> None:
    batch = batch_of([("INSERT", None, {"a": 1, "b": "x", "v": 1})])
    there = pa.array([{"a": True, "b": True, "v": False}])
    partial = batch.append_column("before_present", pa.nulls(1, there.type))
    partial = partial.append_column("after_present", there).replace_schema_metadata(NOTES)
    with pytest.raises(SinkError, match=r"s\.t lack columns \(v\).*binlog_row_image.*'s\.t:v'"):
        net_change([partial], ["a", "b"], ["a", "b", "v"])
    # Images of MINIMAL lack the key, too, which a mirror cannot leave out.
    keyed = partial.replace_schema_metadata({**NOTES, b"canal.key": b'["a", "v"]'})
    with pytest.raises(SinkError, match=r"binlog_row_image=FULL on the source$"):
        net_change([keyed], ["a", "b"], ["a", "b", "v"])


@pytest.mark.parametrize(
    "change",
    [
        ("INSERT", None, {"a": None, "b": "x", "v": 1}),
        ("UPDATE", {"a": 1, "b": "x", "v": 1}, {"a": None, "b": "x", "v": 1}),
        ("UPDATE", {"a": None, "b": "x", "v": 1}, {"a": 1, "b": "x", "v": 1}),
        ("DELETE", {"a": None, "b": "x", "v": 1}, None),
    ],
)
def test_a_key_that_arrow_has_no_value_of_is_refused(change: tuple[str, Any, Any]) -> None:
    """Zero dates are null: a merge would find no row, and add the same one again and again."""
    row = {"a": 1, "b": "x", "v": 1}
    batch = batch_of([("INSERT", None, row), change, ("DELETE", row, None)])
    with pytest.raises(SinkError, match="has no value in a") as refused:
        net_change([batch], ["a", "b"], ["a", "b", "v"])
    assert refused.value.kind == "poison"


def test_other_columns_may_be_null() -> None:
    rows = [
        ("INSERT", None, {"a": 1, "b": "x", "v": None}),
        ("DELETE", {"a": 2, "b": "", "v": None}, None),
    ]
    net = net_change([batch_of(rows)], ["a", "b"], ["a", "b", "v"])
    assert net.upserts.to_pylist() == [{"a": 1, "b": "x", "v": None}]
    assert net.deletes.to_pylist() == [{"a": 2, "b": ""}]


def test_a_transform_may_not_leave_out_what_a_mirror_needs() -> None:
    metadata = {"canal.table": "t"}
    schema = pa.schema([("event_type", pa.string()), ("after", pa.struct([]))], metadata)
    with pytest.raises(SinkError, match="table t: `transform` has left out before; keep"):
        of_one_schema([pa.RecordBatch.from_pylist([], schema)])


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_zero_and_minus_zero_are_two_keys_of_which_one_goes_where_the_other_comes(
    kind: pa.DataType,
) -> None:
    """MySQL takes them for one key, and some targets for two: no change may name only one."""
    shape = pa.struct([("a", kind)])

    def net(*changes: tuple[str, float | None, float | None]) -> tuple[str, str]:
        kinds, before, after = (list(each) for each in zip(*changes, strict=True))
        columns = {
            "event_type": pa.array(kinds).dictionary_encode(),
            "before": pa.array([None if v is None else {"a": v} for v in before], shape),
            "after": pa.array([None if v is None else {"a": v} for v in after], shape),
        }
        batch = pa.record_batch(columns).replace_schema_metadata(NOTES)
        found = net_change([batch], ["a"], ["a"])
        assert found.deletes.schema.types == found.upserts.schema.types == [kind]
        return repr(sorted(found.deletes["a"].to_pylist())), repr(found.upserts["a"].to_pylist())

    assert net(("UPDATE", 0.0, -0.0)) == ("[0.0]", "[-0.0]")
    assert net(("INSERT", None, 0.0), ("UPDATE", 0.0, -0.0)) == ("[0.0]", "[-0.0]")
    assert net(("INSERT", None, 0.0), ("UPDATE", 0.0, -0.0), ("DELETE", -0.0, None)) in (
        ("[0.0, -0.0]", "[]"), ("[-0.0, 0.0]", "[]"),
    )  # fmt: skip
    assert net(("UPDATE", -0.0, 0.0), ("UPDATE", 0.0, 1.5)) in (
        ("[0.0, -0.0]", "[1.5]"), ("[-0.0, 0.0]", "[1.5]"),
    )  # fmt: skip
