"""Publishes that are put together as bytes, read back by pika's own decoder."""

from __future__ import annotations

from typing import Any

from pika import frame

from ray_canal.sinks.queues.amqp_link import frames
from ray_canal.sinks.queues.broker_link import Publish

FRAME_MAX = 4096


def decoded(data: bytes) -> list[Any]:
    found = []
    while data:
        size, one = frame.decode_frame(data)
        assert 0 < size <= FRAME_MAX
        found.append(one)
        data = data[size:]
    return found


def test_pika_reads_each_message_as_it_was_given() -> None:
    messages = [
        Publish("shop.orders", "1:a", b"one"),
        Publish("shop.items", "1:b", memoryview(bytes(range(256)) * 40)),
        Publish("shop.orders", "1:c", b""),
    ]
    data, count = frames("canal", messages, FRAME_MAX)
    found = iter(decoded(data))
    assert count == len(messages)
    for routing_key, name, body in messages:
        method, header = next(found).method, next(found)
        assert (method.exchange, method.routing_key) == ("canal", routing_key)
        assert method.mandatory
        assert header.body_size == len(body)
        told = header.properties
        assert (told.content_type, told.delivery_mode, told.message_id) == ("text/plain", 2, name)
        whole = b""
        while len(whole) < len(body):
            whole += next(found).fragment
        assert whole == bytes(body)
    assert next(found, None) is None


def test_an_id_is_cut_at_what_a_short_string_holds() -> None:
    data, _ = frames("", [Publish("q", "n" * 300, b"x")], FRAME_MAX)
    assert decoded(data)[1].properties.message_id == "n" * 255
