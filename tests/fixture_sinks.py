"""Fixtures of sinks: a log that has the demo's first file, and brokers of Kafka's protocol."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from ray_canal.demo import binlog_files
from tests.in_process_sink import destination
from tests.servers.tansu import start_tansu


@pytest.fixture
def demo_log(tmp_path: Path) -> Iterator[None]:
    """The demo's first file as destination `x`, all of which is kept for subscribers to come."""
    with destination(tmp_path, held=True, source={"files": [str(binlog_files()[0])]}, tsdb={}):
        yield


@pytest.fixture(scope="session")
def mock_kafka() -> Iterator[str]:
    """The address of a cluster in this process: no disk, no fencing, no aborted transactions."""
    host = Producer({"test.mock.num.brokers": "1", "bootstrap.servers": "unused"})
    metadata = host.list_topics(timeout=30)
    yield ",".join(f"{b.host}:{b.port}" for b in metadata.brokers.values())
    del host


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker that fences, and hides what was aborted: $KAFKA_BOOTSTRAP, else
    Tansu."""
    if address := os.environ.get("KAFKA_BOOTSTRAP"):
        yield address
    else:
        with start_tansu(tmp_path_factory.mktemp("tansu")) as address:
            yield address


@pytest.fixture
def kafka_alone() -> None:
    """Skips what Tansu cannot show."""
    if not os.environ.get("KAFKA_BOOTSTRAP"):
        pytest.skip("Tansu knows no such thing: set KAFKA_BOOTSTRAP to test it on Kafka")
