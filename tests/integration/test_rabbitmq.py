"""RabbitMQ, a real one: each message in its queue in log order, confirmed before the ack, whatever
is killed."""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from ray_canal.demo import binlog_files
from ray_canal.offline import decode_messages
from ray_canal.sinks.port import SinkError
from ray_canal.sinks.queues import rabbitmq
from ray_canal.sinks.queues.broker_link import Publish
from ray_canal.sinks.queues.rabbitmq import RabbitSink
from ray_canal.views.flat import FlatOptions
from ray_canal.views.routing import Routing
from tests.in_process_sink import runner_of, running, sink_config, until
from tests.proxy import Proxy
from tests.servers.rabbitmq import RabbitServer
from tests.sink_runs import killed, random_steps

# Where connections are cut, in bytes to the broker: in the login, then amid messages.
CUTS = (500, 20_000, 30_000, 50_000, 80_000, 110_000)


def rabbit(address: str, queue: str, *, more: Any = None, routing: Any = None, **keys: Any) -> Any:
    settings = {"address": address, "queue": queue, "timeout_s": 30, **keys}
    return sink_config(
        "rabbitmq", name="r", rabbitmq=settings, routing=routing or {"topic": queue},
        batch_size=64, **(more or {}),
    )  # fmt: skip


def read(server: RabbitServer, queue: str) -> list[tuple[str, Any]]:
    """(message id, message without what differs from run to run) of a queue, in its order."""
    found = []
    connection = server.connect()
    channel = connection.channel()
    while True:
        method, properties, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            break
        assert properties.delivery_mode == 2
        assert properties.content_type == "text/plain"
        message = json.loads(body)
        del message["id"], message["ts"]
        found.append((properties.message_id, message))
    connection.close()
    return found


def expected() -> list[Any]:
    found = []
    for line in decode_messages([binlog_files()[0]], FlatOptions(routing=Routing())):
        message = json.loads(line)["message"]
        del message["id"], message["ts"]
        found.append(message)
    return found


def without_repeats(found: list[tuple[str, Any]]) -> list[Any]:
    """Messages in their order, each once: a sink may go back and send again what follows, without a
    gap; what comes again has its first id and is the same."""
    order: dict[str, int] = {}
    messages: list[Any] = []
    at = 0
    for name, message in found:
        number = order.setdefault(name, len(order))
        assert number <= at, "a gap, or something new in the midst of what comes again"
        if number == len(messages):
            messages.append(message)
        assert messages[number] == message
        at = number + 1
    return messages


def test_each_message_is_there_in_order(rabbitmq_server: RabbitServer, demo_log: None) -> None:
    queue = f"q{uuid.uuid4().hex}"
    runner = runner_of(rabbit(rabbitmq_server.address, queue))
    runner.run(threading.Event())
    found = read(rabbitmq_server, queue)
    assert [message for _, message in found] == expected()
    assert len({name for name, _ in found}) == len(found) > 300


def test_messages_go_over_tls(rabbitmq_server: RabbitServer, demo_log: None) -> None:
    queue, address = f"q{uuid.uuid4().hex}", f"localhost:{rabbitmq_server.tls_port}"
    tls = {"mode": "verify_identity", "ca": str(rabbitmq_server.folder / "cert.pem")}
    runner_of(rabbit(address, queue, tls=tls)).run(threading.Event())
    assert [message for _, message in read(rabbitmq_server, queue)] == expected()
    config = rabbit(address, queue, tls={"mode": "verify_ca"}, more={"give_up_after_s": 0.1})
    with pytest.raises(SinkError, match="certificate"):
        runner_of(config).run(threading.Event())


def test_exchange_binding_and_routing_as_canals(
    rabbitmq_server: RabbitServer, demo_log: None
) -> None:
    """Canal declares and binds what its properties name; a dynamic topic is the routing key, with _
    for dots. Quorum queues are as good, and long messages are cut into frames. A queue that several
    keys lead to has all of them in log order: sorted by key, as Canal sends them, the second table
    of a batch was behind the first one's later changes, and who leaves out repeats by comparing
    positions left it out."""
    name = f"x{uuid.uuid4().hex}"
    routing = {"topic": "rest", "dynamic_topic": r".*\..*"}
    keys = {"exchange": name, "exchange_type": "topic", "queue_type": "quorum",
            "binding_key": "shop_#"}  # fmt: skip
    sink = rabbit(rabbitmq_server.address, name, routing=routing, **keys)
    connection = rabbitmq_server.connect()
    channel = connection.channel()
    channel.exchange_declare(name, "topic", durable=True)
    channel.queue_declare(f"{name}-rest")
    for key in ("rest", "shop_customers", "#"):
        channel.queue_bind(f"{name}-rest", name, key)
    channel.queue_declare(f"{name}-one")
    channel.queue_bind(f"{name}-one", name, "shop_customers")
    connection.close()
    runner = runner_of(sink)
    runner.run(threading.Event())
    everything = [message for _, message in read(rabbitmq_server, f"{name}-rest")]
    assert everything == expected()  # whatever their routing keys are
    mine = [message for _, message in read(rabbitmq_server, f"{name}-one")]
    assert mine == [m for m in expected() if (m["database"], m["table"]) == ("shop", "customers")]
    assert read(rabbitmq_server, name) == []  # "shop_#" is one word: it matches nothing


def test_a_long_message_is_cut_into_frames(rabbitmq_server: RabbitServer, demo_log: None) -> None:
    queue = f"q{uuid.uuid4().hex}"
    config = rabbit(rabbitmq_server.address, queue, more={"message": {"format": "arrow"}})
    sink = RabbitSink(config)
    sink.open()
    link = sink._opened()
    body = random.Random(1).randbytes(1_000_000)
    link.publish("", [Publish(queue, "1", body), Publish(queue, "2", b"")])
    link.wait_confirmed()
    sink.close()
    connection = rabbitmq_server.connect()
    channel = connection.channel()
    assert [channel.basic_get(queue, auto_ack=True)[2] for _ in range(2)] == [body, b""]
    connection.close()


def test_without_a_queue_the_sink_waits(rabbitmq_server: RabbitServer, demo_log: None) -> None:
    """A message that nobody takes comes back, and is not lost."""
    queue = f"q{uuid.uuid4().hex}"
    config = rabbit(rabbitmq_server.address, "", routing={"topic": queue})
    runner = runner_of(config)
    stopped = threading.Event()
    thread = threading.Thread(target=runner.run, args=[stopped])
    thread.start()
    until(lambda: "no queue takes" in runner.status.error)
    assert queue in runner.status.error
    connection = rabbitmq_server.connect()
    connection.channel().queue_declare(queue, durable=True)
    connection.close()
    thread.join(60)
    assert not thread.is_alive()
    assert without_repeats(read(rabbitmq_server, queue)) == expected()


def test_a_broker_in_alarm_is_waited_for_and_gets_each_message_once(
    rabbitmq_server: RabbitServer, demo_log: None
) -> None:
    """Its state says so. What a connection has sent and the broker
    has not read is not sent again by another one, which would come before it."""
    queue = f"q{uuid.uuid4().hex}"
    runner = runner_of(rabbit(rabbitmq_server.address, queue, timeout_s=3))
    with rabbitmq_server.alarm():
        thread = threading.Thread(target=runner.run, args=[threading.Event()])
        thread.start()
        until(lambda: "alarm: low on disk" in runner.status.error)
        time.sleep(4)  # longer than an answer may take
        assert runner.status.state == "waiting"
    thread.join(60)
    assert not thread.is_alive()
    assert [message for _, message in read(rabbitmq_server, queue)] == expected()
    assert runner.status.retries == 0


@pytest.mark.timed
def test_a_broker_in_alarm_lets_a_sink_stop(rabbitmq_server: RabbitServer, demo_log: None) -> None:
    runner = runner_of(rabbit(rabbitmq_server.address, f"q{uuid.uuid4().hex}"))
    with rabbitmq_server.alarm():
        with running(runner):
            until(lambda: runner.status.state == "waiting")
            began = time.monotonic()
        assert time.monotonic() - began < 30
        ports = [each.raddr.port for each in psutil.Process().net_connections() if each.raddr]
        assert rabbitmq_server.port not in ports  # the connection is closed, too


def test_a_full_queue_that_refuses_messages_gets_them_in_order(
    rabbitmq_server: RabbitServer, demo_log: None
) -> None:
    """A consumer makes room while messages are refused. What was under way with the first refused
    one may come before it; all others go one by one."""
    queue = f"q{uuid.uuid4().hex}"
    connection = rabbitmq_server.connect()
    channel = connection.channel()
    limits = {"x-max-length": 200, "x-overflow": "reject-publish"}
    channel.queue_declare(queue, durable=True, arguments=limits)
    more = {"retry_max_s": 0.3}
    config = rabbit(rabbitmq_server.address, "", routing={"topic": queue}, more=more)
    found: list[tuple[str, Any]] = []
    with running(runner := runner_of(config)):
        until(lambda: "is a queue full?" in runner.status.error)
        time.sleep(1.0)  # what was sent with the first refused one is refused, too
        while runner.status.state != "stopped":
            method, properties, body = channel.basic_get(queue, auto_ack=True)
            if method is not None:
                message = json.loads(body)
                del message["id"], message["ts"]
                found.append((properties.message_id, message))
            time.sleep(0.002)
    connection.close()
    found += read(rabbitmq_server, queue)
    assert without_repeats(found) == expected()


@pytest.mark.parametrize("alone", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_a_message_beyond_the_brokers_maximum_repeats_no_others(
    rabbitmq_server: RabbitServer, demo_log: None, tmp_path: Path, alone: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """It ends its channel, and nobody knows what of those before it has arrived. So long messages
    go alone; and once the broker has named its maximum, longer ones are not sent at all: others are
    sent again once at most, those that were under way with the first one."""
    compact = {"ensure_ascii": False, "separators": (",", ":")}
    sizes = [len(json.dumps(message, **compact).encode()) for message in expected()]
    most = sorted(sizes)[-6]
    if alone:
        monkeypatch.setattr(rabbitmq, "_LONG_BYTES", most)
    queue = f"q{uuid.uuid4().hex}"
    letters = tmp_path / "dead.jsonl"
    config = rabbit(rabbitmq_server.address, queue, more={"dead_letters": str(letters)})
    with rabbitmq_server.message_bytes_max(most):
        runner = runner_of(config)
        runner.run(threading.Event())
    found = read(rabbitmq_server, queue)
    taken = without_repeats(found)
    refused = [number for number, each in enumerate(expected()) if each not in taken]
    assert taken == [each for number, each in enumerate(expected()) if number not in refused]
    assert runner.status.dead_letters == len(refused) > 2
    assert min(sizes[number] for number in refused) > most - 200  # of which are id and ts
    assert len(found) - len(taken) <= (0 if alone else refused[0])


def test_an_exchange_that_is_deleted_is_made_again(
    rabbitmq_server: RabbitServer, demo_log: None
) -> None:
    name = f"x{uuid.uuid4().hex}"
    keys = {"exchange": name, "exchange_type": "topic", "binding_key": "#"}
    config = rabbit(rabbitmq_server.address, name, more={"commit_interval_s": 0.2}, **keys)
    connection = rabbitmq_server.connect()
    with running(runner := runner_of(config.model_copy(update={"batch_size": 4}))):
        until(lambda: runner.status.commits > 6)
        connection.channel().exchange_delete(name)
        until(lambda: runner.status.state == "stopped")
    connection.close()
    assert runner.status.retries == 1
    assert without_repeats(read(rabbitmq_server, name)) == expected()


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"password": "wrong"}, "ACCESS_REFUSED"),
        ({"virtual_host": "none"}, "not found|NOT_ALLOWED|InvalidVhost|none"),
        ({"exchange": "missing"}, "missing"),
    ],
)
def test_what_a_person_has_to_put_right_ends_the_sink(
    rabbitmq_server: RabbitServer, demo_log: None, keys: dict[str, str], text: str
) -> None:
    config = rabbit(rabbitmq_server.address, f"q{uuid.uuid4().hex}", **keys)
    with pytest.raises(SinkError, match=text) as caught:
        runner_of(config).run(threading.Event())
    assert caught.value.kind == "fatal"


def test_cut_connections_cost_few_repeats(rabbitmq_server: RabbitServer, demo_log: None) -> None:
    """The connection is cut again and again, each time amid messages: all come in order, and
    repeats are few."""
    queue = f"q{uuid.uuid4().hex}"
    with Proxy(("127.0.0.1", rabbitmq_server.port)) as proxy:
        config = rabbit(proxy.address, queue, more={"retry_max_s": 0.3})
        runner = runner_of(config)
        proxy.cut_behind(*CUTS)
        thread = threading.Thread(target=runner.run, args=[threading.Event()])
        thread.start()
        thread.join(60)
        assert not thread.is_alive()
    found = read(rabbitmq_server, queue)
    assert without_repeats(found) == expected()
    assert runner.status.retries == len(CUTS)
    assert len(found) < 2 * len(expected())


def run_killed(
    server: RabbitServer, folder: Path, steps: Sequence[str], batch_size: int = 64
) -> list[tuple[str, Any]]:
    queue = f"q{uuid.uuid4().hex}"
    config = rabbit(server.address, queue).model_copy(update={"batch_size": batch_size})
    ends = killed(folder, config, {"files": [str(binlog_files()[0])]}, steps)
    assert ends == ["-9"] * len(steps) + ["0"]
    return read(server, queue)


def test_a_killed_sink_loses_nothing(rabbitmq_server: RabbitServer, tmp_path: Path) -> None:
    steps = ["write:2:after", "commit:1:before", "commit:1:after", "commit:2:after"]
    found = run_killed(rabbitmq_server, tmp_path, steps)
    assert without_repeats(found) == expected()
    assert len(found) > len(expected())  # what was not acknowledged came again


@pytest.mark.soak
def test_killed_at_random_steps(rabbitmq_server: RabbitServer, tmp_path: Path) -> None:
    steps = random_steps("write", "commit")
    found = run_killed(rabbitmq_server, tmp_path, steps, batch_size=1)
    assert without_repeats(found) == expected()


@pytest.mark.soak
def test_a_killed_broker_has_all_that_was_confirmed(
    rabbitmq_server: RabbitServer, demo_log: None
) -> None:
    """The queue is there beforehand: RabbitMQ 3.10 notes queues in a log of its database, and if it
    is killed before that log is dumped, it may come back without the queue, whatever it confirmed
    (seen in 7 of 47 kills of a busy machine; with pika alone, too)."""
    queue = f"q{uuid.uuid4().hex}"
    with contextlib.closing(rabbitmq_server.connect()) as connection:
        connection.channel().queue_declare(queue, durable=True)
    rabbitmq_server.control("eval", "mnesia:dump_log().")
    runner = runner_of(rabbit(rabbitmq_server.address, queue, more={"retry_max_s": 1.0}))
    thread = threading.Thread(target=runner.run, args=[threading.Event()])
    thread.start()
    until(lambda: runner.status.commits > 1)
    rabbitmq_server.kill()
    rabbitmq_server.start()
    thread.join(120)
    assert not thread.is_alive()
    assert without_repeats(read(rabbitmq_server, queue)) == expected()
