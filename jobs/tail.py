"""Print the changes of a destination as JSON lines.

ray job submit --working-dir . -- python jobs/tail.py --destination orders --limit 10
"""

from __future__ import annotations

import signal
import sys
import threading
from typing import Annotated

import typer

import ray_canal as canal
from ray_canal.errors import CanalError
from ray_canal.render import print_changes

# An unexpected error shows no variables: a configuration's passwords might be among them.
app = typer.Typer(add_completion=False, pretty_exceptions_show_locals=False)


@app.command()
def tail(
    destination: Annotated[str, typer.Option(help="The destination's name.")],
    client_id: Annotated[
        int | None,
        typer.Option(help="Be this subscriber, with its durable cursor; left out: look on."),
    ] = None,
    filter: Annotated[
        str, typer.Option(help=r"Canal's regex list over schema.table, as 'shop\..*'.")
    ] = r".*\..*",
    limit: Annotated[
        int | None, typer.Option(min=1, help="End after so many changes; without it, go on.")
    ] = None,
    batch_size: Annotated[
        int, typer.Option(min=1, help="Memory units (KiB of binlog) of a get.")
    ] = 1000,
) -> None:
    """Print changes as JSON lines, one a row change, in the order of the binlog.

    It looks on: nobody else's subscription is touched, and nothing is left
    behind. With --client-id it is that subscriber and takes over from whoever
    is: a batch is acked when all of it is printed; one that --limit or a signal
    cuts comes again at the next run. Ends at --limit, at the end of a source of
    binlog files, at SIGTERM or Ctrl-C.
    """
    with canal.connect(destination, client_id=client_id) as connector:
        stopped = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stopped.set())
        connector.subscribe(filter)
        print_changes(connector, sys.stdout, limit=limit, batch_size=batch_size, stopped=stopped)


if __name__ == "__main__":
    try:
        app()
    except CanalError as error:
        sys.exit(f"{type(error).__name__}: {error}")
