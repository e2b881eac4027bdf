"""RocketMQ's gRPC protocol: each message group in log order, every message confirmed.

The stand-in takes what is sent; with ROCKETMQ_PROXY (HOST:PORT of a RocketMQ 5 proxy, and a topic
that is made there, see `broker`) the same is read back from a real broker, by where it has stored
each message."""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from rocketmq.grpc_protocol.definition_pb2 import Code
from rocketmq.v5.client import ClientConfiguration, Credentials
from rocketmq.v5.consumer import SimpleConsumer
from rocketmq.v5.model import FilterExpression, Message

from ray_canal.demo import binlog_files
from ray_canal.errors import CanalError
from ray_canal.offline import decode_messages
from ray_canal.views.flat import FlatOptions
from ray_canal.views.routing import Routing
from tests.in_process_sink import runner_of, sink_config, until
from tests.rocketmq_proxy import FIFO, NORMAL, RocketProxy
from tests.sink_runs import killed, without_repeats

PROXY = os.environ.get("ROCKETMQ_PROXY", "")
TOPIC = os.environ.get("ROCKETMQ_TOPIC", "canal-fifo")
ROUTING = {"topic": TOPIC, "partitions": 3, "partition_hash": r".*\..*:$pk$"}


@pytest.fixture
def proxy() -> Iterator[RocketProxy]:
    found = RocketProxy({TOPIC: FIFO, "normal": NORMAL})
    yield found
    found.stop()


def rocket(address: str, *, routing: Any = None, more: Any = None, **keys: Any) -> Any:
    return sink_config(
        "rocketmq", name="r", rocketmq={"address": address, "timeout_s": 5, **keys},
        routing=routing or ROUTING, batch_size=64, **(more or {}),
    )  # fmt: skip


def expected(routing: dict[str, Any]) -> dict[str, list[Any]]:
    """Messages without what differs from run to run, by group."""
    found = defaultdict(list)
    for line in decode_messages([binlog_files()[0]], FlatOptions(routing=Routing(**routing))):
        each = json.loads(line)
        group = f"{each['topic'].replace('.', '_')}-{each['partition']}"
        found[group].append(_comparable(each["message"]))
    return dict(found)


def _comparable(message: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in message.items() if key not in ("id", "ts")}


def by_group(messages: Sequence[Any]) -> dict[str, list[Any]]:
    found = defaultdict(list)
    for message in messages:
        found[message.system_properties.message_group].append(_comparable(json.loads(message.body)))
    return dict(found)


def test_each_group_has_its_messages_in_order(proxy: RocketProxy, demo_log: None) -> None:
    proxy.delay_s = 0.002
    keys = {"access_key": "me", "secret_key": "carrots", "tag": "canal"}
    runner_of(rocket(f"127.0.0.1:{proxy.port}", **keys)).run(threading.Event())
    assert by_group(proxy.messages) == expected(ROUTING)
    assert len(expected(ROUTING)) == 3
    assert 1 < proxy.at_once_max <= 3  # groups beside each other, one message of each
    names = [list(message.system_properties.keys) for message in proxy.messages]
    assert len({name for [name] in names}) == len(names) > 300
    assert {message.system_properties.tag for message in proxy.messages} == {"canal"}
    assert "Credential=me" in proxy.metadata["authorization"]
    assert "carrots" not in str(proxy.metadata)


def test_what_was_refused_for_a_while_comes_in_order(proxy: RocketProxy, demo_log: None) -> None:
    """The client gives up a message after its tries; the sink begins again at its last commit, and
    no message of the first time comes between those of the second."""
    calls = 0

    def refuse(message: Any) -> int:
        nonlocal calls
        calls += 1
        return Code.OK if calls < 100 or calls > 110 else Code.INTERNAL_SERVER_ERROR

    proxy.refuse, proxy.delay_s = refuse, 0.001
    runner = runner_of(rocket(f"127.0.0.1:{proxy.port}", more={"retry_max_s": 0.2}))
    runner.run(threading.Event())
    assert calls > len(proxy.messages) >= sum(map(len, expected(ROUTING).values()))
    for group, found in by_group(proxy.messages).items():
        assert without_repeats(found) == expected(ROUTING)[group]


@pytest.mark.parametrize(
    ("keys", "routing", "why"),
    [
        ({}, {"topic": "nowhere"}, "is there such a topic"),
        ({}, {"topic": "normal"}, r"message\.type=FIFO.*rocketmq\.fifo = false"),
        ({"fifo": False}, {"topic": TOPIC}, "message type not match"),
        ({"address": "a:b:c"}, {"topic": TOPIC}, r"rocketmq\.address .*expected host:port"),
    ],
)
def test_what_is_wrong_is_said(
    proxy: RocketProxy, demo_log: None, keys: Any, routing: Any, why: str
) -> None:
    more = {"give_up_after_s": 0.5, "retry_max_s": 0.1}
    given = {"address": f"127.0.0.1:{proxy.port}", **keys}
    runner = runner_of(rocket(given.pop("address"), routing=routing, more=more, **given))
    with pytest.raises(CanalError, match=why):
        runner.run(threading.Event())
    assert not proxy.messages


def test_a_proxy_that_is_away_is_waited_for(demo_log: None) -> None:
    first = RocketProxy({TOPIC: FIFO})
    port = first.port
    first.stop()
    runner = runner_of(rocket(f"127.0.0.1:{port}", more={"retry_max_s": 0.2}))
    thread = threading.Thread(target=runner.run, args=[stopped := threading.Event()])
    thread.start()
    try:
        until(lambda: "RocketMQ" in runner.status.error)
    finally:
        stopped.set()
        thread.join(60)
    assert not thread.is_alive()


def test_rows_as_messages_go_by_key(proxy: RocketProxy, demo_log: None) -> None:
    """Names of topics have no dots here. Rows of one key are in one group."""
    proxy.topics.update({f"{TOPIC}_shop_{name}": FIFO for name in ("customers", "orders")})
    config = rocket(
        f"127.0.0.1:{proxy.port}", routing={"topic": TOPIC}, groups=5,
        more={"message": {"format": "debezium"}, "tables": r"shop\.(customers|orders)"},
    )  # fmt: skip
    runner_of(config).run(threading.Event())
    assert {message.topic.name for message in proxy.messages} == proxy.topics.keys() - {
        TOPIC, "normal"
    }  # fmt: skip
    groups: dict[Any, set[str]] = defaultdict(set)
    for message in proxy.messages:
        row = json.loads(message.body)
        key = (message.topic.name, (row["after"] or row["before"])["id"])
        groups[key].add(message.system_properties.message_group)
    assert all(len(each) == 1 for each in groups.values())
    assert 2 < len(set.union(*groups.values())) <= 10


@pytest.fixture(params=["stand-in", "real"])
def broker(request: pytest.FixtureRequest) -> str:
    """HOST:PORT of a proxy whose topic TOPIC is FIFO."""
    if request.param == "stand-in":
        return f"127.0.0.1:{request.getfixturevalue('proxy').port}"
    if not PROXY:
        pytest.skip(
            "no real RocketMQ: set ROCKETMQ_PROXY=HOST:PORT, and make the topic ROCKETMQ_TOPIC "
            "(canal-fifo) with +message.type=FIFO to test order there"
        )
    return PROXY


class Reader:
    """Reads what is sent with a tag after it was made: a new consumer group begins at the end."""

    def __init__(self, address: str, tag: str, patch: pytest.MonkeyPatch) -> None:
        self.stored: dict[tuple[str, int], dict[int, Message]] = defaultdict(dict)
        """By queue and offset."""
        self._names: set[str] = set()
        plain = Message.fromProtobuf

        def with_place(message: Message, told: Any) -> Any:
            own = told.system_properties
            found = plain(message, told)
            if own.delivery_attempt < 2 or own.message_id not in self._names:
                self.stored[own.store_host, own.queue_id].setdefault(own.queue_offset, found)
            self._names.add(own.message_id)
            return found

        patch.setattr(Message, "fromProtobuf", with_place)
        given = ClientConfiguration(address, Credentials())
        self._consumer = SimpleConsumer(
            given, f"canal-{tag}", {TOPIC: FilterExpression(tag)}, await_duration=5
        )
        self._consumer.startup()
        while self.receive():
            pass

    def receive(self) -> int:
        found = self._consumer.receive(32, 60)
        for message in found:
            self._consumer.ack(message)
        return len(found)

    def groups(self) -> dict[str, list[Any]]:
        """Messages by group, in the order in which the broker has them. A group has one queue."""
        found: dict[str, list[Any]] = defaultdict(list)
        queues: dict[str, set[tuple[str, int]]] = defaultdict(set)
        for queue, messages in self.stored.items():
            for _, message in sorted(messages.items()):
                group = message.message_group
                found[group].append(_comparable(json.loads(message.body)))
                queues[group].add(queue)
        assert all(len(each) == 1 for each in queues.values()), queues
        return dict(found)

    def wait(self, wanted: dict[str, list[Any]]) -> dict[str, list[Any]]:
        """Return the groups once they have all of `wanted`, and nothing more comes."""
        deadline = time.monotonic() + 120
        while (found := self.groups()) != wanted:
            assert time.monotonic() < deadline, {name: len(each) for name, each in found.items()}
            if not self.receive() and all(
                message in found.get(name, []) for name, each in wanted.items() for message in each
            ):
                return found
        return found

    def close(self) -> None:
        self._consumer.shutdown()


@pytest.fixture
def tag() -> str:
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture
def reader(broker: str, tag: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    found = Reader(broker, tag, monkeypatch)
    yield found
    found.close()


def test_the_broker_has_each_group_in_order(
    broker: str, reader: Reader, tag: str, demo_log: None
) -> None:
    runner_of(rocket(broker, tag=tag)).run(threading.Event())
    wanted = expected(ROUTING)
    found = reader.wait(wanted)
    assert {group: without_repeats(each) for group, each in found.items()} == wanted


IN_A_WRITE, BEFORE_ITS_COMMIT, BEFORE_ITS_ACK = (
    "_message:50:before", "write:2:after", "commit:2:after",
)  # fmt: skip


@pytest.mark.parametrize(
    "steps",
    [
        (BEFORE_ITS_COMMIT,),
        pytest.param((IN_A_WRITE, BEFORE_ITS_COMMIT, BEFORE_ITS_ACK), marks=pytest.mark.soak),
    ],
)
def test_killed_at_every_step_nothing_is_lost(
    broker: str, reader: Reader, tag: str, tmp_path: Path, steps: tuple[str, ...]
) -> None:
    """What is sent again begins at the last commit, and has the order of the first time."""
    config = rocket(broker, tag=tag)
    ends = killed(tmp_path, config, {"files": [str(binlog_files()[0])]}, steps)
    assert ends == ["-9"] * len(steps) + ["0"]
    wanted = expected(ROUTING)
    found = reader.wait(wanted)
    assert {group: without_repeats(each) for group, each in found.items()} == wanted
    assert sum(map(len, found.values())) > sum(map(len, wanted.values())), "nothing came again"
