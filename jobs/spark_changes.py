"""Write the changes of a destination to Parquet with Spark, and count them.

    ray job submit --working-dir . -- \\
        python jobs/spark_changes.py --destination orders --output /shared/changes
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

import ray_canal as canal
from ray_canal import spark as canal_spark
from ray_canal.errors import CanalError
from ray_canal.spark.parquet import Counts, ParquetSink

# An unexpected error shows no variables: a configuration's passwords might be among them.
app = typer.Typer(add_completion=False, pretty_exceptions_show_locals=False)

_COLUMNS = ("INSERT", "UPDATE", "DELETE")


def summary(counts: Counts) -> Table:
    """Changes of rows per table and kind, tables in order of name, with a last line that sums
    them."""
    table = Table(title="Changes written")
    table.add_column("table")
    for column in (*_COLUMNS, "total"):
        table.add_column(column, justify="right")
    for name in sorted({name for name, _ in counts}):
        found = [counts[name, column] for column in _COLUMNS]
        table.add_row(name, *(f"{count:,}" for count in (*found, sum(found))))
    sums = [sum(c for (_, kind), c in counts.items() if kind == column) for column in _COLUMNS]
    table.add_section()
    table.add_row("all", *(f"{count:,}" for count in (*sums, sum(sums))))
    return table


@app.command()
def spark_changes(
    destination: Annotated[str, typer.Option(help="The destination's name.")],
    output: Annotated[
        str, typer.Option(help="Directory that driver and executors share, or hdfs://, s3a://…")
    ],
    client_id: Annotated[
        int, typer.Option(help="Subscriber id; each has its own durable cursor.")
    ] = 1002,
    filter: Annotated[
        str, typer.Option(help=r"Canal's regex list over schema.table, as 'shop\..*'.")
    ] = r".*\..*",
    batch_size: Annotated[
        int, typer.Option(min=1, help="Memory units (KiB of binlog) of a micro-batch.")
    ] = 24576,
    timeout_s: Annotated[
        float, typer.Option(min=0.0, help="How long a batch may fill before it is taken as it is.")
    ] = 2.0,
    max_batches: Annotated[
        int | None, typer.Option(min=1, help="End after so many batches.")
    ] = None,
    idle_polls: Annotated[
        int | None, typer.Option(min=1, help="End after so many empty gets in a row.")
    ] = None,
    ignore_statements: Annotated[
        bool,
        typer.Option(help="Pass over statements whose rows are not in the log; else they end it."),
    ] = False,
    executors: Annotated[int, typer.Option(min=1, help="Spark executors.")] = 1,
    executor_cores: Annotated[int, typer.Option(min=1, help="CPUs of an executor.")] = 1,
    executor_memory: Annotated[str, typer.Option(help="Memory of an executor.")] = "512M",
) -> None:
    """Write changes to OUTPUT/schema_name=…/table_name=…/date=…/ and print counts
    at the end.

    A batch is acked after its files are in place; of a batch that comes again
    only rows are written that are not there yet. Ends at the end of a source of
    binlog files, at SIGTERM or Ctrl-C (after the batch in hand), at
    --max-batches or --idle-polls.
    """
    spark = canal_spark.session(
        f"spark_changes_{destination}", executors, executor_cores, executor_memory
    )
    try:
        sink = ParquetSink(spark, output.rstrip("/"))
        with canal.connect(destination, client_id=client_id) as connector:
            connector.subscribe(filter)
            progress = canal_spark.run(
                connector,
                spark,
                sink,
                batch_size=batch_size,
                timeout=timeout_s,
                max_batches=max_batches,
                statements="ignore" if ignore_statements else "error",
                until=lambda now: idle_polls is not None and now.empty_polls >= idle_polls,
            )
        Console(file=sys.stdout, width=100).print(summary(sink.counts))
        print(f"{progress.rows} changes in {progress.batches} batches", flush=True)
    finally:
        canal_spark.stop()


if __name__ == "__main__":
    try:
        app()
    except CanalError as error:
        sys.exit(f"{type(error).__name__}: {error}")
