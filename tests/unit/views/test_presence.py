"""Which columns an image has: golden files with MINIMAL and NOBLOB images, whole and in parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.errors import ConfigError
from ray_canal.filter import FieldFilter
from ray_canal.offline import decode_chunks
from ray_canal.render import changes
from ray_canal.views.arrow import batches
from ray_canal.views.presence import PRESENT, lacks
from ray_canal.views.transform import Transform
from tests.golden import GOLDEN


def chunk_of(name: str) -> DecodedChunk:
    """The chunk of a golden file that has most of its rows."""
    chunks = [c for _, c in decode_chunks([GOLDEN / "mysql97" / f"mysql_{name}.binlog"])]
    return max(chunks, key=lambda chunk: int(chunk.events["rows"].sum()))


def partial_batch() -> pa.RecordBatch:
    chunk = chunk_of("dml")
    found = batches(chunk, 0, chunk.layout.event_count)
    return next(b for b in found if b.schema.metadata[b"canal.table"] == b"t_dml")


def row_of(batch: pa.RecordBatch, **after: Any) -> dict[str, Any]:
    for row in batch.to_pylist():
        if row["after"] and all(row["after"][name] == value for name, value in after.items()):
            return row
    raise AssertionError(after)


def test_absent_is_told_from_null() -> None:
    """A10: an INSERT that leaves columns to their defaults, an UPDATE of one column."""
    batch = partial_batch()
    names = ["id", "a", "b", "c", "d", "ts"]
    inserted = row_of(batch, a=7)
    assert inserted["before_present"] is None
    given = {"id": True, "a": True, "b": True}
    assert inserted["after_present"] == dict.fromkeys(names, False) | given
    updated = row_of(batch, a=77)
    assert updated["before_present"] == dict.fromkeys(names, False) | {"id": True}
    assert updated["after_present"] == dict.fromkeys(names, False) | {"a": True}
    whole = row_of(batch, a=8)
    assert (whole["before_present"], whole["after_present"]) == (None, None)
    assert lacks(batch, "after", "c")
    batch.validate(full=True)


@pytest.mark.parametrize("name", ["numeric", "strings", "json", "temporal"])
def test_whole_images_have_no_such_columns(name: str) -> None:
    chunk = chunk_of(name)
    for batch in batches(chunk, 0, chunk.layout.event_count):
        assert not set(PRESENT) & set(batch.schema.names)


def test_parts_of_a_chunk_tell_the_same() -> None:
    chunk = chunk_of("dml")
    count = chunk.layout.event_count
    whole = {
        (b.schema.metadata[b"canal.table"], row["position"], row["row"]): row
        for b in batches(chunk, 0, count)
        for row in b.to_pylist()
    }
    rng = np.random.default_rng(5)
    for _ in range(30):
        first, last = sorted(rng.integers(0, count + 1, 2).tolist())
        mask = rng.random(count) < 0.7
        for batch in batches(chunk, first, last, mask):
            for row in batch.to_pylist():
                same = whole[batch.schema.metadata[b"canal.table"], row["position"], row["row"]]
                assert {**dict.fromkeys(PRESENT), **row} == {**dict.fromkeys(PRESENT), **same}


def test_columns_that_are_not_shown_are_not_told_of() -> None:
    chunk = chunk_of("dml")
    fields = FieldFilter("g_dml.t_dml:id/c", "")
    found = batches(chunk, 0, chunk.layout.event_count, fields=fields)
    batch = next(b for b in found if b.schema.metadata[b"canal.table"] == b"t_dml")
    assert row_of(batch, id=101)["after_present"] == {"id": True, "c": False}
    shown = Transform(columns=["id", "c"], mask={"c": "?"}).applied(partial_batch())
    assert row_of(shown, id=101)["after_present"] == {"id": True, "c": False}
    assert shown.schema == Transform(columns=["id", "c"], mask={"c": "?"}).schema(
        partial_batch().schema
    )


def test_a_condition_on_what_is_absent_is_refused() -> None:
    """A10: else the row would be left out in silence."""
    batch = partial_batch()
    with pytest.raises(ConfigError, match=r"after\.c is not in every row"):
        Transform(where="after.c = 'x'").applied(batch)
    assert Transform(where="event_type = 'DELETE'").applied(batch).num_rows


def test_a_change_of_json_is_neither_there_nor_absent() -> None:
    chunk = chunk_of("partialjson")
    [batch] = batches(chunk, 0, chunk.layout.event_count)
    [found] = [row for row in batch.to_pylist() if row["after_present"]]
    assert found["after_present"] == {"id": False, "j": None, "j2": False, "v": False}
    assert lacks(batch, "after", "j")
    [line] = [line for line in changes([batch]) if "after_unknown" in line]
    assert (line["before"], line["after"], line["after_unknown"]) == ({"id": 1}, {}, ["j"])


def test_lines_leave_out_what_is_absent() -> None:
    """A10: `tail` and `decode` in JSON."""
    found = changes([partial_batch()])
    line = next(line for line in found if line["after"] and line["after"].get("a") == 77)
    assert (line["before"], line["after"]) == ({"id": 6}, {"a": 77})
    assert "after_present" not in line
