"""The two ways of handing messages to Kafka: librdkafka's batch call, and a call a message.

Both speak KafkaException. The second is for where the library cannot be called directly (another
system than Linux, a librdkafka that is linked in statically).
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Mapping
from typing import Any, Protocol, cast

from confluent_kafka import KafkaError, KafkaException, Producer

from ray_canal.config.queue import KafkaSender
from ray_canal.errors import ConfigError
from ray_canal.model.arrays import Bytes, Int64s
from ray_canal.sinks.queues.librdkafka import BatchProducer, Keys

logger = logging.getLogger(__name__)

_POLL_S = 0.1


class KafkaProducer(Protocol):
    """The calls that a sink needs of a producer. Every call may raise KafkaException."""

    def send(
        self, topic: str, partition: int, buffer: Bytes, bounds: Int64s, keys: Keys | None = None
    ) -> None:
        """Send the messages `buffer[bounds[i, 0]:bounds[i, 1]]` in their order; one without bytes
        is a tombstone. `keys`: a buffer and bounds of their keys, which choose the partition where
        it is -1; no bytes: no key."""

    def send_one(
        self, topic: str, partition: int, value: bytes | None, key: bytes | None = None
    ) -> None:
        """Send one message; None: a tombstone."""

    def partition_count(self, topic: str, timeout_s: float) -> int:
        """Return how many partitions a topic has; 0: there is no such topic."""

    def flush(self, timeout_s: float) -> int:
        """Wait until all is delivered; how much is not."""

    def take_failure(self) -> KafkaError | None:
        """Return why a message was not delivered, once."""

    def init_transactions(self, timeout_s: float) -> None:
        """Fence earlier producers of the same transactional id. Raises SinkError."""
        ...
    def begin_transaction(self) -> None:
        """Begin a transaction. Raises SinkError."""
        ...
    def commit_transaction(self, timeout_s: float) -> None:
        """Commit what was sent since `begin_transaction`, once all is delivered. Raises
        SinkError."""
        ...
    def abort_transaction(self, timeout_s: float) -> None:
        """Discard what was sent since `begin_transaction`. Raises SinkError."""
        ...
    def close(self) -> None:
        """Forget what is not delivered, and disconnect."""


def make_producer(settings: Mapping[str, str], sender: KafkaSender) -> KafkaProducer:
    """Return a producer, connected lazily. Raises ConfigError: `sender` is "batch", and the library
    cannot be called; KafkaException: the settings are wrong."""
    if sender != "message":
        try:
            return BatchProducer(settings)
        except OSError as error:
            if sender == "batch":
                raise ConfigError(f'kafka.sender = "batch": {error}') from None
            logger.warning("messages go to Kafka one by one: %s", error)
    return MessageProducer(settings)


class MessageProducer:
    """`confluent_kafka.Producer`, called for each message."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._fatal: KafkaError | None = None
        self._failure: KafkaError | None = None
        # with a callback, `poll` raises once what ended the producer for good
        self._producer: Any = Producer({**settings, "error_cb": lambda error: None})

    def send(
        self, topic: str, partition: int, buffer: Bytes, bounds: Int64s, keys: Keys | None = None
    ) -> None:
        view = buffer.data
        names: list[bytes | None] = [None] * len(bounds)
        if keys is not None:
            names = [bytes(keys[0][first:end]) or None for first, end in keys[1].tolist()]
        for (first, end), key in zip(bounds.tolist(), names, strict=True):
            self.send_one(topic, partition, bytes(view[first:end]) or None, key)

    def send_one(
        self, topic: str, partition: int, value: bytes | None, key: bytes | None = None
    ) -> None:
        while True:
            try:
                self._producer.produce(
                    topic, value, key, partition=partition, on_delivery=self._delivered
                )
                break
            except BufferError:  # the client's queue is full: wait for the broker
                self._poll(_POLL_S)
                if self._failure is not None:
                    raise KafkaException(self.take_failure()) from None
            except KafkaException as error:
                raise self._explained(error) from None
        self._poll(0)

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is not None and self._failure is None:
            self._failure = error

    def partition_count(self, topic: str, timeout_s: float) -> int:
        described = self._producer.list_topics(topic, timeout_s).topics[topic]
        return len(described.partitions)

    def flush(self, timeout_s: float) -> int:
        return int(self._call("flush", timeout_s))

    def take_failure(self) -> KafkaError | None:
        failure, self._failure = self._failure, None
        return failure

    def init_transactions(self, timeout_s: float) -> None:
        self._call("init_transactions", timeout_s)

    def begin_transaction(self) -> None:
        self._call("begin_transaction")

    def commit_transaction(self, timeout_s: float) -> None:
        self._call("commit_transaction", timeout_s)

    def abort_transaction(self, timeout_s: float) -> None:
        self._call("abort_transaction", timeout_s)

    def close(self) -> None:
        producer, self._producer = self._producer, None  # its handle ends with the last reference
        if producer is not None:
            producer.purge()
            # what ended it is known, or told by nobody; SystemError: see _call
            with contextlib.suppress(KafkaException, SystemError):
                producer.flush(5)

    def _call(self, name: str, *arguments: float) -> Any:
        """Call the producer. (confluent-kafka 2.16 loses the exception that ends a producer for
        good where a message's callback runs in the same call: a SystemError is left of it.)"""
        try:
            return getattr(self._producer, name)(*arguments)
        except KafkaException as error:
            raise self._explained(error) from None
        except SystemError:
            raise self._explained(KafkaException(KafkaError(KafkaError._FATAL))) from None

    def _poll(self, seconds: float) -> None:
        self._call("poll", seconds)

    def _explained(self, error: KafkaException) -> KafkaException:
        """The error; after one that ended the producer for good, that one."""
        told: KafkaError = error.args[0]
        if told.code() == KafkaError._FATAL and self._fatal is None:
            told = self._cause() or told
        if told.fatal() and self._fatal is None:
            self._fatal = told
        return error if self._fatal is None else KafkaException(self._fatal)

    def _cause(self) -> KafkaError | None:
        """Return what ended the producer for good, as the first call tells that knows it."""
        for call in (functools.partial(self._producer.poll, 0), self._producer.begin_transaction):
            try:
                call()
            except KafkaException as error:
                if error.args[0].fatal():
                    return cast(KafkaError, error.args[0])
            except SystemError:
                pass
        return None
