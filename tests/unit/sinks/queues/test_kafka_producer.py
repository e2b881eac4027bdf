"""Both ways of handing messages over, where no broker answers; tests/integration/test_kafka.py has
the rest."""

from __future__ import annotations

import numpy as np
import pytest
from confluent_kafka import KafkaError, KafkaException

from ray_canal.errors import ConfigError
from ray_canal.sinks.queues import kafka_producer
from ray_canal.sinks.queues.kafka_producer import MessageProducer, make_producer
from ray_canal.sinks.queues.librdkafka import BatchProducer

NOBODY = {"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": "300"}


@pytest.mark.parametrize("sender", ["batch", "message"])
def test_what_is_not_delivered_is_a_failure(sender: kafka_producer.KafkaSender) -> None:
    producer = make_producer(NOBODY, sender)
    with pytest.raises(KafkaException):
        producer.partition_count("t", 0.2)
    producer.send_one("t", 0, b"value", b"key")
    producer.send("t", 1, np.frombuffer(b"onetwo", np.uint8), np.array([[0, 3], [3, 6]]))
    assert producer.flush(20) == 0
    failure = producer.take_failure()
    assert failure is not None
    assert failure.code() == KafkaError._MSG_TIMED_OUT
    assert producer.take_failure() is None
    with pytest.raises(KafkaException):
        producer.begin_transaction()  # it has no transactional.id
    producer.close()
    with pytest.raises(KafkaException, match="No such configuration property"):
        make_producer({"no.such": "1"}, sender)


def test_message_by_message_where_the_library_cannot_be_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    producer = make_producer(NOBODY, "auto")
    assert isinstance(producer, BatchProducer)
    producer.close()

    def refuse(settings: object) -> None:
        raise OSError("linked in")

    monkeypatch.setattr(kafka_producer, "BatchProducer", refuse)
    other = make_producer(NOBODY, "auto")
    assert isinstance(other, MessageProducer)
    other.close()
    with pytest.raises(ConfigError, match='"batch": linked in'):
        make_producer(NOBODY, "batch")
