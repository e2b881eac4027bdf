"""Columns to which a target may round values."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ray_canal.sinks.column_specs import ColumnSpec
from ray_canal.sinks.rounding import tell_rounding


def test_columns_that_are_written_are_compared_by_their_names_in_the_target(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kinds = {"d": pa.decimal128(9, 4), "t": pa.timestamp("us"), "i": pa.int64(), "f": pa.float32()}
    asked: list[list[str]] = []

    def differing(columns: list[ColumnSpec]) -> list[ColumnSpec]:
        asked.append([column.name for column in columns])
        return columns[:1]

    columns = [ColumnSpec(name, kind) for name, kind in kinds.items()]
    tell_rounding("s.t", columns, {"d": "D", "t": "t", "i": "i"}, differing)
    tell_rounding("s.t", columns, {"i": "i"}, differing)
    assert asked == [["D", "t"]]
    [told] = caplog.messages
    assert told.startswith("s.t has other types than the source in D (decimal128(9, 4)): ")
