"""Ids of messages: what has one id is one message, however it was cut."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ray_canal.demo import binlog_files
from ray_canal.sinks.messages import MessageMaker
from ray_canal.sinks.port import Changes, Cursor, Guarantee, SinkError
from ray_canal.sinks.queues.rabbitmq import RabbitSink
from tests.in_process_sink import destination, runner_of, sink_config


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One of the bundled files as destination `x`."""
    source = {"files": [str(binlog_files()[0])]}
    with destination(tmp_path_factory.mktemp("demo"), held=True, source=source):
        yield


class Recorder:
    """Keeps what a RabbitSink would publish: (id, body)."""

    guarantee: Guarantee = "at_least_once"

    def __init__(self, config: Any) -> None:
        self.sent: list[tuple[str, bytes]] = []
        self._sink = RabbitSink(config)
        self._maker = MessageMaker(config.message, config.routing)

    def open(self) -> Cursor | None:
        return None

    def write(self, changes: Changes) -> None:
        found = self._maker.make(changes)
        for each in self._sink._messages(changes, found, [*range(len(found.entries))]):
            self.sent.append((each.id, bytes(each.body)))

    def commit(self, upto: Cursor) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


def published(form: str, client_id: int, batch_size: int) -> list[tuple[str, bytes]]:
    config = sink_config(
        "rabbitmq", client_id=client_id, batch_size=batch_size, routing={"topic": "t"},
        rabbitmq={"address": "h", "queue": "q"}, message={"format": form, "bytes_max": 4096},
    )  # fmt: skip
    recorder = Recorder(config)
    runner_of(config, recorder).run(threading.Event())
    return recorder.sent


@pytest.mark.parametrize(("form", "number"), [("protobuf", 1), ("arrow", 3)])
def test_one_id_is_one_message(form: str, number: int, demo: None) -> None:
    """A message has several entries, and another cut of the log gives others."""
    small, large = published(form, number, 16), published(form, number + 1, 4096)
    for sent in (small, large):
        assert len({name for name, _ in sent}) == len(sent) > 20
    bodies = dict(large)
    assert all(bodies.get(name, body) == body for name, body in small)
    assert {name for name, _ in small} & set(bodies)


def test_a_routing_key_that_amqp_does_not_take_is_one_rows_fault() -> None:
    """Names of 64 letters have up to 256 bytes."""
    config = sink_config("rabbitmq", rabbitmq={"address": "h", "queue": "q"})
    sink = RabbitSink(config)
    assert sink._routing_key("\u8ba2" * 85, 0) == "\u8ba2" * 85
    with pytest.raises(SinkError, match="more than 255 bytes") as refused:
        sink._routing_key("\u8ba2" * 86, 0)
    assert refused.value.kind == "poison"
