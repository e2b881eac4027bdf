"""Transactions that Kafka's brokers end because they were open too long: a coordinator then shuts
out the producer, as if another had come. By librdkafka's mock cluster, which is told to do so."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from ray_canal.client.connector import Connector
from ray_canal.client.transport import RayTransport
from ray_canal.errors import SubscriberReplaced
from ray_canal.sinks.port import Changes, SinkError
from ray_canal.sinks.queues.kafka import KafkaSink
from ray_canal.sinks.queues.kafka_producer import MessageProducer
from tests.in_process_sink import runner_of
from tests.integration.test_kafka import (
    ADD_PARTITIONS_TO_TXN,
    Mock,
    expected,
    kafka,
    mock,
    sender,
    senders,
    shown,
    write_place,
)
from tests.sink_runs import without_repeats

__all__ = ["mock", "sender"]  # fixtures


class Sleeping(KafkaSink):
    """Its process is asleep, with a transaction open, at its third write."""

    def __init__(self, config: Any, mock: Mock, seconds: float, meanwhile: Any = None) -> None:
        super().__init__(config)
        self._mock, self._seconds, self._meanwhile = mock, seconds, meanwhile
        self._writes = 0

    def write(self, changes: Changes) -> None:
        self._writes += 1
        if self._writes == 3:
            self._begin()
            time.sleep(self._seconds)
            if self._meanwhile is not None:
                self._meanwhile()
            self._mock.refuse(ADD_PARTITIONS_TO_TXN, KafkaError.INVALID_PRODUCER_EPOCH)
        super().write(changes)


def asleep(mock: Mock, topic: str, sender: str) -> Any:
    config = kafka(
        mock.address, topic, sender=sender,
        properties={"bootstrap.servers": mock.address, "transaction.timeout.ms": "1000"},
    )  # fmt: skip
    write_place(config, mock.address)
    return config


@senders
def test_a_sink_that_slept_alone_goes_on(mock: Mock, demo_log: None, sender: str) -> None:
    config = asleep(mock, "slept", sender)
    runner = runner_of(config, Sleeping(config, mock, 1.2))
    runner.run(threading.Event())
    assert runner.status.retries == 1
    found = zip(shown(mock.address, "slept"), expected(), strict=True)
    assert all(without_repeats(got) == whole for got, whole in found)


def test_a_transaction_that_was_not_open_long_was_ended_by_another(
    mock: Mock, demo_log: None, sender: str
) -> None:
    config = asleep(mock, "fenced", sender)
    with pytest.raises(SinkError) as caught:
        runner_of(config, Sleeping(config, mock, 0.0)).run(threading.Event())
    assert caught.value.kind == "fenced"


@senders
def test_a_sink_that_slept_while_another_took_its_place_ends(
    mock: Mock, demo_log: None, sender: str
) -> None:
    config = asleep(mock, "replaced", sender)

    def take_its_place() -> None:
        with Connector(RayTransport(config.destination), config.client_id) as heir:
            heir.subscribe()

    runner = runner_of(config, Sleeping(config, mock, 1.2, take_its_place))
    with pytest.raises(SubscriberReplaced):
        runner.run(threading.Event())


def code_of(call: Callable[..., Any], *arguments: float) -> int | None:
    """Of what it raises. (A traceback that is kept would keep the producer, which would go on
    connecting.)"""
    try:
        call(*arguments)
    except KafkaException as error:
        return int(error.args[0].code())
    return None


def test_what_shut_a_producer_out_is_told_by_each_of_its_calls(mock: Mock) -> None:
    """Where a message's callback runs in the call that learns of it, confluent-kafka loses the
    exception, and a SystemError took its place: in half of these, and in half of the closes."""
    first = Producer({"bootstrap.servers": mock.address})
    first.produce("told", b"makes the topic")
    first.flush(30)
    for name in ("flush", "begin_transaction", "commit_transaction", "abort_transaction") * 4:
        settings = {"bootstrap.servers": mock.address, "transactional.id": "t"}
        producer = MessageProducer(settings)
        producer.init_transactions(30)
        producer.begin_transaction()
        mock.refuse(ADD_PARTITIONS_TO_TXN, KafkaError.INVALID_PRODUCER_EPOCH)
        producer.send_one("told", 0, b"of one that was shut out")
        time.sleep(0.4)  # the refusal is there, also on a busy machine
        producer._producer.purge()
        arguments = [] if name == "begin_transaction" else [5]
        assert code_of(getattr(producer, name), *arguments) == KafkaError._FENCED, name
        producer.close()
