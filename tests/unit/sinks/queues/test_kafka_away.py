"""Kafka that is away: what is said of it, and how often; settings that no producer can have."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable

import pytest

from ray_canal.config import SinkConfig
from ray_canal.sinks.port import SinkError
from ray_canal.sinks.queues.kafka import KafkaSink


def said(port: int, call: Callable[[KafkaSink], object]) -> str:
    """The error of a call. Its time is longer each time, until librdkafka has tried to connect."""
    message = ""
    for timeout_s in (0.8, 5.0, 30.0):
        config = SinkConfig.model_validate(
            {"name": "s", "destination": "d", "type": "kafka", "client_id": 1,
             "kafka": {"properties": {"bootstrap.servers": f"127.0.0.1:{port}"},
                       "timeout_s": timeout_s}}
        )  # fmt: skip
        sink = KafkaSink(config)
        with pytest.raises(SinkError) as caught:
            call(sink)
        sink.close()
        message = str(caught.value)
        if "refused" in message:
            break
    return message


@pytest.mark.timed
def test_the_cause_is_named_and_not_logged_twenty_times_a_second(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Who asks for metadata lets librdkafka connect again and again, and it logs each failure."""
    began_s = time.monotonic()
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        for message in (said(port, lambda sink: list(sink.check([]))), said(port, KafkaSink.open)):
            assert f"127.0.0.1:{port}" in message
            assert "Connection refused" in message
    refused = re.compile(rf"127\.0\.0\.1:{port}\b.*Connection refused")  # others may log theirs
    lines = sum(bool(refused.search(line)) for line in capfd.readouterr().err.splitlines())
    assert 0 < lines < 12 * (time.monotonic() - began_s)


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [("acks", "1", "must be set to `all`"), ("no.such", "1", "No such configuration property")],
)
def test_settings_that_the_producer_refuses_are_seen_by_a_check(
    name: str, value: str, word: str
) -> None:
    """Nobody listens there: what is wrong without a broker is said first."""
    properties = {"bootstrap.servers": "127.0.0.1:1", name: value}
    config = SinkConfig.model_validate(
        {"name": "s", "destination": "d", "type": "kafka", "client_id": 1,
         "kafka": {"properties": properties, "timeout_s": 0.1}}
    )  # fmt: skip
    with pytest.raises(SinkError, match=word):
        list(KafkaSink(config).check([]))
