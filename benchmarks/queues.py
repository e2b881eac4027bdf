"""`python -m benchmarks.queues`: handing FlatMessages to Kafka and RabbitMQ, each way in one run.

Kafka is librdkafka's mock cluster in a process of its own, which has no disk: it tells what the
client costs. RabbitMQ is a real one (Debian's 3.10), beside the plain way: pika's blocking channel,
whose publish waits for each confirm. Ratios of one interleaved run count, not rates.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pika
import pyarrow as pa
import typer

from benchmarks import workloads as work
from benchmarks.command import console, machine
from ray_canal.offline import decode_chunks
from ray_canal.sinks.queues.amqp_link import AmqpLink, parameters
from ray_canal.sinks.queues.broker_link import Publish
from ray_canal.sinks.queues.kafka_producer import KafkaProducer, make_producer
from ray_canal.sinks.queues.stream_link import StreamLink, StreamLogin, StreamMessages
from ray_canal.views.flat import FlatOptions, flat_messages
from ray_canal.views.routed import FlatMessages, by_place
from ray_canal.views.routing import Routing
from ray_canal.views.texts import of_parts
from tests.servers.rabbitmq import RabbitServer, start_rabbitmq

GOALS = {"kafka batch": 1.5, "rabbitmq": 15.0, "rabbitmq stream": 100.0}
"""How many times the plain way's rate is to be reached."""
_PARTITIONS = 4
_ROUTING = Routing(partitions=_PARTITIONS, partition_hash=r".*\..*:$pk$")
_SETTINGS = {"enable.idempotence": "true", "linger.ms": "5", "batch.size": "1000000",
             "compression.type": "lz4"}  # fmt: skip
_MOCK = (
    "import sys;from confluent_kafka import Producer;"
    "p=Producer({'test.mock.num.brokers':'1','bootstrap.servers':'x'});"
    "print(*(f'{b.host}:{b.port}' for b in p.list_topics(timeout=30).brokers.values()),flush=True);"
    "sys.stdin.read()"
)
_SLICE = 10_000
_RUN = 2000
"""Messages that are put together at once."""


def messages(count: int) -> FlatMessages:
    """Messages of one row each, as many as a chunk has, up to `count`."""
    made = work.make(work.WORKLOADS["W2"], 0.02, lambda text: None)
    chunk = max((c for _, c in decode_chunks(list(made.files))), key=lambda c: c.arena.size)
    return flat_messages(
        chunk, 0, min(chunk.layout.event_count, count), None, FlatOptions(routing=_ROUTING)
    )


def to_kafka(producer: KafkaProducer, found: FlatMessages, count: int) -> float:
    """Messages a second until all are delivered."""
    bounds = np.stack([found.offsets[:-1], found.offsets[1:]], axis=1)
    groups = [(partition, bounds[group]) for _, partition, group in by_place(found)]
    began, sent = time.perf_counter(), 0
    while sent < count:
        for partition, mine in groups:
            for at in range(0, len(mine), _SLICE):
                producer.send("rows", partition, found.buffer, mine[at : at + _SLICE])
        sent += len(found)
    assert producer.flush(120) == 0
    assert producer.take_failure() is None
    return sent / (time.perf_counter() - began)


@contextlib.contextmanager
def mock_cluster() -> Iterator[str]:
    """librdkafka's mock cluster of one broker, in a process of its own; its address."""
    command = [sys.executable, "-c", _MOCK]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as mock:
        assert mock.stdout is not None
        yield mock.stdout.readline().strip()
        mock.communicate()


def kafka(found: FlatMessages, count: int, runs: int) -> dict[str, float]:
    """Medians of each way, interleaved."""
    with mock_cluster() as address:
        settings = {**_SETTINGS, "bootstrap.servers": address}
        rates: dict[str, list[float]] = {"message": [], "batch": []}
        for _ in range(runs):
            for sender in ("message", "batch"):
                producer = make_producer(settings, sender)
                producer.partition_count("rows", 30)
                to_kafka(producer, found, len(found))  # warm
                rates[sender].append(to_kafka(producer, found, count))
                producer.close()
    return {f"kafka {sender}": statistics.median(found) for sender, found in rates.items()}


def confirmed(server: RabbitServer, queue: str, found: FlatMessages, count: int) -> float:
    """Our way: frames of `_RUN` messages, confirms as they come."""
    link = AmqpLink(
        parameters("127.0.0.1", server.port, "/", "guest", "guest", context=None, timeout_s=120),
        120,
    )
    began, sent = time.perf_counter(), 0
    while sent < count:
        for at in range(0, len(found), _RUN):
            numbers = range(at, min(at + _RUN, len(found)))
            link.publish("", [Publish(queue, "1", found[n]) for n in numbers])
        sent += len(found)
    link.wait_confirmed()
    rate = sent / (time.perf_counter() - began)
    link.close()
    return rate


def streamed(server: RabbitServer, stream: str, found: FlatMessages, count: int) -> float:
    """The same to a stream, by the stream protocol and with publishing ids."""
    login = StreamLogin("127.0.0.1", server.stream_port, "/", "guest", "guest", None)
    link, sent = StreamLink(login, 120), 0
    publisher = link.publisher(stream, uuid.uuid4().hex)
    bodies, began = of_parts(found.buffer, found.offsets), time.perf_counter()
    while sent < count:
        for at in range(0, len(found), _RUN):
            numbers = range(at, min(at + _RUN, len(found)))
            names = pa.array([f"1:mysql-bin.000001:{n}:0:0:0" for n in numbers])
            ids = np.arange(sent + at + 1, sent + at + len(numbers) + 1, dtype=np.uint64)
            run = bodies.slice(at, len(numbers))
            link.publish(publisher, StreamMessages(ids, names, run))
        sent += len(found)
    link.wait_confirmed()
    rate = sent / (time.perf_counter() - began)
    link.close()
    return rate


def blocking(server: RabbitServer, queue: str, found: FlatMessages, seconds: float) -> float:
    """pika's blocking channel with confirms."""
    connection = server.connect()
    channel = connection.channel()
    channel.confirm_delivery()
    properties: Any = pika.BasicProperties(delivery_mode=2)
    began, sent = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        body = bytes(found[sent % len(found)])
        channel.basic_publish("", queue, body, properties, mandatory=True)
        sent += 1
    rate = sent / (time.perf_counter() - began)
    connection.close()
    return rate


def rabbitmq(found: FlatMessages, count: int, runs: int) -> dict[str, float]:
    """Medians of each way, interleaved, each to a durable classic queue or to a stream."""
    rates: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder, start_rabbitmq(Path(folder)) as server:
        connection = server.connect()
        channel = connection.channel()
        channel.queue_declare("rows", durable=True)
        ways: dict[str, Callable[[], float]] = {
            "pika blocking": lambda: blocking(server, "rows", found, 2.0),
            "rabbitmq": lambda: confirmed(server, "rows", found, count),
            "rabbitmq stream": lambda: streamed(server, "stream", found, 5 * count),
        }
        for _ in range(runs):
            for name, way in ways.items():
                rates[name].append(way())
                channel.queue_purge("rows")
        connection.close()
    return {name: statistics.median(each) for name, each in rates.items()}


def main(
    count: Annotated[int, typer.Option(min=1000, help="Messages to Kafka in a run.")] = 400_000,
    rabbit_count: Annotated[int, typer.Option(min=1000, help="Messages to RabbitMQ.")] = 40_000,
    runs: Annotated[int, typer.Option(min=1, help="Runs of each; the median counts.")] = 3,
    out: Annotated[Path | None, typer.Option(help="Write the figures here, as JSON.")] = None,
) -> None:
    """Measure, and print the rates and their ratios."""
    found = messages(20_000)
    figures = {**kafka(found, count, runs), **rabbitmq(found, rabbit_count, runs)}
    plain = {"kafka batch": "kafka message", "rabbitmq": "pika blocking",
             "rabbitmq stream": "pika blocking"}  # fmt: skip
    for name, rate in figures.items():
        console.print(f"{name}: {rate:,.0f} messages/s")
    for name, other in plain.items():
        ratio = figures[name] / figures[other]
        console.print(f"{name}: {ratio:.1f} x {other} (goal {GOALS[name]:g} x)")
    if out is not None:
        size = int(found.buffer.size / len(found))
        told = {"machine": machine(), "message_bytes": size, "queues": figures}
        out.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
