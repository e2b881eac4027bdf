from __future__ import annotations

import logging
import random
import socket
import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from rocketmq.v5.exception import (
    BadRequestException,
    ClientException,
    ForbiddenException,
    PayloadTooLargeException,
    RequestHeaderFieldsTooLargeException,
    UnauthorizedException,
)

from ray_canal.sinks.port import SinkError
from ray_canal.sinks.queues.rocketmq import RocketSink, in_order, refuse_silence
from tests.in_process_sink import sink_config


class Broker:
    """Takes messages after a random while. `broken`: a number that it does not take."""

    def __init__(self, group_of: dict[int, str], broken: int = -1) -> None:
        self.taken: list[int] = []
        self.under_way: set[str] = set()
        self.at_once = 0
        self._broken, self._group_of = broken, group_of
        self._random, self._lock = random.Random(7), threading.Lock()
        self._pool = ThreadPoolExecutor(8)

    def send(self, number: int) -> Future[None]:
        group = self._group_of[number]
        with self._lock:
            assert group not in self.under_way
            self.under_way.add(group)
            self.at_once = max(self.at_once, len(self.under_way))
        return self._pool.submit(self._take, number, group, self._random.random() / 500)

    def _take(self, number: int, group: str, pause_s: float) -> None:
        threading.Event().wait(pause_s)
        with self._lock:
            self.under_way.discard(group)
            if number == self._broken:
                raise UnauthorizedException("no")
            self.taken.append(number)


def groups_of(count: int) -> tuple[dict[str, deque[int]], dict[int, str]]:
    group_of = {number: f"g{number % 5}" for number in range(count)}
    groups: dict[str, deque[int]] = {}
    for number, group in group_of.items():
        groups.setdefault(group, deque()).append(number)
    return groups, group_of


def test_a_group_has_one_message_under_way() -> None:
    groups, group_of = groups_of(200)
    broker = Broker(group_of)
    in_order(dict(groups), broker.send, 3, 10.0)
    assert sorted(broker.taken) == list(range(200))
    for group in set(group_of.values()):
        mine = [number for number in broker.taken if group_of[number] == group]
        assert mine == sorted(mine)
    assert 1 < broker.at_once <= 3


def test_a_failure_is_raised_when_nothing_is_under_way() -> None:
    groups, group_of = groups_of(200)
    broker = Broker(group_of, broken=61)
    with pytest.raises(SinkError, match=r"UnauthorizedException.*no") as told:
        in_order(dict(groups), broker.send, 5, 10.0)
    assert told.value.kind == "fatal"
    assert not broker.under_way
    assert [number for number in broker.taken if group_of[number] == group_of[61]] == [
        *range(1, 61, 5)
    ]
    assert len(broker.taken) < 4 * 40 + 12, "the other groups went on to their ends"


def test_a_message_that_is_too_long_is_found_by_its_error() -> None:
    def send(number: int) -> Future[None]:
        raise PayloadTooLargeException("long")

    with pytest.raises(SinkError) as told:
        in_order({"g": deque([1])}, send, 1, 1.0)
    assert told.value.kind == "poison"


@pytest.mark.parametrize(
    ("kind", "code", "wanted", "words"),
    [
        (BadRequestException, 40002, "fatal", ["ILLEGAL_TOPIC", "dynamic_topic"]),
        (BadRequestException, 40005, "fatal", ["ILLEGAL_MESSAGE_KEY 40005"]),
        (BadRequestException, 40000, "fatal", ["BAD_REQUEST 40000"]),
        (BadRequestException, 40016, "retry", ["MESSAGE_CORRUPTED"]),
        (ForbiddenException, 40300, "fatal", ["FORBIDDEN", "PUB"]),
        (RequestHeaderFieldsTooLargeException, 43101, "poison", ["MESSAGE_PROPERTIES_TOO_LARGE"]),
        (BadRequestException, 49999, "fatal", ["49999"]),
    ],
)
def test_a_code_of_the_broker_is_named(
    kind: type[ClientException], code: int, wanted: str, words: list[str]
) -> None:
    def send(number: int) -> Future[None]:
        raise kind("no", code)

    with pytest.raises(SinkError) as told:
        in_order({"g": deque([1])}, send, 1, 1.0)
    assert told.value.kind == wanted
    assert all(word in str(told.value).replace(",", "") for word in words)


def test_the_clients_warnings_do_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    RocketSink(sink_config("rocketmq", rocketmq={"address": "127.0.0.1:1"}))
    client = logging.getLogger("rocketmq-python-client")
    for number in range(100):
        client.warning("send message failed, %d", number)
    client.warning("something else")
    texts = [record.getMessage() for record in caplog.records]
    assert texts == ["send message failed, 0", "something else"]


def test_silence_is_an_error_that_passes() -> None:
    with pytest.raises(SinkError, match=r"1 messages were not confirmed in 0\.05 s") as told:
        in_order({"g": deque([1])}, lambda _: Future(), 1, 0.05)
    assert told.value.kind == "retry"


def test_a_check_does_not_take_silence_for_a_broker() -> None:
    """The client connects when it has a topic, so it starts where nobody listens."""
    with socket.socket() as nobody, socket.create_server(("127.0.0.1", 0)) as listener:
        nobody.bind(("127.0.0.1", 0))
        away, there = (f"127.0.0.1:{each.getsockname()[1]}" for each in (nobody, listener))
        for address in (away, f"{away};{away}"):
            with pytest.raises(SinkError, match=rf"RocketMQ: {away}: .*refused"):
                refuse_silence(address, 5.0)
        refuse_silence(f"{away};{there}", 5.0)
