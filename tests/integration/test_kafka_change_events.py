"""Debezium's change events in Kafka, and a registry over HTTP."""

from __future__ import annotations

import json
import threading
import uuid
from typing import Any

import pytest

from ray_canal.demo import binlog_files
from ray_canal.offline import decode_debezium
from ray_canal.views.debezium import DebeziumOptions
from tests.in_process_sink import runner_of
from tests.integration.test_kafka import PARTITIONS, Crashing, kafka, made, messages, senders
from tests.schema_registry import Registry


def change_events(address: str, topic: str) -> dict[int, list[tuple[Any, Any]]]:
    """(key, value) of each message of a topic, by partition."""
    return {
        number: [(message.key(), message.value()) for message in found]
        for number, found in enumerate(messages(address, topic))
    }


def without_times(event: Any) -> Any:
    return event and {name: v for name, v in event.items() if not name.startswith("ts_")}


def expected_events(prefix: str) -> dict[str, list[tuple[Any, Any]]]:
    """(key, message) of each event of the demo's first file, by topic."""
    expected: dict[str, list[tuple[Any, Any]]] = {}
    for line in decode_debezium([binlog_files()[0]], DebeziumOptions(prefix=prefix)):
        told = json.loads(line)
        event = told["key"], without_times(told["message"])
        expected.setdefault(told["topic"], []).append(event)
    assert len(expected) > 2
    assert any(event is None for events in expected.values() for _, event in events)
    return expected


def each_is_there_once_in_order(address: str, prefix: str) -> None:
    """Each event is in its key's partition, once, and a key's events are in log order."""
    for topic, events in expected_events(prefix).items():
        found, partitions = [], change_events(address, topic)
        for number, pairs in partitions.items():
            for key, value in pairs:
                assert _java_partition(key) == number
                event = None if value is None else without_times(json.loads(value))
                found.append((json.loads(key), event))
        for key in {json.dumps(key) for key, _ in events}:
            assert [e for k, e in found if json.dumps(k) == key] == [
                e for k, e in events if json.dumps(k) == key
            ]
        assert len(found) == len(events)


@pytest.mark.parametrize("sender", ["batch", "message"])
def test_change_events_go_by_key_with_tombstones(
    mock_kafka: str, demo_log: None, sender: str
) -> None:
    prefix = f"dbz{sender}"
    config = kafka(
        mock_kafka, prefix, transactional=False, sender=sender, message={"format": "debezium"}
    )
    runner_of(config).run(threading.Event())
    each_is_there_once_in_order(mock_kafka, prefix)


@senders
def test_over_crashes_each_is_there_once(broker: str, demo_log: None, sender: str) -> None:
    prefix = f"canal-test-{uuid.uuid4().hex}"
    for topic in expected_events(prefix):
        made(broker, topic)
    config = kafka(broker, prefix, sender=sender, message={"format": "debezium"})
    crashes = {1: "flushed", 3: "after", 4: "before", 6: "after"}
    runner_of(config, Crashing(config, crashes)).run(threading.Event())
    assert not crashes
    each_is_there_once_in_order(broker, prefix)


def _java_partition(key: bytes) -> int:
    """The partition that Kafka's own client chooses for a key: murmur2."""
    number, mask = 0x9747B28C ^ len(key), 0xFFFFFFFF
    whole = len(key) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(key[at : at + 4], "little") * 0x5BD1E995 & mask
        number = (number * 0x5BD1E995 & mask) ^ ((k ^ k >> 24) * 0x5BD1E995 & mask)
    if len(key) > whole:
        number = (number ^ int.from_bytes(key[whole:], "little")) * 0x5BD1E995 & mask
    number = (number ^ number >> 13) * 0x5BD1E995 & mask
    return ((number ^ number >> 15) & 0x7FFFFFFF) % PARTITIONS


def test_avro_with_a_registry_is_read_by_its_schemas(mock_kafka: str, demo_log: None) -> None:
    with Registry() as registry:
        config = kafka(
            mock_kafka, "avro", transactional=False,
            message={"format": "avro", "registry": {"url": registry.url}, "tombstones": False},
        )  # fmt: skip
        runner = runner_of(config)
        runner.run(threading.Event())
        count, names = 0, sorted(each for each in registry.subjects if each.endswith("-value"))
        assert "avro.shop.customers-value" in names
        for name in names:
            for pairs in change_events(mock_kafka, name.removesuffix("-value")).values():
                for key, value in pairs:
                    assert key is not None
                    record = registry.record(value)
                    assert record["source"]["table"] in name
                    assert set(registry.record(key)) <= set(record["after"] or record["before"])
                    count += 1
    assert count >= runner.status.rows > 100
