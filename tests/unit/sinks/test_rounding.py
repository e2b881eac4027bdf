"""Columns to which a target may round values."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from ray_canal.sinks.column_specs import ColumnSpec
from ray_canal.sinks.rounding import rounding, tell_rounding

_SPAN, _TIME, _COST = pa.duration("us"), pa.timestamp("us"), pa.decimal128(9, 4)


class _Table:
    """A table whose columns have all one type, which is another one than the source's."""

    def __init__(self, kind: str = "text") -> None:
        self._kind = kind
        self.asked: list[list[str]] = []

    def differing(self, name: object, columns: Sequence[ColumnSpec]) -> list[ColumnSpec]:
        self.asked.append([column.name for column in columns])
        return list(columns)

    def types(self, name: object) -> dict[str, str]:
        return dict.fromkeys(self.asked[-1], self._kind)


def test_columns_that_are_written_are_compared_by_their_names_in_the_target(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kinds = {"d": _COST, "t": _TIME, "i": pa.int64(), "f": pa.float32()}
    columns, table = [ColumnSpec(name, kind) for name, kind in kinds.items()], _Table()
    tell_rounding(table, "s.t", columns, {"d": "D", "t": "t", "i": "i"})
    tell_rounding(table, "s.t", columns, {"i": "i"})
    assert table.asked == [["D", "t"]]
    [told] = caplog.messages
    assert told.startswith("s.t has other types than the source in D (decimal128(9, 4)), t (")


@pytest.mark.parametrize(
    ("kind", "there", "rounds"),
    [
        (_COST, "numeric", False), (_COST, "numeric(20,4)", False), (_COST, "numeric(9,3)", True),
        (_COST, "decimal(20,6) unsigned", False), (_COST, "decimal128(20, 3)", True),
        (_COST, "DECIMAL(18,5)", False), (_COST, "double", True), (_COST, "bigint", True),
        (pa.float32(), "double precision", False), (pa.float64(), "double", False),
        (pa.float64(), "double(10,3)", True), (pa.float64(), "real", True),
        (pa.date32(), "timestamp without time zone", False), (pa.date32(), "time", True),
        (_TIME, "timestamp without time zone", False), (_TIME, "datetime(6)", False),
        (_TIME, "timestamp(3) without time zone", True), (_TIME, "datetime", True),
        (_TIME, "timestamp", True), (_TIME, "date", True), (_TIME, "time(6)", True),
        (_SPAN, "time without time zone", False), (_SPAN, "interval", False),
        (_SPAN, "interval(0)", True), (_SPAN, "time(6)", False), (_SPAN, "time", True),
    ],
)  # fmt: skip
def test_types_that_hold_all_digits_round_nothing(
    kind: pa.DataType, there: str, rounds: bool
) -> None:
    column = ColumnSpec("c", kind)
    assert rounding(_Table(there), "s.t", [column]) == [column] * rounds
