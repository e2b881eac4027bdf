"""Kafka: Canal's messages, by librdkafka's mock cluster; transactions and zombies on a real broker.

The mock has no disk, fences nobody and shows aborted messages, so what is promised of transactions
is tested where $KAFKA_BOOTSTRAP names a broker (its topics are made by these tests).
"""

from __future__ import annotations

import json
import os
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ray_canal.canal.generated import CanalProtocol_pb2 as pb
from ray_canal.demo import binlog_files
from ray_canal.sinks.kafka import KafkaSink
from ray_canal.sinks.port import Changes, Cursor, SinkError
from tests.in_process_sink import destination, runner_of, sink_config

PARTITIONS = 4


@pytest.fixture(scope="module")
def mock() -> Iterator[str]:
    """The address of a cluster in this process."""
    host = Producer({"test.mock.num.brokers": "1", "bootstrap.servers": "unused"})
    metadata = host.list_topics(timeout=30)
    yield ",".join(f"{b.host}:{b.port}" for b in metadata.brokers.values())
    del host


@pytest.fixture(scope="module")
def real() -> str:
    address = os.environ.get("KAFKA_BOOTSTRAP", "")
    if not address:
        pytest.skip("no real Kafka: set KAFKA_BOOTSTRAP to test transactions and fencing")
    return address


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[None]:
    with destination(tmp_path, held=True, source={"files": [str(binlog_files()[0])]}):
        yield


def kafka(address: str, topic: str, **more: Any) -> Any:
    settings = {"properties": {"bootstrap.servers": address}, "timeout_s": 30, **more}
    routing = {"topic": topic, "partitions": PARTITIONS, "partition_hash": r".*\..*:$pk$"}
    return sink_config(
        "kafka", name=f"k{uuid.uuid4().hex}", kafka=settings, routing=routing, batch_size=8
    )


def read(address: str, topic: str, isolation: str = "read_committed") -> list[list[bytes]]:
    """Every message, by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": uuid.uuid4().hex,
            "isolation.level": isolation,
            "enable.partition.eof": "true",
            "auto.offset.reset": "earliest",
        }
    )
    found: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    consumer.assign([TopicPartition(topic, n, 0) for n in range(PARTITIONS)])
    ends = 0
    while ends < PARTITIONS:
        message = consumer.poll(30)
        assert message is not None, "the topic was not read to its end"
        if message.error():
            ends += 1
        else:
            found[message.partition()].append(message.value())
    consumer.close()
    return found


def rows_of(messages: list[list[bytes]]) -> list[Any]:
    """(table, kind, row) of FlatMessages, and that they are in order in each partition."""
    found = []
    for partition in messages:
        parsed = [json.loads(each) for each in partition]
        assert [m["id"] for m in parsed] == sorted(m["id"] for m in parsed)
        for message in parsed:
            for row in message["data"] or ():
                found.append((message["table"], message["type"], json.dumps(row)))
    return sorted(found)


def test_flat_messages_of_all_rows(mock: str, demo: None) -> None:
    config = kafka(mock, "flat", transactional=False)
    runner = runner_of(config)
    runner.run(threading.Event())
    messages = read(mock, "flat")
    assert len(rows_of(messages)) == runner.status.rows > 100
    assert all(messages), "rows of all tables are in one partition"


def test_protobuf_and_arrow(mock: str, demo: None) -> None:
    counts = []
    for number, form in enumerate(("protobuf", "arrow")):
        config = kafka(mock, form, transactional=False, format=form, message_bytes_max=4096)
        config = config.model_copy(update={"client_id": 20 + number})
        runner = runner_of(config)
        runner.run(threading.Event())
        counts.append(runner.status.rows)
    entries = [
        entry
        for partition in read(mock, "protobuf")
        for message in partition
        for entry in pb.Messages.FromString(pb.Packet.FromString(message).body).messages
    ]
    assert len(entries) > 100
    streams = [value for partition in read(mock, "arrow") for value in partition]
    assert all(len(value) <= 4096 or pa.ipc.open_stream(value).read_all().num_rows == 1
               for value in streams)  # fmt: skip
    assert sum(pa.ipc.open_stream(value).read_all().num_rows for value in streams) == counts[1]


def test_a_message_that_is_too_long_is_poison(mock: str, demo: None) -> None:
    config = kafka(mock, "short", transactional=False)
    small = {"bootstrap.servers": mock, "message.max.bytes": "1000", "batch.size": "1000"}
    config = config.model_copy(
        update={"kafka": config.kafka.model_copy(update={"properties": small})}
    )
    with pytest.raises(SinkError, match="dead_letters"):
        runner_of(config).run(threading.Event())


def test_transactions_carry_the_place(mock: str, demo: None) -> None:
    """The calls of a transaction, in their order; what they promise needs a real broker, below."""
    config = kafka(mock, "carried", transactional=True)
    producer = Producer({"bootstrap.servers": mock})
    producer.produce(config.kafka.cursor_topic, b"", b"somebody else")  # the mock makes none
    producer.flush(30)
    runner = runner_of(config)
    runner.run(threading.Event())
    assert len(rows_of(read(mock, "carried"))) == runner.status.rows > 100
    successor = KafkaSink(config)
    place = successor.open()
    assert place is not None
    assert str(place) == runner.status.cursor
    successor.close()


# --- on a real broker --------------------------------------------------------------------------


def made(address: str) -> str:
    topic = f"canal-test-{uuid.uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    return topic


class Crashing(KafkaSink):
    """Stops at the given commits: before it, or after it with its answer lost."""

    def __init__(self, config: Any, crashes: dict[int, str]) -> None:
        super().__init__(config)
        self._crashes, self._commits = crashes, 0

    def write(self, changes: Changes) -> None:
        super().write(changes)
        if self._crashes.get(self._commits + 1) == "flushed":
            self._producer.flush(10)

    def commit(self, upto: Cursor) -> None:
        self._commits += 1
        how = self._crashes.get(self._commits)
        if how in ("before", "flushed"):
            raise SinkError("crashed", "retry")
        super().commit(upto)
        if how == "after":
            raise SinkError("the answer was lost", "retry")


def test_each_row_once_over_crashes_for_readers_of_what_is_committed(
    real: str, demo: None
) -> None:
    clean, broken = made(real), made(real)
    first = runner_of(kafka(real, clean))
    first.run(threading.Event())
    config = kafka(real, broken).model_copy(update={"client_id": 8})
    crashes = {1: "flushed", 3: "after", 4: "before", 6: "after", 8: "flushed", 9: "after"}
    runner = runner_of(config, Crashing(config, crashes))
    runner.run(threading.Event())
    assert runner.status.retries == len(crashes)
    assert rows_of(read(real, broken)) == rows_of(read(real, clean))
    everything = read(real, broken, "read_uncommitted")
    assert sum(map(len, everything)) > sum(map(len, read(real, broken)))


def test_a_zombie_is_fenced(real: str) -> None:
    config = kafka(real, made(real))
    zombie, heir = KafkaSink(config), KafkaSink(config)
    place = Cursor(timeline=1, journal_name="mysql-bin.000001", position=4)
    assert zombie.open() is None
    zombie.commit(place)
    assert heir.open() == place
    with pytest.raises((SinkError, KafkaException)) as caught:
        zombie.commit(Cursor(timeline=1, journal_name="mysql-bin.000001", position=5))
    assert getattr(caught.value, "kind", "") == "fenced"
    zombie.close()
    heir.close()
    again = KafkaSink(config)
    assert again.open() == place
    again.close()
