"""The library that is called directly is the one that confluent_kafka runs on."""

from __future__ import annotations

import confluent_kafka
import numpy as np
import pytest
from confluent_kafka import KafkaError, KafkaException

from ray_canal.sinks.queues import librdkafka
from ray_canal.sinks.queues.librdkafka import BatchProducer, library


def test_it_is_confluents_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert library().rd_kafka_version() == confluent_kafka.libversion()[1]
    monkeypatch.setattr(confluent_kafka, "libversion", lambda: ("0.1", 1))
    with pytest.raises(OSError, match="is of version"):
        library()


def test_a_message_that_is_too_long_is_refused_at_once() -> None:
    producer = BatchProducer({"bootstrap.servers": "127.0.0.1:1", "message.max.bytes": "1000"})
    buffer = np.zeros(5000, np.uint8)
    with pytest.raises(KafkaException) as caught:
        producer.send("t", 0, buffer, np.array([[0, 10], [10, 5000]]))
    assert caught.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    producer.close()
    producer.close()  # again


def test_the_record_is_as_long_as_librdkafkas() -> None:
    assert librdkafka._MESSAGE.itemsize == 72
