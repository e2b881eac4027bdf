"""librdkafka's batch call, which takes messages as they lie in one buffer: no Python call each.

`confluent_kafka` brings the library; its own `produce_batch` wants a dict a message and ignores
their partitions. A handle here is one of ours, made with the same settings. Messages of one topic
and partition go in one call: with a partition each, the library (2.16) leaks those that it refuses
and adds an unknown partition to a transaction.

In a transaction no delivery is reported: a commit fails if one message did. Without one, failures
come as events; they are read here, by `flush`.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_size_t, c_void_p
from typing import Any

import confluent_kafka
import numpy as np
from confluent_kafka import KafkaError, KafkaException

from ray_canal.model.arrays import Bytes, Int64s

Keys = tuple[Bytes, Int64s]
_MESSAGE = np.dtype(
    {
        "names": ["err", "partition", "payload", "len", "key", "key_len"],
        "formats": ["<i4", "<i4", "<u8", "<u8", "<u8", "<u8"],
        "offsets": [0, 16, 24, 32, 40, 48],
        "itemsize": 72,
    }
)
"""`rd_kafka_message_t` on 64 bits, without what producers do not set."""
_PRODUCER, _COPY = 0, 2
_EVENT_DELIVERY = 1
_PURGE_ALL = 1 | 2  # what waits, and what is under way
_TEXT_BYTES = 512
_OWN_SETTINGS = {
    "delivery.report.only.error": "true",
    "queue.buffering.max.messages": "0",  # no limit: a sink's batch is bounded already
    "queue.buffering.max.kbytes": "2147483647",
}
_RESULTS: dict[str, Any] = {
    "rd_kafka_conf_new": c_void_p, "rd_kafka_new": c_void_p, "rd_kafka_topic_new": c_void_p,
    "rd_kafka_queue_get_main": c_void_p, "rd_kafka_queue_poll": c_void_p,
    "rd_kafka_init_transactions": c_void_p, "rd_kafka_begin_transaction": c_void_p,
    "rd_kafka_commit_transaction": c_void_p, "rd_kafka_abort_transaction": c_void_p,
    "rd_kafka_error_string": c_char_p, "rd_kafka_err2str": c_char_p,
    "rd_kafka_event_message_count": c_size_t, "rd_kafka_event_message_array": c_size_t,
    "rd_kafka_conf_destroy": None, "rd_kafka_conf_set_events": None,
    "rd_kafka_topic_destroy": None, "rd_kafka_queue_destroy": None,
    "rd_kafka_event_destroy": None, "rd_kafka_error_destroy": None, "rd_kafka_destroy": None,
    "rd_kafka_metadata_destroy": None,
}  # fmt: skip


class _TopicMetadata(ctypes.Structure):
    _fields_ = (
        ("topic", c_char_p), ("partition_count", c_int), ("partitions", c_void_p), ("err", c_int),
    )  # fmt: skip


class _Metadata(ctypes.Structure):
    _fields_ = (
        ("broker_count", c_int), ("brokers", c_void_p),
        ("topic_count", c_int), ("topics", POINTER(_TopicMetadata)),
    )  # fmt: skip


def library() -> ctypes.CDLL:
    """The librdkafka that `confluent_kafka` runs on. Raises OSError: it cannot be called from
    here."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        paths = {line.split(maxsplit=5)[5].strip() for line in maps if "librdkafka" in line}
    if len(paths) != 1:
        raise OSError(f"librdkafka is not a library of its own in this process: {sorted(paths)}")
    found = ctypes.CDLL(paths.pop())
    try:
        version = found.rd_kafka_version()
        for name, result in _RESULTS.items():
            getattr(found, name).restype = result
    except AttributeError as error:
        raise OSError(f"librdkafka: {error}") from None
    if version != confluent_kafka.libversion()[1]:
        raise OSError(f"librdkafka is of version {version:#x}, not of confluent_kafka's")
    return found


class BatchProducer:
    """A producer handle of our own. Raises KafkaException where librdkafka says no; OSError: the
    library cannot be called."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._rd = library()
        self._is_transactional = bool(settings.get("transactional.id"))
        self._topics: dict[str, int] = {}
        self._kept: list[Any] = []
        self._failure: KafkaError | None = None
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        conf = c_void_p(self._rd.rd_kafka_conf_new())
        for name, value in {**settings, **_OWN_SETTINGS}.items():
            if self._rd.rd_kafka_conf_set(
                conf, name.encode(), str(value).encode(), text, c_size_t(_TEXT_BYTES)
            ):
                self._rd.rd_kafka_conf_destroy(conf)
                raise KafkaException(_error(KafkaError._INVALID_ARG, text.value.decode()))
        if not self._is_transactional:
            self._rd.rd_kafka_conf_set_events(conf, c_int(_EVENT_DELIVERY))
        handle = self._rd.rd_kafka_new(c_int(_PRODUCER), conf, text, c_size_t(_TEXT_BYTES))
        if not handle:  # the settings are still ours then
            self._rd.rd_kafka_conf_destroy(conf)
            raise KafkaException(_error(KafkaError._INVALID_ARG, text.value.decode()))
        self._handle = c_void_p(handle)
        self._queue = c_void_p(self._rd.rd_kafka_queue_get_main(self._handle))

    # --- messages --------------------------------------------------------------------------------

    def send(
        self, topic: str, partition: int, buffer: Bytes, bounds: Int64s, keys: Keys | None = None
    ) -> None:
        """Send the messages `buffer[bounds[i, 0]:bounds[i, 1]]` in their order, without a copy: the
        buffer must not change, and is kept until they are delivered. `keys`: a buffer and bounds
        of the messages' keys, which choose the partition where it is -1."""
        self._kept.append(buffer)
        messages = np.zeros(len(bounds), _MESSAGE)
        messages["payload"] = buffer.ctypes.data + bounds[:, 0]
        messages["len"] = bounds[:, 1] - bounds[:, 0]
        messages["payload"][messages["len"] == 0] = 0  # a tombstone
        if keys is not None:
            key_buffer, places = keys
            messages["key"] = key_buffer.ctypes.data + places[:, 0]
            messages["key_len"] = places[:, 1] - places[:, 0]
            messages["key"][messages["key_len"] == 0] = 0
            self._kept.append(key_buffer)
        self._send(topic, partition, messages, 0)

    def send_one(
        self, topic: str, partition: int, value: bytes | None, key: bytes | None = None
    ) -> None:
        """Send a copy of one message; None: a tombstone."""
        messages = np.zeros(1, _MESSAGE)
        if value is not None:
            messages["payload"] = ctypes.cast(c_char_p(value), c_void_p).value or 0
            messages["len"] = len(value)
        if key is not None:
            messages["key"] = ctypes.cast(c_char_p(key), c_void_p).value or 0
            messages["key_len"] = len(key)
        self._send(topic, partition, messages, _COPY)

    def _send(self, topic: str, partition: int, messages: Any, flags: int) -> None:
        sent = self._rd.rd_kafka_produce_batch(
            c_void_p(self._topic(topic)), c_int32(partition), c_int(flags),
            c_void_p(messages.ctypes.data), c_int(len(messages)),
        )  # fmt: skip
        if sent < len(messages):
            code = int(messages["err"][np.flatnonzero(messages["err"])[0]])
            raise KafkaException(self._explained(code))
        self._read_failures()

    def _topic(self, name: str) -> int:
        found = self._topics.get(name)
        if found is None:
            found = self._rd.rd_kafka_topic_new(self._handle, name.encode(), None)
            if not found:
                text = f"not a topic: {name!r}"
                raise KafkaException(_error(KafkaError._INVALID_ARG, text))
            self._topics[name] = found
        return found

    def partition_count(self, topic: str, timeout_s: float) -> int:
        """Return how many partitions a topic has; 0: there is no such topic."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = POINTER(_Metadata)()
            code = self._rd.rd_kafka_metadata(
                self._handle, 0, c_void_p(self._topic(topic)), byref(found),
                c_int(_milliseconds(deadline - time.monotonic())),
            )  # fmt: skip
            if code:
                raise KafkaException(self._explained(code))
            described = found.contents.topics[0]
            count, code = int(described.partition_count), int(described.err)
            self._rd.rd_kafka_metadata_destroy(found)
            if count or time.monotonic() > deadline:
                return count
            if code not in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE, 0):
                raise KafkaException(self._explained(code))
            time.sleep(0.1)  # the broker may be making it

    def flush(self, timeout_s: float) -> int:
        """Wait until all is delivered; how much is not."""
        deadline = time.monotonic() + timeout_s
        while True:
            self._rd.rd_kafka_flush(self._handle, c_int(20))
            self._read_failures()
            left = int(self._rd.rd_kafka_outq_len(self._handle))
            if left == 0:
                self._kept.clear()
            if left == 0 or time.monotonic() > deadline:
                return left

    def take_failure(self) -> KafkaError | None:
        """Return why a message was not delivered, once."""
        failure, self._failure = self._failure, None
        return failure

    def _read_failures(self) -> None:
        while event := self._rd.rd_kafka_queue_poll(self._queue, c_int(0)):
            count = self._rd.rd_kafka_event_message_count(c_void_p(event))
            if count:
                pointers = (c_void_p * count)()
                self._rd.rd_kafka_event_message_array(c_void_p(event), pointers, c_size_t(count))
                code = c_int.from_address(pointers[0] or 0).value
                if code and self._failure is None:
                    self._failure = self._explained(code)
            self._rd.rd_kafka_event_destroy(c_void_p(event))

    # --- transactions ----------------------------------------------------------------------------

    def init_transactions(self, timeout_s: float) -> None:
        self._try(self._rd.rd_kafka_init_transactions, timeout_s)

    def begin_transaction(self) -> None:
        self._raise(self._rd.rd_kafka_begin_transaction(self._handle))

    def commit_transaction(self, timeout_s: float) -> None:
        self._try(self._rd.rd_kafka_commit_transaction, timeout_s)
        self._kept.clear()

    def abort_transaction(self, timeout_s: float) -> None:
        self._try(self._rd.rd_kafka_abort_transaction, timeout_s)
        self._kept.clear()

    def _try(self, call: Callable[..., int | None], timeout_s: float) -> None:
        self._raise(call(self._handle, c_int(_milliseconds(timeout_s))))

    def _raise(self, error: int | None) -> None:
        if not error:
            return
        pointer = c_void_p(error)
        code = self._rd.rd_kafka_error_code(pointer)
        text = (self._rd.rd_kafka_error_string(pointer) or b"").decode("utf-8", "replace")
        self._rd.rd_kafka_error_destroy(pointer)
        raise KafkaException(self._explained(code, text))

    def close(self) -> None:
        """Forget what is not delivered, and disconnect."""
        if self._handle is None:
            return
        self._rd.rd_kafka_purge(self._handle, c_int(_PURGE_ALL))
        self.flush(5)
        self._rd.rd_kafka_queue_destroy(self._queue)
        for topic in self._topics.values():
            self._rd.rd_kafka_topic_destroy(c_void_p(topic))
        self._topics.clear()
        self._rd.rd_kafka_destroy(self._handle)
        self._handle = None  # type: ignore[assignment]
        self._kept.clear()  # not before: its threads may have read them

    def _explained(self, code: int, text: str = "") -> KafkaError:
        """The error; of one that ended this handle for good, its cause."""
        if code == KafkaError._FATAL:
            reason = ctypes.create_string_buffer(_TEXT_BYTES)
            code = self._rd.rd_kafka_fatal_error(self._handle, reason, c_size_t(_TEXT_BYTES))
            text = reason.value.decode("utf-8", "replace")
        return _error(code, text or (self._rd.rd_kafka_err2str(c_int(code)) or b"").decode())


def _error(code: int, text: str) -> KafkaError:
    return KafkaError(code, text)


def _milliseconds(seconds: float) -> int:
    return max(int(seconds * 1000), 1)
