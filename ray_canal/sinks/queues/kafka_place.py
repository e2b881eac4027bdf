"""Topics of a sink: whether those of its messages are there, and the last value of a key in the
compacted topic of places, read up to its very end."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterator, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ray_canal.sinks.port import SinkError
from ray_canal.source.setting_checks import CheckResult, listed

TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""Kafka's names of topics."""
NAME_ADVICE = (
    "name such tables in routing.dynamic_topic (TOPIC:schema.table) by ASCII letters, digits, ., _ "
    "and -, or leave them out of the sink's tables"
)


def topic_checks(wanted: Mapping[str, int], counts: Mapping[str, int]) -> Iterator[CheckResult]:
    """Yield what is wrong with topics. `wanted`: how many partitions each needs; `counts`: how many
    those that there are have."""
    if odd := [name for name in wanted if not TOPIC.fullmatch(name)]:
        yield CheckResult("topics", False, f"no topic can be named {listed(odd)}", NAME_ADVICE)
    absent = [name for name in wanted if name not in counts and TOPIC.fullmatch(name)]
    few = [
        f"{name} ({counts[name]} of {needed})"
        for name, needed in wanted.items()
        if counts.get(name, needed) < needed
    ]
    if few:
        fix = "give them more partitions, or correct routing.partitions"
        yield CheckResult("topics", False, f"{listed(few)} have too few partitions", fix)
    if absent:
        yield CheckResult(
            "topics", False, f"there is no {listed(absent)}",
            "make them, unless the brokers do (auto.create.topics.enable, num.partitions)",
            advisory=True,
        )  # fmt: skip
    elif not few and not odd:
        yield CheckResult("topics", True, listed(wanted))


def last_value(connection: Mapping[str, str], topic: str, key: str, timeout_s: float) -> str:
    """The last committed value of a key; "" where there is none.

    The end is the high watermark: a reader of what is committed is shown only what lies before the
    oldest open transaction, which may be another sink's, and our own place may lie behind that.
    Raises SinkError: such a transaction is still open after `timeout_s`; KafkaException.
    """
    place = TopicPartition(topic, 0, 0)
    end = _end(connection, topic, timeout_s)
    deadline = time.monotonic() + timeout_s
    consumer = Consumer(_settings(connection, "read_committed"))
    found, reached = "", 0
    try:
        consumer.assign([place])
        while reached < end:
            message = consumer.poll(max(deadline - time.monotonic(), 0.0))
            if message is None:
                raise SinkError(
                    f"Kafka: the topic {topic} of places could be read up to {reached} of {end} "
                    "alone: is another sink's transaction open there?",
                    "retry",
                )
            error = message.error()
            if error is None:
                reached = max(reached, message.offset() + 1)
                if message.key() == key.encode():
                    found = (message.value() or b"").decode()
            elif error.code() == KafkaError._PARTITION_EOF:
                reached = max(reached, message.offset())  # behind a transaction's end, too
            else:
                raise KafkaException(error)
    finally:
        consumer.close()
    return found


def _end(connection: Mapping[str, str], topic: str, timeout_s: float) -> int:
    """The high watermark: for a reader of what is not committed, too, there is nothing behind."""
    consumer = Consumer(_settings(connection, "read_uncommitted"))
    try:
        found = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout_s, cached=False)
    finally:
        consumer.close()
    if found is None:
        raise SinkError(f"Kafka: the end of the topic {topic} is not known", "retry")
    return int(found[1])


def _settings(connection: Mapping[str, str], isolation: str) -> dict[str, str]:
    return {
        **connection,
        "group.id": f"canal-{uuid.uuid4().hex}",
        "isolation.level": isolation,
        "enable.auto.commit": "false",
        "enable.partition.eof": "true",
        "auto.offset.reset": "earliest",
    }
