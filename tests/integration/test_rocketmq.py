"""RocketMQ's gRPC protocol: each message group in log order, every message confirmed.

The stand-in takes what is sent; with ROCKETMQ_PROXY (HOST:PORT of a RocketMQ 5 proxy, and topics
that are made there, see below) the same is read back from a real broker."""

from __future__ import annotations

import json
import os
import threading
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from rocketmq.grpc_protocol.definition_pb2 import Code

from ray_canal.demo import binlog_files
from ray_canal.errors import CanalError
from ray_canal.offline import decode_messages
from ray_canal.views.flat import FlatOptions
from ray_canal.views.routing import Routing
from tests.in_process_sink import runner_of, sink_config, until
from tests.rocketmq_proxy import FIFO, NORMAL, RocketProxy

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
        assert _without_repeats(found) == expected(ROUTING)[group]


def _without_repeats(found: list[Any]) -> list[Any]:
    """Each once; what comes again begins at an earlier message and goes on without a gap."""
    taken: list[Any] = []
    at = 0
    for message in found:
        if at < len(taken) and taken[at] == message:
            at += 1
        elif at == len(taken) and message not in taken:
            taken.append(message)
            at += 1
        else:
            at = taken.index(message) + 1
    return taken


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


needs_broker = pytest.mark.skipif(
    not PROXY,
    reason="no real RocketMQ: set ROCKETMQ_PROXY=HOST:PORT, and make the topic ROCKETMQ_TOPIC "
    "(canal-fifo) with +message.type=FIFO to test order there",
)


@needs_broker
def test_a_real_broker_has_each_group_in_order(demo_log: None) -> None:
    from rocketmq.v5.client import ClientConfiguration, Credentials
    from rocketmq.v5.consumer import SimpleConsumer
    from rocketmq.v5.model import FilterExpression

    tag = f"t{uuid.uuid4().hex[:12]}"
    runner_of(rocket(PROXY, tag=tag)).run(threading.Event())
    given = ClientConfiguration(PROXY, Credentials())
    consumer = SimpleConsumer(given, f"canal-{tag}", {TOPIC: FilterExpression(tag)})
    consumer.startup()
    found = defaultdict(list)
    wanted = expected(ROUTING)
    try:
        while sum(map(len, found.values())) < sum(map(len, wanted.values())):
            for message in consumer.receive(32, 30):
                found[message.message_group].append(_comparable(json.loads(message.body)))
                consumer.ack(message)
    finally:
        consumer.shutdown()
    assert {group: _without_repeats(each) for group, each in found.items()} == wanted
