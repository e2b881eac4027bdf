"""Fixtures of the Spark tests: one RayDP session per test session, and batches to feed it."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

UTC = dt.timezone.utc

if shutil.which("java") is None:
    # Executors inherit the PATH of Ray's start, which a fixture of an earlier test may be.
    from ray_canal.spark import provide_java

    provide_java()


# py4j and RayDP leave sockets to the garbage collector; pytest turns that into errors of whichever
# test is running then. What ray_canal itself warns of stays an error.
_TOLERATED = (
    "ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning",
    "ignore:unclosed:ResourceWarning",
    "ignore:distutils Version classes:DeprecationWarning",
    "ignore:The distutils package:DeprecationWarning",
    "ignore:datetime.datetime.utcfromtimestamp:DeprecationWarning",  # from Python 3.12 on
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests of this folder, and no others, those exceptions."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            for tolerated in _TOLERATED:
                item.add_marker(pytest.mark.filterwarnings(tolerated))


QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""What runs for seconds is not worth the second compiler."""

_SMALL = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.driver.extraJavaOptions": QUICK_JVM,
    "spark.executor.extraJavaOptions": QUICK_JVM,
    "spark.ray.raydp_app_master.extraJavaOptions": QUICK_JVM,
}
"""A few rows need one task a stage, and no job for each stage of a plan."""


@pytest.fixture(scope="session")
def spark(local_ray: None) -> Iterator[Any]:
    """A real Spark session on the test session's Ray: one executor with one core."""
    from ray_canal import spark as canal_spark

    session = canal_spark.session("ray_canal_tests", configs=_SMALL)
    yield session
    canal_spark.stop()


@pytest.fixture
def interpreted(spark: Any) -> Iterator[None]:
    """Plans whose expressions are walked, not compiled: for plans that are large and run once."""
    before = {name: spark.conf.get(name) for name in _INTERPRETED}
    for name, value in _INTERPRETED.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)


_INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@dataclass
class Message:
    """A message of given batches; the shape that `ray_canal.Message` has."""

    id: int
    batches: list[pa.RecordBatch] = field(default_factory=list)
    finished: bool = False


@dataclass
class Log:
    """A connector over a list of messages, with the rules of get, ack and rollback."""

    contents: list[list[pa.RecordBatch]]
    acked: int = 0
    given: int = 0
    rollbacks: int = 0
    endless: bool = False

    def get_without_ack(self, batch_size: int = 1000, timeout: float | None = None) -> Message:
        if self.given == len(self.contents):
            return Message(-1, finished=not self.endless)
        self.given += 1
        return Message(self.given, self.contents[self.given - 1])

    def ack(self, batch_id: int, mark: str = "") -> None:
        assert batch_id == self.acked + 1
        self.acked = batch_id

    def rollback(self) -> None:
        self.rollbacks += 1
        self.given = self.acked


_KINDS = ["INSERT", "UPDATE", "DELETE", "STATEMENT", "TRUNCATE", "ERASE"]


def change_batch(
    changes: list[tuple[str, dict[str, Any] | None, dict[str, Any] | None]],
    row_type: pa.DataType,
    *,
    table: str = "item",
    journal_name: str = "mysql-bin.000001",
    position: int = 1000,
    day: dt.date = dt.date(2026, 11, 21),
) -> pa.RecordBatch:
    """A batch as the Arrow view makes it, of (event type, before, after)."""
    count = len(changes)
    time = dt.datetime(day.year, day.month, day.day, 12, tzinfo=UTC)
    schema = pa.schema(
        [
            pa.field("event_type", pa.dictionary(pa.int8(), pa.string()), nullable=False),
            pa.field("journal_name", pa.dictionary(pa.int8(), pa.string()), nullable=False),
            pa.field("position", pa.int64(), nullable=False),
            pa.field("row", pa.int64(), nullable=False),
            pa.field("execute_time", pa.timestamp("us", "UTC"), nullable=False),
            pa.field("gtid", pa.string()),
            pa.field("before", row_type),
            pa.field("after", row_type),
        ],
        metadata={
            b"canal.schema": b"shop",
            b"canal.table": table.encode(),
            b"canal.key": b'["id"]',
        },
    )
    events = pa.DictionaryArray.from_arrays(
        pa.array([_KINDS.index(c[0]) for c in changes], pa.int8()),
        pa.array(_KINDS),
    )
    columns = [
        events,
        pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int8()), [journal_name]),
        pa.array([position] * count, pa.int64()),
        pa.array(range(count), pa.int32()),
        pa.array([time] * count, pa.timestamp("us", "UTC")),
        pa.nulls(count, pa.string()),
        pa.array([c[1] for c in changes], row_type),
        pa.array([c[2] for c in changes], row_type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


ITEM = pa.struct([("id", pa.uint32()), ("name", pa.string())])


def inserts(first: int, count: int, **place: Any) -> pa.RecordBatch:
    """`count` INSERTs of items with ids from `first` on."""
    rows = [("INSERT", None, {"id": n, "name": f"item {n} ñ"}) for n in range(first, first + count)]
    return change_batch(rows, ITEM, **place)
