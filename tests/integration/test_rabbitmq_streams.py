"""Streams of a real RabbitMQ, written by their own protocol and read by AMQP: each message in log
order, whatever is cut or killed."""

from __future__ import annotations

import json
import threading
import uuid
from pathlib import Path
from typing import Any

import pytest

from ray_canal.demo import binlog_files
from ray_canal.sinks.broker_link import LinkError, Publish
from ray_canal.sinks.port import SinkError
from ray_canal.sinks.stream_link import StreamLink, StreamLogin
from tests.in_process_sink import runner_of, sink_config, until
from tests.integration.test_rabbitmq import CUTS, expected, without_repeats
from tests.proxy import Proxy
from tests.servers.rabbitmq import RabbitServer
from tests.sink_runs import killed


def streaming(server: RabbitServer, stream: str, *, address: str = "", **more: Any) -> Any:
    settings = {
        "address": server.address, "timeout_s": 30, "stream": stream,
        "stream_address": address or f"127.0.0.1:{server.stream_port}",
        **more.pop("rabbitmq", {}),
    }  # fmt: skip
    return sink_config("rabbitmq", name="r", rabbitmq=settings, batch_size=64, **more)


def read(server: RabbitServer, stream: str) -> list[tuple[str, Any]]:
    """(message id, message without what differs from run to run), from the stream's begin."""
    found: list[tuple[str, Any]] = []
    connection = server.connect()
    channel = connection.channel()
    channel.basic_qos(prefetch_count=500)
    first = {"x-stream-offset": "first"}
    for method, properties, body in channel.consume(stream, arguments=first, inactivity_timeout=1):
        if method is None:
            break
        message = json.loads(body)
        del message["id"], message["ts"]
        found.append((properties.message_id, message))
        channel.basic_ack(method.delivery_tag)
    connection.close()
    return found


def name() -> str:
    return f"s{uuid.uuid4().hex}"


def test_each_message_is_there_in_order_also_by_partition(
    rabbitmq_server: RabbitServer, demo_log: None
) -> None:
    stream = name()
    runner_of(streaming(rabbitmq_server, stream)).run(threading.Event())
    found = read(rabbitmq_server, stream)
    assert [message for _, message in found] == expected()
    assert len({each for each, _ in found}) == len(found)
    routing = {"topic": stream, "partitions": 3, "partition_hash": r".*\..*:$pk$"}
    by_partition = streaming(rabbitmq_server, "{topic}-{partition}", routing=routing, client_id=8)
    runner_of(by_partition).run(threading.Event())
    rows = 0
    for partition in range(3):
        part = [message for _, message in read(rabbitmq_server, f"{stream}-{partition}")]
        assert part
        rows += sum(len(message["data"] or ()) for message in part)
    assert rows == sum(len(message["data"] or ()) for message in expected())


def test_cut_connections_cost_few_repeats(rabbitmq_server: RabbitServer, demo_log: None) -> None:
    stream = name()
    with Proxy(("127.0.0.1", rabbitmq_server.stream_port)) as proxy:
        runner = runner_of(
            streaming(rabbitmq_server, stream, address=proxy.address, retry_max_s=0.3)
        )
        proxy.cut_behind(*CUTS)
        thread = threading.Thread(target=runner.run, args=[threading.Event()])
        thread.start()
        thread.join(60)
        assert not thread.is_alive()
    found = read(rabbitmq_server, stream)
    assert without_repeats(found) == expected()
    assert runner.status.retries == len(CUTS)
    assert len(found) < 2 * len(expected())


def test_a_killed_sink_loses_nothing(rabbitmq_server: RabbitServer, tmp_path: Path) -> None:
    stream = name()
    steps = ["write:2:after", "commit:2:before"]
    config = streaming(rabbitmq_server, stream).model_copy(update={"batch_size": 256})
    ends = killed(tmp_path, config, {"files": [str(binlog_files()[0])]}, steps)
    assert ends == ["-9"] * len(steps) + ["0"]
    found = read(rabbitmq_server, stream)
    assert without_repeats(found) == expected()
    assert len(found) > len(expected())


def test_what_a_person_has_to_put_right_ends_the_sink(
    rabbitmq_server: RabbitServer, demo_log: None
) -> None:
    for wrong, told in (
        ({"password": "wrong"}, "login"),
        ({"virtual_host": "none"}, "virtual host"),
    ):
        config = streaming(rabbitmq_server, name(), rabbitmq=wrong)
        with pytest.raises(SinkError, match=told) as caught:
            runner_of(config).run(threading.Event())
        assert caught.value.kind == "fatal"


def test_messages_go_over_tls(rabbitmq_server: RabbitServer, demo_log: None) -> None:
    stream, address = name(), f"127.0.0.1:{rabbitmq_server.stream_tls_port}"
    tls = {"mode": "verify_identity", "ca": str(rabbitmq_server.folder / "cert.pem")}
    config = streaming(rabbitmq_server, stream, address=address, rabbitmq={"tls": tls})
    runner_of(config).run(threading.Event())
    assert [message for _, message in read(rabbitmq_server, stream)] == expected()


def test_long_and_many_messages(rabbitmq_server: RabbitServer) -> None:
    """One that fills a frame goes, a longer one is refused alone; a removed stream is noticed."""
    stream = name()
    login = StreamLogin("127.0.0.1", rabbitmq_server.stream_port, "/", "guest", "guest", None)
    link = StreamLink(login, 30)
    longest = (1 << 20) - 100
    link.publish("", [Publish(stream, "a", json.dumps({"id": 1, "ts": 1, "n": 1}).encode())])
    link.publish("", [Publish(stream, "b", b"x" * longest), Publish(stream, "c", b"y" * longest)])
    with pytest.raises(LinkError, match="size"):
        link.publish("", [Publish(stream, "d", b"x" * (1 << 20))])
    many = [Publish(stream, str(number), b"z" * 600) for number in range(5000)]
    link.publish("", many)
    link.wait_confirmed()
    assert link.sent == 5003
    assert link.unconfirmed() == []
    connection = rabbitmq_server.connect()
    connection.channel().queue_delete(stream)
    connection.close()
    until(lambda: is_refused(link, many[:10]))
    link.close()


def is_refused(link: StreamLink, messages: list[Publish]) -> bool:
    try:
        link.publish("", messages)
        link.wait_confirmed()
    except LinkError:
        return True
    return False
