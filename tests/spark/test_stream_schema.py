"""The columns and the key that a stream is begun with; no Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ray_canal.errors import ConfigError
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
