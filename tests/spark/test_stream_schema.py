"""The columns and the key that a stream is begun with; no Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ray_canal.errors import ConfigError
from ray_canal.spark.schema import unrounded
from ray_canal.spark.stream_schema import has_columns, peeked_schema
from tests.spark.conftest import change_batch, inserts
from tests.spark.test_log_stream import Engine, Subscription, stream_of


def _keyed(batch: pa.RecordBatch, key: str) -> pa.RecordBatch:
    return batch.replace_schema_metadata({**batch.schema.metadata, b"canal.key": key.encode()})


def test_another_key_ends_the_query_and_the_next_one_has_it() -> None:
    old, new = '["id"]', '["id", "name"]'
    batches = [_keyed(inserts(n, 1, position=1000 + n), new if n > 3 else old) for n in range(8)]
    subscription, engine = Subscription(batches, rows_max=3), Engine()
    subscription.exact = True
    with pytest.raises(ConfigError, match=r"primary key \('id', 'name'\)"):
        engine.run(stream_of(subscription))
    assert engine.written == [0, 1, 2]
    # The next message has rows with both.
    engine.run(stream_of(subscription))
    assert engine.written == list(range(8))


def test_no_columns_without_a_change() -> None:
    assert peeked_schema(Subscription([]), "shop.item", 1000, 0.5, "error") is None


def dropped(position: int) -> pa.RecordBatch:
    """A DROP TABLE, behind which no columns are known."""
    batch = change_batch([("ERASE", None, None)], pa.struct([]), position=position)
    notes = {**batch.schema.metadata, b"canal.sql": b"DROP TABLE item"}
    return batch.replace_schema_metadata(notes)


def test_columns_are_those_of_rows_behind_a_drop() -> None:
    """A stream without columns could not show the new table's rows, nor be written as Parquet."""
    batches = [dropped(1000), dropped(1001), inserts(1, 1, position=1100)]
    subscription = Subscription(batches, rows_max=1)
    found = peeked_schema(subscription, "shop.item", 1000, 5.0, "error")
    assert found is not None
    assert found.field("after").type.names == ["id", "name"]
    assert (subscription.acked, subscription.given) == (0, 0)
    found = peeked_schema(Subscription(batches[:1]), "shop.item", 1000, 0.5, "error")
    assert found is not None
    assert not has_columns(found)


@pytest.mark.parametrize("exact", [pa.int64(), pa.decimal128(20, 0)])
def test_a_double_that_becomes_exact_is_not_rounded(exact: pa.DataType) -> None:
    large = 2**53 + 1

    def batch(position: int, type: pa.DataType, number: int) -> pa.RecordBatch:
        row = pa.array([number]).cast(type, safe=False)[0].as_py()
        return change_batch(
            [("INSERT", None, {"id": row})], pa.struct([("id", type)]), position=position
        )

    versions = [pa.float64()] * 4 + [exact] * 3
    batches = [batch(1000 + n, each, large + n) for n, each in enumerate(versions)]
    subscription, engine = Subscription(batches, rows_max=3), Engine()
    subscription.exact = True
    with pytest.raises(ConfigError, match=r"the same checkpoint.*\(id\)"):
        engine.run(stream_of(subscription))
    assert engine.written == [2.0**53, 2.0**53 + 2, 2.0**53 + 4]
    # The next message has rows of both types, which text holds without rounding.
    engine.run(stream_of(subscription))
    shown = ["9.007199254740996e15", *map(str, range(large + 4, large + 7))]
    assert engine.written[3:] == shown
    subscription.given = subscription.acked = 4
    later = peeked_schema(subscription, "shop.item", 1000, 5.0, "error")
    assert later is not None
    assert later.field("after").type.field("id").type == exact


def test_short_numbers_stay_doubles() -> None:
    """A double keeps a decimal of 15 digits, and an INT."""
    given = pa.schema([("after", pa.struct([("d", pa.decimal128(15, 2)), ("i", pa.int32())]))])
    wanted = pa.schema([("after", pa.struct([("d", pa.float64()), ("i", pa.float64())]))])
    assert unrounded(given, wanted) == wanted
