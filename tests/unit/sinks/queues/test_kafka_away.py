"""Kafka that is away: what is said of it, and how often; settings that no producer can have."""

from __future__ import annotations

import socket

import pytest

from ray_canal.config import SinkConfig
from ray_canal.sinks.port import SinkError
from ray_canal.sinks.queues.kafka import KafkaSink


def test_the_cause_is_named_and_not_logged_twenty_times_a_second(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Who asks for metadata lets librdkafka connect again and again, and it logs each failure."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        config = SinkConfig.model_validate(
            {
                "name": "s", "destination": "d", "type": "kafka", "client_id": 1,
                "kafka": {"properties": {"bootstrap.servers": f"127.0.0.1:{port}"},
                          "timeout_s": 0.8},
            }
        )  # fmt: skip
        for call in (lambda sink: list(sink.check([])), lambda sink: sink.open()):
            sink = KafkaSink(config)
            with pytest.raises(SinkError, match=rf"127\.0\.0\.1:{port}.*Connection refused"):
                call(sink)
            sink.close()
    assert capfd.readouterr().err.count("Connection refused") < 20


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
