"""Arrow -> Spark types: values survive; unsupported types say so."""

from __future__ import annotations

import datetime as dt
import itertools
import random
from decimal import Decimal

import pyarrow as pa
import pytest

from ray_canal.spark.batch_read import pruned
from ray_canal.spark.chunks import shipped
from ray_canal.spark.row_transfer import Way
from ray_canal.spark.schema import (
    UnsupportedType,
    is_part_of,
    merged_type,
    readable_array,
    readable_batch,
    readable_schema,
    readable_type,
    spark_schema,
    spark_type,
)
from ray_canal.spark.versions import in_one_schema

UTC = dt.timezone.utc
MOMENT = dt.datetime(2026, 11, 21, 5, 31, 46, 123456)

CASES = [
    (pa.uint8(), [255, None], "smallint", [255, None]),
    (pa.uint16(), [65535, None], "int", [65535, None]),
    (pa.uint32(), [2**32 - 1, None], "bigint", [2**32 - 1, None]),
    (pa.uint64(), [2**64 - 1, None], "decimal(20,0)", [Decimal(2**64 - 1), None]),
    (pa.int8(), [-128, None], "tinyint", [-128, None]),
    (pa.int64(), [-(2**63), None], "bigint", [-(2**63), None]),
    (pa.float32(), [1.5, None], "float", [1.5, None]),
    (pa.decimal128(10, 2), [Decimal("-1.20"), None], "decimal(10,2)", [Decimal("-1.20"), None]),
    (pa.decimal256(30, 2), [Decimal("1.20"), None], "decimal(30,2)", [Decimal("1.20"), None]),
    (
        pa.decimal256(65, 30),
        [Decimal("9" * 35 + "." + "9" * 30), None],
        "string",
        ["9" * 35 + "." + "9" * 30, None],
    ),
    (pa.decimal256(65, 30), [Decimal(0), None], "string", ["0." + "0" * 30, None]),
    (pa.timestamp("us"), [MOMENT, None], "timestamp_ntz", [MOMENT, None]),
    (pa.timestamp("us", "UTC"), [MOMENT.replace(tzinfo=UTC), None], "timestamp", [MOMENT, None]),
    (
        pa.duration("us"),
        [dt.timedelta(hours=-838, minutes=-59), None],
        "interval day to second",
        [dt.timedelta(hours=-838, minutes=-59), None],
    ),
    (pa.time64("us"), [dt.time(1, 0, 0, 7), None], "bigint", [3_600_000_007, None]),
    (pa.date32(), [dt.date(9999, 12, 31), None], "date", [dt.date(9999, 12, 31), None]),
    (pa.date32(), [dt.date(1, 1, 1), None], "date", [dt.date(1, 1, 1), None]),
    (pa.list_(pa.string()), [["a", "b"], []], "array<string>", [["a", "b"], []]),
    (pa.list_(pa.uint8()), [[1], None], "array<smallint>", [[1], None]),
    (pa.large_string(), ["é漢🙂", None], "string", ["é漢🙂", None]),
    (pa.large_binary(), [b"\x00\xff", None], "binary", [b"\x00\xff", None]),
    (pa.binary(3), [b"\x00\xff\x00", None], "binary", [b"\x00\xff\x00", None]),
    (pa.bool_(), [True, None], "boolean", [True, None]),
    (pa.null(), [None, None], "string", [None, None]),
    (pa.dictionary(pa.int8(), pa.string()), ["x", None], "string", ["x", None]),
]
IDS = [str(case[0]) for case in CASES]


@pytest.mark.parametrize(("arrow", "values", "sql", "expected"), CASES, ids=IDS)
def test_type_and_values(arrow: pa.DataType, values: list, sql: str, expected: list) -> None:
    target = readable_type(arrow)
    assert spark_type(target).simpleString() == sql
    made = readable_array(pa.array(values, arrow), target)
    assert made.type == target
    assert len(made) == 2
    if arrow != pa.timestamp("us", "UTC"):
        assert made.to_pylist() == expected


@pytest.mark.parametrize("way", ["memory", "objects", "rows", "driver"])
def test_spark_reads_what_went_in(spark, way: Way) -> None:
    """All types, in a struct, through a real session, by each way."""
    from ray_canal.spark.frames import to_frames

    names = [f"c{n}" for n in range(len(CASES))]
    row = pa.StructArray.from_arrays(
        [pa.array(case[1], case[0]) for case in CASES], names=names, mask=pa.array([False, False])
    )
    schema = pa.schema(
        [("after", row.type)], metadata={b"canal.schema": b"shop", b"canal.table": b"all_types"}
    )
    batch = pa.record_batch([row], schema=schema)
    with to_frames(spark, [batch, batch.slice(1)], way=way) as made:
        got = made.by_table["shop.all_types"].collect()
    assert len(got) == 3
    first, second, third = (r["after"].asDict() for r in got)
    assert second == third
    for name, case in zip(names, CASES, strict=True):
        value = bytes(first[name]) if isinstance(first[name], bytearray) else first[name]
        assert value == case[3][0], case[0]
        assert second[name] == case[3][1], case[0]


def test_unchanged_types_are_not_copied() -> None:
    array = pa.array([{"a": 1, "b": "x"}])
    assert readable_array(array, readable_type(array.type)) is array


def test_struct_keeps_nulls_of_a_slice() -> None:
    array = pa.array([{"a": 1}, None, {"a": 3}, None], pa.struct([("a", pa.uint8())]))[1:]
    assert readable_array(array, readable_type(array.type)).to_pylist() == [None, {"a": 3}, None]


def test_list_keeps_values_of_a_slice() -> None:
    array = pa.array([[1, 2], None, [3], []], pa.list_(pa.uint8()))[1:]
    assert readable_array(array, readable_type(array.type)).to_pylist() == [None, [3], []]


def test_a_column_in_other_letters_is_the_same() -> None:
    old = pa.record_batch([pa.array([{"a": 1, "b": "x"}, None])], names=["after"])
    new = pa.record_batch([pa.array([{"c": 2, "A": 2}])], names=["after"])
    given = [readable_schema(old.schema), readable_schema(new.schema)]
    merged = pa.schema([("after", merged_type(*(each.field(0).type for each in given)))])
    assert merged.field(0).type.names == ["c", "A", "b"]
    assert all(is_part_of(each, merged) for each in given)
    expected = [{"c": None, "A": 1, "b": "x"}, None]
    assert readable_batch(old, merged).column(0).to_pylist() == expected
    assert shipped(old, merged).column(0).to_pylist() == [{"A": 1, "b": "x"}, None]
    assert pruned(old, merged).column(0).to_pylist() == [{"A": 1, "b": "x"}, None]


def test_missing_struct_field_is_null() -> None:
    target = pa.struct([("b", pa.string()), ("a", pa.int16())])
    made = readable_array(pa.array([{"a": 1}], pa.struct([("a", pa.uint8())])), target)
    assert made.to_pylist() == [{"b": None, "a": 1}]


@pytest.mark.parametrize(
    ("first", "second", "merged"),
    [
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.int32(), pa.string(), pa.string()),
        (pa.decimal128(10, 2), pa.decimal128(12, 4), pa.decimal128(12, 4)),
        (pa.int32(), pa.decimal128(10, 2), pa.decimal128(12, 2)),
        (pa.decimal128(38, 30), pa.int64(), pa.string()),
        (pa.decimal128(10, 2), pa.float32(), pa.float64()),
        (pa.binary(), pa.int32(), pa.binary()),
        (pa.date32(), pa.decimal128(10, 2), pa.string()),
        (pa.date32(), pa.timestamp("us"), pa.timestamp("us")),
        (pa.timestamp("us"), pa.date32(), pa.timestamp("us")),
        (
            pa.struct([("a", pa.int32()), ("b", pa.string())]),
            pa.struct([("c", pa.date32()), ("a", pa.int64())]),
            pa.struct([("c", pa.date32()), ("a", pa.int64()), ("b", pa.string())]),
        ),
    ],
)
def test_merged_type(first: pa.DataType, second: pa.DataType, merged: pa.DataType) -> None:
    assert merged_type(first, second) == merged


VALUES = [
    *(pa.array([case[1][0], None], case[0]) for case in CASES if case[0] != pa.null()),
    pa.array([2**31 - 1, None], pa.int32()),
    pa.array([2**63 - 1, None], pa.int64()),
    pa.array([Decimal("9" * 8 + "." + "9" * 30), None], pa.decimal128(38, 30)),
    pa.array([["a", "b"], None], pa.list_(pa.string())),
    pa.array([1e300, None], pa.float64()),
]


def test_any_two_versions_of_a_column_have_a_type() -> None:
    """An ALTER TABLE may give a column any type, and the greatest values of both are shown."""
    for first, second in itertools.product(VALUES, VALUES):
        merged = merged_type(readable_type(first.type), readable_type(second.type))
        for values in (first, second):
            shown = readable_array(values, merged)
            assert (shown.type, shown.is_null().to_pylist()) == (merged, [False, True])


def test_text_of_versions_is_what_mysql_shows() -> None:
    def text(values: list, arrow: pa.DataType) -> list:
        return readable_array(pa.array(values, arrow), pa.string()).to_pylist()

    assert text([["a", "b"], [], None], pa.list_(pa.string())) == ["a,b", "", None]
    assert text([dt.timedelta(hours=-838), None], pa.duration("us")) == ["-838:00:00", None]
    assert readable_array(pa.array([-7]), pa.binary()).to_pylist() == [b"-7"]
    large = readable_array(pa.array([2**53 + 1, None]), pa.float64())
    assert large.to_pylist() == [float(2**53), None]


def test_files_of_two_versions_are_read_in_one_schema(spark) -> None:
    old = spark.sql("SELECT 2147483647 AS n, array('a', 'b') AS s, 5 AS b")
    new = spark.sql("SELECT CAST(0.25 AS DECIMAL(10,2)) AS n, 'c' AS s, CAST('x' AS BINARY) AS b")
    first, second = (frame.first() for frame in in_one_schema([old, new]))
    assert (first.n, first.s, bytes(first.b)) == (Decimal(2147483647), "a,b", b"5")
    assert (second.n, second.s, bytes(second.b)) == (Decimal("0.25"), "c", b"x")


def test_text_of_files_versions_is_that_of_batches(spark) -> None:
    times = [dt.timedelta(hours=-838, seconds=-59), dt.timedelta(microseconds=50), None]
    moments = [MOMENT, MOMENT.replace(microsecond=120_000), dt.datetime(1000, 1, 1)]
    chance = random.Random(27)
    doubles = [chance.uniform(-1, 1) * 10.0 ** chance.randint(-20, 22) for _ in range(400)]
    doubles += [0.0, 1e14, 1e15, 1e-15, -1e-16, 2.0**-44, 1234567890123456.5, 1.797693134862e308]
    floats = [*doubles[:-1], 123456.5, 1234565.0, 1234575.0, 9999995.0, 99999.95, 16777217.0]
    given = {
        "t": pa.array(times, pa.duration("us")),
        "n": pa.array([Decimal("-0.0000000001"), Decimal(7), None], pa.decimal128(20, 10)),
        "m": pa.array([*moments, None], pa.timestamp("us")),
        "i": pa.array([at.replace(tzinfo=UTC) for at in moments[:2]], pa.timestamp("us", "UTC")),
        "f": pa.array(floats, pa.float32()),
        "d": pa.array(doubles, pa.float64()),
        "b": pa.array([True, False, None], pa.bool_()),
    }
    rows = max(map(len, given.values()))
    columns = [pa.concat_arrays([e, pa.nulls(rows - len(e), e.type)]) for e in given.values()]
    values = zip(*(column.to_pylist() for column in columns), strict=True)
    types = [pa.field(name, column.type) for name, column in zip(given, columns, strict=True)]
    old = spark.createDataFrame(list(values), spark_schema(pa.schema(types)))
    new = spark.sql("SELECT " + ", ".join(f"'x' AS {name}" for name in given))
    found = in_one_schema([old, new])[0].collect()
    for name, column in zip(given, columns, strict=True):
        assert [row[name] for row in found] == readable_array(column, pa.string()).to_pylist(), name


def test_unsupported_type_is_refused() -> None:
    with pytest.raises(UnsupportedType, match="month_day_nano_interval"):
        readable_type(pa.month_day_nano_interval())
