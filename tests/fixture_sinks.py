"""Fixtures of sinks: a log that has the demo's first file, and librdkafka's mock cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from ray_canal.demo import binlog_files
from tests.in_process_sink import destination


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
