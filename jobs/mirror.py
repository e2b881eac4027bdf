"""Keep Delta tables (or Parquet files) that follow a destination's tables.

    ray job submit --working-dir . -- \\
        python jobs/mirror.py --destination orders --path /shared/lake
"""

from __future__ import annotations

import signal
import sys
import threading
from typing import Annotated

import typer

from ray_canal import spark as canal_spark
from ray_canal.errors import CanalError

# An unexpected error shows no variables: a configuration's passwords might be among them.
app = typer.Typer(add_completion=False, pretty_exceptions_show_locals=False)


@app.command()
def main(
    destination: Annotated[str, typer.Option(help="The destination's name.")],
    path: Annotated[
        str, typer.Option(help="Folder of the tables, or s3://…; PATH/SCHEMA/TABLE is a table.")
    ],
    tables: Annotated[
        str, typer.Option(help=r"Canal's regex list over schema.table, as 'shop\..*'.")
    ] = r".*\..*",
    format: Annotated[
        str, typer.Option(help="delta: the rows as they are; parquet: every change.")
    ] = "delta",
    client_id: Annotated[
        int, typer.Option(help="Subscriber id; each has its own durable cursor.")
    ] = 1003,
    commit_interval_s: Annotated[
        float, typer.Option(min=0.0, help="Delta: seconds of changes in a commit.")
    ] = 5.0,
    compact_s: Annotated[
        float, typer.Option(min=0.0, help="Delta: how often small files are joined; 0: never.")
    ] = 3600.0,
) -> None:
    """Write tables until SIGTERM or Ctrl-C, or the end of binlog files.

    Each change is there once, wherever it was killed: run it again, and it goes
    on. Prints how many changes were written.
    """
    stopped = threading.Event()
    if format == "delta":
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stopped.set())
        rows = canal_spark.mirror(
            destination,
            path,
            tables,
            client_id=client_id,
            stopped=stopped,
            commit_interval_s=commit_interval_s,
            compact_s=compact_s,
        )
    elif format == "parquet":
        session = canal_spark.session(f"mirror_{destination}")
        try:
            rows = canal_spark.mirror(
                destination, path, tables, format="parquet", client_id=client_id, session=session
            )
        finally:
            canal_spark.stop()
    else:
        raise typer.BadParameter("delta or parquet", param_hint="--format")
    print(f"{rows} changes written below {path}", flush=True)


if __name__ == "__main__":
    try:
        app()
    except CanalError as error:
        sys.exit(f"{type(error).__name__}: {error}")
