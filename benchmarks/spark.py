"""`python -m benchmarks.spark`: W1 from a binlog file into Spark and Ray Data, in turns.

All ways of one run are measured in turns, in one session of one executor, after a warm-up pass of
each, so that their ratios are of the same minutes. Every way decodes the file again; the clock
starts when the destination runs.

    arrow          the Arrow client alone
    flight         the same client over Arrow Flight on loopback
    rows           Spark as it was: RayDP makes rows of one batch after the other
    run            spark.run, batches written ahead and read in place
    stream         spark.readStream
    read           spark.read of the file
    parquet        ParquetSink, whose files Spark or Ray tasks write
    one thread     canal.decode_files
    ray data       canal.read_binlogs, the file COPIES times over, so that its start weighs less
    start of data  the same of the demo's files, in seconds: what a Dataset costs before its rows

of `run`, `rows` and `stream`: `count` (no column) and `all` (every column of every row, Spark's
noop sink).
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any
from unittest import mock

import ray
import typer

import ray_canal as canal
from benchmarks import workloads as work
from benchmarks.command import console, machine
from ray_canal import spark as canal_spark
from ray_canal.demo import binlog_files
from ray_canal.spark import parquet
from ray_canal.spark.frames import to_frames
from ray_canal.spark.parquet import ParquetSink
from ray_canal.spark.parquet_tasks import task_folder

TABLE = "bench.item"
Way = Callable[[], int]


@contextmanager
def destination(files: list[str], **more: Any) -> Iterator[str]:
    """A destination that reads the files from their beginning."""
    name = f"bench_{uuid.uuid4().hex[:6]}"
    instance = {
        "destination": name,
        "source": {"files": files},
        "store": {"buffer_size": 262_144},
    }
    canal.start({"meta": {"backend": "memory"}, "instance": [instance], **more})
    try:
        yield name
    finally:
        canal.stop(name)


class Ways:
    """The ways that are measured; each returns how many rows it has seen."""

    def __init__(
        self, session: Any, files: list[str], rows: int, batch_size: int, copies: int
    ) -> None:
        self.session = session
        self.files = files
        self.rows = rows
        self.batch_size = batch_size
        self.copies = copies
        self.began = self.ended = 0.0

    @contextmanager
    def connected(self) -> Iterator[Any]:
        """A subscriber of a destination that has begun; the clock starts."""
        with destination(self.files) as name, canal.connect(name) as connector:
            self.began = time.perf_counter()
            connector.subscribe()
            yield connector
            self.ended = time.perf_counter()

    def arrow(self) -> int:
        seen = 0
        with self.connected() as connector:
            for message in connector.messages(self.batch_size):
                seen += sum(batch.num_rows for batch in message.batches)
        return seen

    def flight(self) -> int:
        seen = 0
        with destination(self.files) as name:
            instance = {"destination": name, "source": {"files": self.files}}
            address = canal.serve_flight({"instance": [instance], "flight": {"port": 0}})
            with canal.connect(name, address=f"grpc://{address}") as connector:
                self.began = time.perf_counter()
                connector.subscribe()
                for message in connector.messages(self.batch_size):
                    seen += sum(batch.num_rows for batch in message.batches)
                self.ended = time.perf_counter()
        return seen

    def parquet(self, by_tasks: bool) -> int:
        """Written by Ray tasks, or by Spark."""
        with tempfile.TemporaryDirectory() as folder, self.connected() as connector:
            sink = ParquetSink(self.session, folder if by_tasks else f"file://{folder}")
            with mock.patch.object(parquet, "task_folder", task_folder if by_tasks else _nowhere):
                canal_spark.run(connector, self.session, sink, batch_size=self.batch_size)
            return sum(sink.counts.values())

    def rows_one_by_one(self, work_on: Callable[[Any], int]) -> int:
        seen = 0
        with self.connected() as connector:
            while True:
                message = connector.get_without_ack(24576, 1.0)
                if message:
                    with to_frames(self.session, message.batches, way="rows") as made:
                        seen += sum(work_on(frame) for frame in made.by_table.values())
                    connector.ack(message.id)
                elif message.finished:
                    break
        return seen

    def run(self, work_on: Callable[[Any], int]) -> int:
        seen = 0

        def function(frames: dict[str, Any], _message: Any) -> None:
            nonlocal seen
            seen += sum(work_on(frame) for frame in frames.values())

        with self.connected() as connector:
            canal_spark.run(connector, self.session, function, batch_size=self.batch_size)
        return seen

    def stream(self, work_on: Callable[[Any], int]) -> int:
        seen = 0

        def function(frame: Any, _number: int) -> None:
            nonlocal seen
            seen += work_on(frame)

        with destination(self.files) as name, tempfile.TemporaryDirectory() as checkpoint:
            self.began = time.perf_counter()
            reader = self.session.readStream.format("ray_canal").option("destination", name)
            reader = reader.option("table", TABLE).option("client_id", 7)
            # Micro-batches as large as the batches of `run`: twice as much Arrow as binlog.
            reader = reader.option("maxBytesPerTrigger", f"{2 * self.batch_size}k")
            reader = reader.option("batch_size", self.batch_size // 4)
            query = (
                reader.load()
                .writeStream.foreachBatch(function)
                .option("checkpointLocation", checkpoint)
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            self.ended = time.perf_counter()
        return seen

    def timed(self, way: Way) -> tuple[int, float]:
        """The rows that a way has seen, and how many seconds it took."""
        self.began, self.ended = time.perf_counter(), 0.0
        seen = way()
        return seen, (self.ended or time.perf_counter()) - self.began

    def read(self) -> int:
        reader = self.session.read.format("ray_canal").option("table", TABLE)
        return all_columns(reader.load(self.files)) or self.rows

    def one_thread(self) -> int:
        return sum(batch.num_rows for batch in canal.decode_files(self.files))

    def ray_data(self) -> int:
        with tempfile.TemporaryDirectory() as folder:
            files: list[Path] = []
            for file in self.copies * self.files:
                files.append(Path(folder, f"mysql-bin.{len(files) + 1:06}"))
                files[-1].symlink_to(file)
            return counted_by_ray(files) // self.copies

    def start_of_data(self) -> int:
        counted_by_ray(binlog_files())
        return 0


def counted_by_ray(files: Sequence[Path]) -> int:
    found = canal.read_binlogs(files).map_batches(
        lambda batch: {"n": [batch.num_rows]}, batch_format="pyarrow", batch_size=None
    )
    # Not `sum`: an aggregate keeps half of a small cluster's CPUs for itself.
    return sum(int(row["n"]) for row in found.iter_rows())


def _nowhere(_path: str) -> None:
    """Say that Ray tasks cannot write there, so that Spark does."""


def count(frame: Any) -> int:
    return int(frame.count())


def all_columns(frame: Any) -> int:
    """Make every column of every row; says nothing of how many there were."""
    frame.write.format("noop").mode("overwrite").save()
    return 0


def ways_of(made: Ways) -> dict[str, Way]:
    return {
        "one thread": made.one_thread,
        "ray data": made.ray_data,
        "start of data": made.start_of_data,
        "arrow": made.arrow,
        "flight": made.flight,
        "rows, count": lambda: made.rows_one_by_one(count),
        "run, count": lambda: made.run(count),
        "stream, count": lambda: made.stream(count),
        "rows, all": lambda: made.rows_one_by_one(all_columns),
        "run, all": lambda: made.run(all_columns),
        "stream, all": lambda: made.stream(all_columns),
        "read, all": made.read,
        "parquet by Spark": lambda: made.parquet(False),
        "parquet by tasks": lambda: made.parquet(True),
    }


def main(
    scale: Annotated[float, typer.Option(min=0.001, help="Part of W1's 8 million rows.")] = 0.25,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds over all ways; medians count.")] = 3,
    only: Annotated[list[str] | None, typer.Option(help="Ways that begin so; repeat it.")] = None,
    batch_size: Annotated[int, typer.Option(help="Memory units of a batch of `run`.")] = 98_304,
    cores: Annotated[int, typer.Option(min=1, help="Cores of the executor.")] = 1,
    copies: Annotated[int, typer.Option(min=1, help="Of the file, for Ray Data.")] = 8,
    out: Annotated[Path | None, typer.Option(help="Write the figures here, as JSON.")] = None,
) -> None:
    """Measure, and print the rates."""
    found = work.make(work.WORKLOADS["W1"], scale, lambda text: None)
    canal_spark.provide_java()
    ray.init(num_cpus=4, include_dashboard=False, object_store_memory=3 << 30)
    session = canal_spark.session("ray_canal_bench", executor_cores=cores, executor_memory="2G")
    made = Ways(session, list(found.files), found.rows, batch_size, copies)
    ways = ways_of(made)
    chosen = {k: way for k, way in ways.items() if not only or k.startswith(tuple(only))}
    rates: dict[str, list[float]] = {name: [] for name in chosen}
    for number in range(rounds + 1):
        for name, way in chosen.items():
            seen, seconds = made.timed(way)
            if seen not in (0, found.rows):
                raise SystemExit(f"{name} saw {seen} of {found.rows} rows")
            rate = found.rows / seconds * (copies if name == "ray data" else 1)
            shown, unit = (seconds, "s") if name == "start of data" else (rate, "rows/s")
            console.print(f"{name}: {shown:,.2f} {unit}{'' if number else ', warming up'}")
            if number:
                rates[name].append(shown)
    medians = {name: round(statistics.median(each), 2) for name, each in rates.items()}
    console.print(medians)
    if out is not None:
        figures = {"machine": machine(), "rows": found.rows, "rows_per_s": medians, "runs": rates}
        out.write_text(json.dumps(figures, indent=1) + "\n")
    canal_spark.stop()


if __name__ == "__main__":
    typer.run(main)
