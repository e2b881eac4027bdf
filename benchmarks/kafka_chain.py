"""`python -m benchmarks.kafka_chain`: from binlog files to Kafka, as a sink does it.

A destination reads, decodes and keeps the log, a runner takes batches, FlatMessages are made, and
librdkafka hands them over: idempotent, and in transactions with the sink's place. Kafka is
librdkafka's mock cluster in a process of its own, without disk or replicas: the figures are of our
side, not of a broker. From the first write to the last commit; CPU without the mock's.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import threading
import time
import uuid
from pathlib import Path
from typing import Annotated

import typer
from confluent_kafka import Producer

from benchmarks import workloads as work
from benchmarks.command import console, machine
from benchmarks.queues import mock_cluster
from ray_canal.config import InstanceConfig
from ray_canal.malloc import keep_freed_memory
from ray_canal.sinks.port import Changes
from ray_canal.sinks.queues.kafka import KafkaSink
from tests.in_process_sink import destination, runner_of, sink_config

GOALS = {"idempotent": 400_000, "transactions": 300_000}
"""Rows a second, each in a message of its own (W2)."""


class _Timed(KafkaSink):
    """Notes when it was first written to."""

    began = cpu_began = 0.0

    def write(self, changes: Changes) -> None:
        if not self.began:
            self.began, self.cpu_began = time.perf_counter(), time.process_time()
        super().write(changes)


def chain(files: tuple[str, ...], address: str, way: str) -> tuple[float, float, int]:
    """Return rows a second, CPU seconds a million rows, and how many commits there were."""
    config = sink_config(
        "kafka", name=f"k{uuid.uuid4().hex}",
        kafka={"properties": {"bootstrap.servers": address}, "transactional": way != "idempotent"},
        routing={"topic": "rows", "partitions": 4, "partition_hash": r".*\..*:$pk$"},
    )  # fmt: skip
    sink, source = _Timed(config), {"files": list(files)}
    tree = {"destination": "x", "source": source, "tsdb": {}}
    chunk_bytes = InstanceConfig.model_validate(tree).chunk_bytes  # tests have tiny ones
    with (
        tempfile.TemporaryDirectory() as folder,
        destination(Path(folder), source=source, tsdb={}, chunk_bytes=chunk_bytes),
    ):
        runner = runner_of(config, sink)
        runner.run(threading.Event())
        seconds, cpu = time.perf_counter() - sink.began, time.process_time() - sink.cpu_began
    status = runner.status
    return status.rows / seconds, cpu / status.rows * 1e6, status.commits


def _make_topics(address: str) -> None:
    """The mock makes them for messages alone."""
    producer = Producer({"bootstrap.servers": address})
    for topic in ("canal.cursors", "rows"):
        producer.produce(topic, b"", b"none")
    producer.flush(30)


def main(
    workload: Annotated[str, typer.Option(help="W2: a row a message; W1: a thousand.")] = "W2",
    scale: Annotated[float, typer.Option(min=0.0001, help="Part of the full rows.")] = 1.0,
    runs: Annotated[int, typer.Option(min=1, help="Runs of each; the median counts.")] = 3,
    out: Annotated[Path | None, typer.Option(help="Write the figures here, as JSON.")] = None,
) -> None:
    """Measure both ways in turn, and print rows a second."""
    keep_freed_memory()  # as processes of sinks do
    made = work.make(work.WORKLOADS[workload], scale, console.print)
    found: dict[str, list[tuple[float, float, int]]] = {way: [] for way in GOALS}
    with mock_cluster() as address:
        _make_topics(address)
        few = work.make(work.WORKLOADS[workload], 0.02, console.print)
        chain(few.files, address, "idempotent")  # loads kernels
        for _ in range(runs):
            for way, each in found.items():
                each.append(chain(made.files, address, way))
    figures = {}
    for way, each in found.items():
        rate, cpu = (statistics.median(run[k] for run in each) for k in (0, 1))
        figures[way] = {"rows_per_s": round(rate), "cpu_s_per_m": round(cpu, 2)}
        console.print(
            f"{workload} {way}: {rate:,.0f} rows/s (goal {GOALS[way]:,}), {cpu:.2f} CPU s a million"
            f" rows, {each[0][2]} commits"
        )
    if out is not None:
        told = {"machine": machine(), "workload": workload, "rows": made.rows, "figures": figures}
        out.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
