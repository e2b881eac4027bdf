"""Streams of a real RabbitMQ, written by their own protocol and read by AMQP: each message once and
in log order, whatever is cut or killed."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pika import BasicProperties
from pika.exceptions import ConnectionClosedByBroker

from ray_canal.demo import binlog_files
from ray_canal.sinks.open import make_sink
from ray_canal.sinks.port import Cursor, SinkError
from ray_canal.sinks.queues.broker_link import LinkError
from ray_canal.sinks.queues.rabbitmq_streams import StreamSink
from ray_canal.sinks.queues.stream_link import Publisher, StreamLink, StreamLogin, StreamMessages
from tests.in_process_sink import runner_of, running, sink_config, until
from tests.integration.test_rabbitmq import CUTS, expected
from tests.proxy import Proxy
from tests.servers.rabbitmq import RabbitServer
from tests.sink_runs import killed, random_steps


def streaming(server: RabbitServer, stream: str, *, address: str = "", **more: Any) -> Any:
    settings = {
        "address": server.address, "timeout_s": 30, "stream": stream,
        "stream_address": address or f"127.0.0.1:{server.stream_port}",
        **more.pop("rabbitmq", {}),
    }  # fmt: skip
    return sink_config("rabbitmq", name="r", rabbitmq=settings, batch_size=64, **more)


def read(server: RabbitServer, stream: str) -> list[tuple[str, Any]]:
    """(message id, message without what differs from run to run), from the stream's begin."""
    found = []
    for each, body in read_bytes(server, stream):
        message = json.loads(body)
        del message["id"], message["ts"]
        found.append((each, message))
    return found


END = "end-"


def read_bytes(server: RabbitServer, stream: str) -> list[tuple[str, bytes]]:
    """All that the stream has, up to a message that is put behind it for that."""
    found: list[tuple[str, bytes]] = []
    connection = server.connect()
    channel = connection.channel()
    channel.confirm_delivery()
    end = f"{END}{uuid.uuid4().hex}"
    channel.basic_publish("", stream, b"", BasicProperties(message_id=end), mandatory=True)
    channel.basic_qos(prefetch_count=500)
    first = {"x-stream-offset": "first"}
    for method, properties, body in channel.consume(stream, arguments=first, inactivity_timeout=60):
        assert method is not None, "the end is not to be seen"
        if properties.message_id == end:
            break
        if not properties.message_id.startswith(END):
            found.append((properties.message_id, body))
        channel.basic_ack(method.delivery_tag)
    # pika gives back what has come after the end, which a stream's broker answers by closing, too.
    with contextlib.suppress(ConnectionClosedByBroker):
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


def once(server: RabbitServer, stream: str) -> list[Any]:
    """The messages of a stream, of which none is there twice."""
    found = read(server, stream)
    assert len({each for each, _ in found}) == len(found)
    return [message for _, message in found]


def run_killed(folder: Path, config: Any, steps: list[str]) -> None:
    ends = killed(folder, config, {"files": [str(binlog_files()[0])]}, steps)
    assert ends == ["-9"] * len(steps) + ["0"]


def run_failing(config: Any, commits: int) -> None:
    """Run a sink that ends in this commit, before it."""
    sink, numbers = make_sink(config), itertools.count(1)
    commit = sink.commit

    def failing(upto: Cursor) -> None:
        if next(numbers) == commits:
            raise SinkError("the end")
        commit(upto)

    sink.commit = failing  # type: ignore[method-assign]
    with pytest.raises(SinkError, match="the end"):
        runner_of(config, sink).run(threading.Event())


def test_cut_connections_repeat_nothing(rabbitmq_server: RabbitServer, demo_log: None) -> None:
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
    assert once(rabbitmq_server, stream) == expected()
    assert runner.status.retries == len(CUTS)


def test_a_broker_in_alarm_is_waited_for(rabbitmq_server: RabbitServer, demo_log: None) -> None:
    """It refuses publishers by a code that has another meaning elsewhere."""
    stream = name()
    runner = runner_of(streaming(rabbitmq_server, stream, retry_max_s=0.3))
    with rabbitmq_server.alarm():
        thread = threading.Thread(target=runner.run, args=[threading.Event()])
        thread.start()
        until(lambda: runner.status.retries > 2 or not thread.is_alive())
        assert "takes no messages, by an alarm" in runner.status.error
    thread.join(60)
    assert not thread.is_alive()
    assert once(rabbitmq_server, stream) == expected()


@pytest.mark.soak
def test_a_broker_that_reads_no_more_is_waited_for(
    rabbitmq_server: RabbitServer, demo_log: None
) -> None:
    """Streams are not told of an alarm that begins later."""
    stream = name()
    config = streaming(rabbitmq_server, stream, commit_interval_s=0.2)
    with running(runner := runner_of(config.model_copy(update={"batch_size": 4}))):
        until(lambda: runner.status.commits > 6)
        with rabbitmq_server.alarm():
            until(lambda: "not confirmed yet" in runner.status.error)
        until(lambda: runner.status.state == "stopped")
    assert once(rabbitmq_server, stream) == expected()


def test_a_killed_sink_loses_and_repeats_nothing(
    rabbitmq_server: RabbitServer, tmp_path: Path
) -> None:
    stream = name()
    steps = ["write:2:after", "commit:1:before", "commit:1:after", "commit:2:after"]
    run_killed(tmp_path, streaming(rabbitmq_server, stream), steps)
    assert once(rabbitmq_server, stream) == expected()


@pytest.mark.soak
def test_killed_at_random_steps(rabbitmq_server: RabbitServer, tmp_path: Path) -> None:
    stream = name()
    config = streaming(rabbitmq_server, stream).model_copy(update={"batch_size": 1})
    run_killed(tmp_path, config, random_steps("write", "commit"))
    assert once(rabbitmq_server, stream) == expected()


@pytest.mark.soak
def test_a_killed_broker_has_each_message_once(
    rabbitmq_server: RabbitServer, demo_log: None
) -> None:
    stream = name()
    config = streaming(rabbitmq_server, stream, retry_max_s=1.0)
    runner = runner_of(config.model_copy(update={"batch_size": 4}))
    thread = threading.Thread(target=runner.run, args=[threading.Event()])
    thread.start()
    for commits in (1, 20, 40):
        until(lambda least=commits: runner.status.commits > least)  # type: ignore[misc]
        rabbitmq_server.kill()
        rabbitmq_server.start()
    thread.join(120)
    assert not thread.is_alive()
    assert once(rabbitmq_server, stream) == expected()


def test_batches_that_are_cut_in_another_way_repeat_nothing(
    rabbitmq_server: RabbitServer, demo_log: None
) -> None:
    """Each of these subscribers begins at the log's begin."""
    stream = name()
    config = streaming(rabbitmq_server, stream)
    for client_id, batch_size in ((10, 64), (11, 100)):
        run_failing(config.model_copy(update={"client_id": client_id, "batch_size": batch_size}), 2)
        assert 0 < len(read(rabbitmq_server, stream)) < len(expected())
    runner_of(config.model_copy(update={"batch_size": 7})).run(threading.Event())
    assert once(rabbitmq_server, stream) == expected()


def test_each_of_several_streams_has_its_messages_once(
    rabbitmq_server: RabbitServer, demo_log: None
) -> None:
    """Also where an entry has several messages, as change events are."""
    for client_id, form in ((10, "flat"), (20, "debezium")):
        stream = name()
        routing: dict[str, Any] = {"topic": stream}
        if form == "flat":
            routing |= {"partitions": 3, "partition_hash": r".*\..*:$pk$"}
        pattern = "{topic}-{partition}" if form == "flat" else stream
        whole = streaming(
            rabbitmq_server, pattern, routing=routing, message={"format": form},
            client_id=client_id,
        )  # fmt: skip
        run_failing(whole, 3)
        runner_of(whole.model_copy(update={"client_id": client_id + 1, "batch_size": 9})).run(
            threading.Event()
        )
        if form == "flat":
            found = [once(rabbitmq_server, f"{stream}-{partition}") for partition in range(3)]
            rows = sum(len(message["data"] or ()) for part in found for message in part)
            assert rows == sum(len(message["data"] or ()) for message in expected())
        else:
            ids = [each for each, _ in read_bytes(rabbitmq_server, stream)]
            assert len(set(ids)) == len(ids) >= len(expected())


def test_another_routing_or_a_rewind_gives_messages_again(
    rabbitmq_server: RabbitServer, demo_log: None
) -> None:
    """What was not acknowledged goes where the new routing sends it, rather than be taken for what
    the stream has. Each of these subscribers begins at the log's begin."""
    stream = name()
    config = streaming(rabbitmq_server, stream)
    runner_of(config).run(threading.Event())
    sink = make_sink(config)
    assert isinstance(sink, StreamSink)
    sink.write_again()
    run_failing(config.model_copy(update={"client_id": 10}), 2)
    runner_of(config.model_copy(update={"client_id": 11})).run(threading.Event())
    found = [message for _, message in read(rabbitmq_server, stream)]
    assert found == 2 * expected()
    routed = streaming(rabbitmq_server, stream, routing={"topic": "other"}, client_id=12)
    runner_of(routed).run(threading.Event())
    found = [message for _, message in read(rabbitmq_server, stream)]
    assert found == 3 * expected()


def test_messages_of_several_entries_come_at_least_once(
    rabbitmq_server: RabbitServer, demo_log: None
) -> None:
    stream = name()
    config = streaming(rabbitmq_server, stream, message={"format": "protobuf"})
    assert make_sink(config).guarantee == "at_least_once"
    run_failing(config.model_copy(update={"client_id": 10}), 2)
    runner_of(config).run(threading.Event())
    found = [each for each, _ in read_bytes(rabbitmq_server, stream)]
    assert len(found) > len(set(found)) > 0


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
    queue = name()
    with rabbitmq_server.connect() as connection:
        connection.channel().queue_declare(queue)
    with pytest.raises(SinkError, match=f"{queue} is a queue, or a stream with other arguments"):
        runner_of(streaming(rabbitmq_server, queue)).run(threading.Event())


def test_messages_go_over_tls(rabbitmq_server: RabbitServer, demo_log: None) -> None:
    stream, address = name(), f"127.0.0.1:{rabbitmq_server.stream_tls_port}"
    tls = {"mode": "verify_identity", "ca": str(rabbitmq_server.folder / "cert.pem")}
    config = streaming(rabbitmq_server, stream, address=address, rabbitmq={"tls": tls})
    runner_of(config).run(threading.Event())
    assert [message for _, message in read(rabbitmq_server, stream)] == expected()


def test_long_and_many_messages(rabbitmq_server: RabbitServer) -> None:
    """One that fills a frame goes, a longer one is refused alone; what the stream has is dropped; a
    removed stream is noticed."""
    stream = name()
    login = StreamLogin("127.0.0.1", rabbitmq_server.stream_port, "/", "guest", "guest", None)
    link = StreamLink(login, 30)
    publisher = link.publisher(stream, "one")
    assert publisher.last_id == 0
    longest = (1 << 20) - 100
    link.publish(publisher, messages(1, json.dumps({"id": 1, "ts": 1, "n": 1}).encode()))
    link.publish(publisher, messages(2, b"x" * longest, b"y" * longest))
    with pytest.raises(LinkError, match="size"):
        link.publish(publisher, messages(4, b"x" * (1 << 20)))
    many = messages(4, *[b"z" * 600] * 5000)
    link.publish(publisher, many)
    link.publish(publisher, messages(2, *[b"again"] * 100))
    link.wait_confirmed()
    assert link.sent == 5103
    assert link.last_id(stream, "one") == 5003
    assert link.last_id(stream, "two") == link.last_id(name(), "one") == 0
    assert [each for each, _ in read_bytes(rabbitmq_server, stream)] == [*map(str, range(1, 5004))]
    connection = rabbitmq_server.connect()
    connection.channel().queue_delete(stream)
    connection.close()
    until(lambda: is_refused(link, publisher, messages(5004, *[b"z"] * 10)))
    link.close()


def test_more_publishers_than_a_connection_has(rabbitmq_server: RabbitServer) -> None:
    stream = name()
    login = StreamLogin("127.0.0.1", rabbitmq_server.stream_port, "/", "guest", "guest", None)
    link = StreamLink(login, 30)
    for number in range(300):
        link.publish(link.publisher(stream, f"{number}"), messages(7, b"x"))
    link.wait_confirmed()
    assert [link.last_id(stream, f"{number}") for number in (0, 299)] == [7, 7]
    link.close()


def messages(first: int, *bodies: bytes) -> StreamMessages:
    ids = np.arange(first, first + len(bodies), dtype=np.uint64)
    names = pa.array([str(number) for number in ids.tolist()])
    return StreamMessages(ids, names, pa.array(bodies, pa.large_binary()))


def is_refused(link: StreamLink, publisher: Publisher, given: StreamMessages) -> bool:
    try:
        link.publish(publisher, given)
        link.wait_confirmed()
    except LinkError:
        return True
    return False
