"""The last value of a key, by librdkafka's mock broker; aborted and open transactions are in
tests/integration/test_kafka.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException, Producer

from ray_canal.sinks.port import SinkError
from ray_canal.sinks.queues import kafka_place
from ray_canal.sinks.queues.kafka import KafkaSink
from ray_canal.sinks.queues.kafka_place import last_value, topic_checks
from tests.in_process_sink import sink_config


@pytest.fixture(scope="module")
def broker() -> Iterator[Producer]:
    """A broker in this process, by a producer that is told its address."""
    host = Producer({"test.mock.num.brokers": "1", "bootstrap.servers": "unused"})
    yield host
    host.flush(10)


def address(host: Producer) -> str:
    return next(iter(host.list_topics(timeout=20).brokers.values())).__str__().partition("/")[0]


def written(host: Producer, topic: str, *pairs: tuple[str, str | None]) -> dict[str, str]:
    for key, value in pairs:
        host.produce(topic, value, key, partition=0)
    assert host.flush(20) == 0
    return {"bootstrap.servers": address(host)}


def test_the_last_one_counts_and_only_its_key(broker: Producer) -> None:
    pairs = [("a", "1"), ("b", "7"), ("a", "2"), ("c", "9")]
    connection = written(broker, "places", *pairs)
    assert last_value(connection, "places", "a", 20) == "2"
    assert last_value(connection, "places", "none", 20) == ""
    written(broker, "places", ("a", None))
    assert last_value(connection, "places", "a", 20) == "", "it was taken back"


def test_a_topic_that_cannot_be_read_to_its_end_is_told(
    broker: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where another sink's transaction is open: its messages are not shown."""
    connection = written(broker, "open", ("a", "1"))
    monkeypatch.setattr(kafka_place, "_end", lambda *_: 5)
    with pytest.raises(SinkError, match="could be read up to 1 of 5"):
        last_value(connection, "open", "a", 1.0)


def test_where_no_broker_answers_it_is_no_empty_place() -> None:
    with pytest.raises(KafkaException):
        last_value({"bootstrap.servers": "127.0.0.1:1"}, "places", "a", 0.3)


def test_names_that_no_topic_can_have() -> None:
    """A table named in Chinese, routed by its own name: one entry's fault, not the broker's."""
    (found,) = topic_checks({"shop_\u8ba2\u5355": 1, "shop_orders": 1}, {"shop_orders": 1})
    assert not found.ok
    assert found.detail == "no topic can be named shop_\u8ba2\u5355"
    config = sink_config("kafka", kafka={"properties": {"bootstrap.servers": "h:1"}})
    with pytest.raises(SinkError, match="no topic can be named 'shop_\u8ba2") as refused:
        KafkaSink(config)._check(None, "shop_\u8ba2", 0)  # type: ignore[arg-type]
    assert refused.value.kind == "poison"
