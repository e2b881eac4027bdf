"""Kafka: Canal's messages, by librdkafka's mock cluster; transactions and zombies on a broker.

The mock has no disk, fences nobody and shows aborted messages, so what is promised of transactions
is tested on Tansu (tests/servers/tansu.py), or on the broker that $KAFKA_BOOTSTRAP names (topics
are made by these tests, named canal-test-… and canal.cursors). Each test runs with both ways of
handing messages to librdkafka.
"""

from __future__ import annotations

import ctypes
import json
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ray_canal.canal.generated import CanalProtocol_pb2 as pb
from ray_canal.config.queue import ROW_FORMATS
from ray_canal.demo import binlog_files
from ray_canal.offline import decode_messages
from ray_canal.sinks.port import Changes, Cursor, SinkError
from ray_canal.sinks.queues.kafka import KafkaSink
from ray_canal.sinks.queues.kafka_producer import KafkaProducer, make_producer
from ray_canal.sinks.queues.librdkafka import BatchProducer, library
from ray_canal.views.flat import FlatOptions
from ray_canal.views.routing import Routing
from tests.in_process_sink import runner_of, running, sink_config, until
from tests.sink_runs import without_repeats

PARTITIONS = 4
PRODUCE, ADD_PARTITIONS_TO_TXN = 0, 24


@pytest.fixture(params=["batch", "message"])
def sender(request: pytest.FixtureRequest) -> str:
    return str(request.param)


senders = pytest.mark.parametrize(
    "sender", ["batch", pytest.param("message", marks=pytest.mark.soak)]
)
"""In place of the fixture, where a test takes long: the fallback is a soak."""


def kafka(
    address: str,
    topic: str,
    *,
    partitions: int = PARTITIONS,
    message: dict[str, Any] | None = None,
    **more: Any,
) -> Any:
    settings: dict[str, Any] = {"properties": {"bootstrap.servers": address}, "timeout_s": 30}
    settings.update(more)
    routing: dict[str, Any] = {"topic": topic}
    if (message or {}).get("format") not in ROW_FORMATS:  # which go by their keys
        routing |= {"partitions": partitions, "partition_hash": r".*\..*:$pk$"}
    return sink_config(
        "kafka", name=f"k{uuid.uuid4().hex}", kafka=settings, routing=routing, batch_size=8,
        message=message or {},
    )  # fmt: skip


def write_place(config: Any, address: str) -> None:
    """Write another sink's place: the mock makes a topic when it is written to, and not before."""
    producer = Producer({"bootstrap.servers": address})
    producer.produce(config.kafka.cursor_topic, b"", b"somebody else")
    producer.flush(30)


def messages(address: str, topic: str, isolation: str = "read_committed") -> list[list[Message]]:
    """Return every message, by partition, up to the high watermarks. (A commit is answered before
    all partitions have its mark, so the end for readers of what is committed may come later.)"""
    settings = {
        "bootstrap.servers": address, "group.id": uuid.uuid4().hex,
        "enable.partition.eof": "true", "auto.offset.reset": "earliest",
        "enable.auto.commit": "false",
    }  # fmt: skip
    consumer = Consumer({**settings, "isolation.level": "read_uncommitted"})
    places = [TopicPartition(topic, number, 0) for number in range(PARTITIONS)]
    ends = [consumer.get_watermark_offsets(place, 30, cached=False)[1] for place in places]
    consumer.close()
    consumer = Consumer({**settings, "isolation.level": isolation})
    found: list[list[Message]] = [[] for _ in range(PARTITIONS)]
    consumer.assign(places)
    reached = [0] * PARTITIONS
    while any(at < end for at, end in zip(reached, ends, strict=True)):
        message = consumer.poll(60)
        assert message is not None, f"{topic} was read up to {reached} of {ends}"
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            reached[message.partition()] = message.offset()
        else:
            reached[message.partition()] = message.offset() + 1
            found[message.partition()].append(message)
    consumer.close()
    return found


def read(address: str, topic: str, isolation: str = "read_committed") -> list[list[bytes]]:
    found = messages(address, topic, isolation)
    return [[message.value() or b"" for message in each] for each in found]


def told(message: bytes) -> Any:
    """A FlatMessage without what differs from run to run."""
    found = json.loads(message)
    del found["id"], found["ts"]
    return found


def expected() -> list[list[Any]]:
    """What each partition has in the end, in its order: each message of the file once."""
    routing = Routing(topic="t", partitions=PARTITIONS, partition_hash=r".*\..*:$pk$")
    found: list[list[Any]] = [[] for _ in range(PARTITIONS)]
    for line in decode_messages([binlog_files()[0]], FlatOptions(routing=routing)):
        place = json.loads(line)
        found[place["partition"]].append(told(json.dumps(place["message"]).encode()))
    assert all(found), "rows of all tables are in one partition"
    return found


def shown(address: str, topic: str) -> list[list[Any]]:
    return [[told(message) for message in each] for each in read(address, topic)]


def test_each_partition_has_its_messages_in_order(
    mock_kafka: str, demo_log: None, sender: str
) -> None:
    config = kafka(mock_kafka, f"flat-{sender}", transactional=False, sender=sender)
    runner = runner_of(config)
    runner.run(threading.Event())
    assert shown(mock_kafka, f"flat-{sender}") == expected()
    assert runner.status.rows > 100


def test_a_partition_that_is_not_there_is_named(
    mock_kafka: str, demo_log: None, sender: str
) -> None:
    config = kafka(mock_kafka, f"few-{sender}", partitions=64, transactional=False, sender=sender)
    with pytest.raises(SinkError, match=rf"few-{sender} has 4 partitions.*routing.partitions"):
        runner_of(config).run(threading.Event())


def test_brokers_that_do_not_make_the_topic_of_places_are_asked_again(mock_kafka: str) -> None:
    """Which of the two limits on the call came first decided whether the sink waited, or had failed
    for good with a TimeoutError that said nothing. (The mock cluster makes none.)"""
    settings = {"transactional": True, "cursor_topic": "never-made", "timeout_s": 1.0}
    sink = KafkaSink(kafka(mock_kafka, "never", **settings))
    with pytest.raises(SinkError, match="cannot be made") as caught:
        sink.open()
    sink.close()
    assert caught.value.retryable


def test_protobuf_and_arrow(mock_kafka: str, demo_log: None) -> None:
    counts = []
    for number, form in enumerate(("protobuf", "arrow")):
        config = kafka(
            mock_kafka, form, transactional=False, message={"format": form, "bytes_max": 4096}
        )
        config = config.model_copy(update={"client_id": 20 + number})
        runner = runner_of(config)
        runner.run(threading.Event())
        counts.append(runner.status.rows)
    entries = [
        entry
        for partition in read(mock_kafka, "protobuf")
        for message in partition
        for entry in pb.Messages.FromString(pb.Packet.FromString(message).body).messages
    ]
    assert len(entries) > 100
    streams = [value for partition in read(mock_kafka, "arrow") for value in partition]
    assert all(len(value) <= 4096 or pa.ipc.open_stream(value).read_all().num_rows == 1
               for value in streams)  # fmt: skip
    assert sum(pa.ipc.open_stream(value).read_all().num_rows for value in streams) == counts[1]


def test_a_message_that_is_too_long_is_poison(mock_kafka: str, demo_log: None, sender: str) -> None:
    config = kafka(mock_kafka, f"short-{sender}", transactional=False, sender=sender)
    small = {"bootstrap.servers": mock_kafka, "message.max.bytes": "1000", "batch.size": "1000"}
    config = config.model_copy(
        update={"kafka": config.kafka.model_copy(update={"properties": small})}
    )
    with pytest.raises(SinkError, match="dead_letters"):
        runner_of(config).run(threading.Event())


def test_transactions_carry_the_place(mock_kafka: str, demo_log: None, sender: str) -> None:
    """The calls of a transaction, in their order; what they promise needs another broker, below."""
    config = kafka(mock_kafka, f"carried-{sender}", transactional=True, sender=sender)
    write_place(config, mock_kafka)
    runner = runner_of(config)
    runner.run(threading.Event())
    assert shown(mock_kafka, f"carried-{sender}") == expected()
    successor = KafkaSink(config)
    place = successor.open()
    assert place is not None
    assert str(place) == runner.status.cursor
    successor.close()


class Mock:
    """A mock cluster that answers requests of a kind (Kafka's number) with an error."""

    def __init__(self) -> None:
        self._host = BatchProducer({"test.mock.num.brokers": "1", "bootstrap.servers": "x"})
        self._rd = library()
        for name, kind in (("handle_mock_cluster", ctypes.c_void_p),
                           ("mock_cluster_bootstraps", ctypes.c_char_p)):  # fmt: skip
            getattr(self._rd, f"rd_kafka_{name}").restype = kind
        self._cluster = ctypes.c_void_p(self._rd.rd_kafka_handle_mock_cluster(self._host._handle))
        self.address = str(self._rd.rd_kafka_mock_cluster_bootstraps(self._cluster), "utf-8")

    def set_away(self, is_away: bool) -> None:
        """Have the broker close its connections and take none, or be there again."""
        getattr(self._rd, f"rd_kafka_mock_broker_set_{'down' if is_away else 'up'}")(
            self._cluster, ctypes.c_int32(1)
        )

    def refuse(self, request: int, code: int) -> None:
        refusals = (ctypes.c_int * 1)(code)
        self._rd.rd_kafka_mock_push_request_errors_array(
            self._cluster, request, ctypes.c_size_t(1), refusals
        )

    def close(self) -> None:
        self._host.close()


@pytest.fixture
def mock() -> Iterator[Mock]:
    found = Mock()
    yield found
    found.close()


def connected(address: str, topic: str, sender: Any) -> tuple[KafkaSink, KafkaProducer]:
    """A sink that does not ask for its place: the mock makes no topics that are asked for."""
    sink = KafkaSink(kafka(address, topic))
    settings = {"bootstrap.servers": address, "transactional.id": "t"}
    sink._connected = producer = make_producer(settings, sender)
    producer.init_transactions(30)
    assert producer.partition_count(topic, 30) > 0
    return sink, producer


def test_a_message_that_the_broker_refuses_is_poison_at_every_call(mock: Mock, sender: str) -> None:
    """The mock refuses the first message; what is sent behind it meets an ended transaction."""
    sink, producer = connected(mock.address, "refused", sender)

    def send() -> None:
        with sink._translated():
            sink._begin().send_one("refused", 0, b"more")

    def commit() -> None:
        with sink._translated():
            sink._begin().commit_transaction(30)

    for call, is_known in ((send, True), (commit, True), (commit, False)):
        sink._begin()
        mock.refuse(PRODUCE, KafkaError.MSG_SIZE_TOO_LARGE)
        producer.send_one("refused", 0, b"too long")
        if is_known:
            producer.flush(30)
        with pytest.raises(SinkError) as caught:
            call()
        assert caught.value.kind == "poison", (call, caught.value)
        sink.abort()
    sink.close()


def test_a_producer_that_was_replaced_is_told_so_at_every_call(mock: Mock, sender: str) -> None:
    sink, _ = connected(mock.address, "fenced", sender)
    mock.refuse(ADD_PARTITIONS_TO_TXN, KafkaError.INVALID_PRODUCER_EPOCH)
    for _ in range(3):
        with pytest.raises(SinkError) as caught:
            sink.commit(Cursor(timeline=1, journal_name="mysql-bin.000001", position=4))
        assert caught.value.kind == "fenced", caught.value
    sink.close()


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.timed
def test_brokers_that_go_away_are_waited_for(
    mock: Mock, demo_log: None, sender: str, transactional: bool
) -> None:
    """Its state says so, it can be stopped meanwhile, and it goes on with what it has sent."""
    topic = f"away-{sender}-{transactional}".lower()
    config = kafka(mock.address, topic, transactional=transactional, sender=sender)
    config = config.model_copy(update={"commit_interval_s": 0.1})
    if transactional:
        write_place(config, mock.address)
    with running(runner := runner_of(config)):
        until(lambda: runner.status.commits > 5)
        mock.set_away(True)
        until(lambda: runner.status.state == "waiting")
        assert "not taken all messages yet" in runner.status.error
        mock.set_away(False)
        commits = runner.status.commits
        until(lambda: runner.status.commits > commits + 3)
        mock.set_away(True)
        until(lambda: runner.status.state == "waiting")
        began = time.monotonic()
    assert time.monotonic() - began < 20
    mock.set_away(False)
    assert runner.status.retries == 1  # told when it was stopped
    runner_of(config).run(threading.Event())
    places = zip(shown(mock.address, topic), expected(), strict=True)
    assert all(without_repeats(got) == whole for got, whole in places)


# --- on a broker with transactions -------------------------------------------------------------


def made(address: str, topic: str = "", **config: str) -> str:
    """Make a topic of PARTITIONS partitions; return its name."""
    topic = topic or f"canal-test-{uuid.uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, PARTITIONS, config=config)])[topic].result(30)
    until(lambda: len(admin.list_topics(topic, 10).topics[topic].partitions) == PARTITIONS)
    return topic


class Crashing(KafkaSink):
    """Stops at the given commits: before it, or after it with its answer lost. `crashes` has those
    that are still to come."""

    def __init__(self, config: Any, crashes: dict[int, str]) -> None:
        super().__init__(config)
        self._crashes, self._commits = crashes, 0

    def write(self, changes: Changes) -> None:
        super().write(changes)
        if self._crashes.get(self._commits + 1) == "flushed":
            assert self._connected is not None
            assert self._connected.flush(30) == 0

    def commit(self, upto: Cursor) -> None:
        self._commits += 1
        how = self._crashes.pop(self._commits, "")
        if how in ("before", "flushed"):
            raise SinkError("crashed", "retry")
        super().commit(upto)
        if how == "after":
            raise SinkError("the answer was lost", "retry")


def test_each_row_once_over_crashes_for_readers_of_what_is_committed(
    broker: str, demo_log: None, sender: str
) -> None:
    topic = made(broker)
    config = kafka(broker, topic, sender=sender)
    crashes = {1: "flushed", 3: "after", 4: "before", 6: "after", 8: "flushed", 9: "after"}
    runner_of(config, Crashing(config, crashes)).run(threading.Event())
    assert not crashes
    each_is_there_once(broker, topic)


def each_is_there_once(address: str, topic: str) -> None:
    """For readers of what is committed, in order; others see more."""
    assert shown(address, topic) == expected()
    everything = read(address, topic, "read_uncommitted")
    assert sum(map(len, everything)) > sum(map(len, expected())), "no aborted message was written"


def test_a_zombie_is_fenced(broker: str, sender: str) -> None:
    """The predecessor has messages in the log that are not committed when its heir comes, and
    others that it sends after that, into the transaction that it has open and beyond it."""
    topic = made(broker)
    config = kafka(broker, topic, sender=sender)
    zombie, heir = KafkaSink(config), KafkaSink(config)
    place = Cursor(timeline=1, journal_name="mysql-bin.000001", position=4)
    assert zombie.open() is None
    zombie.commit(place)
    producer = zombie._begin()
    producer.send_one(topic, 0, b"of the zombie")
    assert producer.flush(30) == 0
    assert heir.open() == place
    producer.send_one(topic, 0, b"of the zombie, awake")
    with pytest.raises(SinkError) as caught:
        zombie.commit(Cursor(timeline=1, journal_name="mysql-bin.000001", position=5))
    assert caught.value.kind == "fenced", caught.value
    with pytest.raises(SinkError) as again:  # and every call after
        zombie.commit(Cursor(timeline=1, journal_name="mysql-bin.000001", position=6))
    assert again.value.kind == "fenced", again.value
    zombie.close()
    heir._begin().send_one(topic, 0, b"of the heir")
    heir.commit(place)
    heir.close()
    assert read(broker, topic)[0] == [b"of the heir"]
    assert read(broker, topic, "read_uncommitted")[0] == [b"of the zombie", b"of the heir"]
    last = KafkaSink(config)
    assert last.open() == place
    last.close()


def test_another_sinks_open_transaction_does_not_hide_the_place(broker: str) -> None:
    """Places of all sinks are in one partition; what is committed is shown up to the oldest open
    transaction there, so that the place may lie behind it."""
    config = kafka(broker, made(broker))
    mine = KafkaSink(config)
    mine.open()
    mine.commit(Cursor(timeline=1, journal_name="mysql-bin.000001", position=4))
    other = Producer({"bootstrap.servers": broker, "transactional.id": uuid.uuid4().hex})
    other.init_transactions(30)
    other.begin_transaction()
    other.produce(config.kafka.cursor_topic, b"{}", b"another sink", partition=0)
    assert other.flush(30) == 0
    place = Cursor(timeline=1, journal_name="mysql-bin.000001", position=5)
    mine.commit(place)
    mine.close()
    ended = threading.Timer(5, lambda: other.abort_transaction(30))
    ended.start()
    heir = KafkaSink(config)
    began = time.monotonic()
    assert heir.open() == place
    assert time.monotonic() - began > 3, "the other transaction was not open any more"
    ended.join()
    heir.close()


def test_a_message_beyond_the_topics_limit_is_set_aside(
    kafka_alone: None, broker: str, demo_log: None, tmp_path: Path, sender: str
) -> None:
    """The broker refuses it, which ends its transaction; all others are there once."""
    topic = made(broker, **{"max.message.bytes": "1300"})
    dead = tmp_path / "dead.jsonl"
    properties = {"bootstrap.servers": broker, "compression.type": "none"}  # the limit is after it
    config = kafka(broker, topic, sender=sender, properties=properties)
    config = config.model_copy(update={"dead_letters": str(dead)})
    runner = runner_of(config)
    runner.run(threading.Event())
    assert runner.status.dead_letters > 0
    assert len(dead.read_text().splitlines()) >= runner.status.dead_letters
    missing = 0
    for got, whole in zip(shown(broker, topic), expected(), strict=True):
        kept = iter(whole)
        assert all(message in kept for message in got), "repeated, or out of order"
        missing += len(whole) - len(got)
    assert missing > 0
