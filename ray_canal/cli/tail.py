"""`tail`: what comes, on the screen, by a subscription that nobody else notices."""

from __future__ import annotations

import signal
from typing import Annotated, Any

import typer

from ray_canal.cli.options import (
    NAMESPACE,
    AsJson,
    Destination,
    LookingOn,
    Namespace,
    Tables,
)
from ray_canal.cli.signals import until_signal

ALL_TABLES = r".*\..*"


def tail(
    destination: Destination,
    client_id: LookingOn = None,
    start: Annotated[
        str, typer.Option(help="head: with what the log still has; tail: with what comes now.")
    ] = "head",
    filter: Tables = ALL_TABLES,
    where: Annotated[
        str, typer.Option(help="SQL condition over before.COLUMN and after.COLUMN.")
    ] = "",
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after so many changes.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Memory units (or entries) a get.")] = 1000,
    as_json: AsJson = False,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Print changes as JSON lines, one a row, until Ctrl-C or the end of the binlog files.

    (With --json, too: it prints nothing else.) Its subscription is ephemeral: it affects no other
    and leaves nothing. With --client-id it shows what that subscriber gets next, and leaves that
    one and its cursor alone.
    """
    import ray_canal as canal
    from ray_canal.render import print_changes, standard_output

    out = standard_output()
    begin: Any = start
    if client_id is not None:
        like = canal.subscriber(destination, client_id, namespace=namespace).show()
        filter = like["filter"] if filter == ALL_TABLES else filter
        begin = _place_of(like["cursor"]) or start
    connected = canal.connect(destination, None, namespace=namespace)
    with connected as connector:
        # A first Ctrl-C ends this: it waits for as long as a source does not answer.
        connector.subscribe(filter, start=begin, where=where or None)
        with until_signal(signal.SIGHUP) as stopped:
            print_changes(
                connector, out, limit=limit, batch_size=batch_size, stopped=stopped
            )


def _place_of(cursor: str | None) -> Any:
    """Return where the transaction of a cursor begins, as text (`bin.000031:98231+3.1`)."""
    from ray_canal.model.position import EntryPosition

    if not cursor:
        return None
    name, _, offset = cursor.rpartition(":")
    return EntryPosition(name, int(offset.partition("+")[0]))
