"""Commands about the rows that tables hold now."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from ray_canal.cli.first_use import tell_of_first_use
from ray_canal.cli.options import ConfigPath, Destination


class RowFormat(str, Enum):
    json = "json"
    arrow = "arrow"


class Mode(str, Enum):
    consistent = "consistent"
    keyed = "keyed"


snapshot = typer.Typer(
    name="snapshot",
    help="The rows that tables hold now: read them, or have them in a log.",
    no_args_is_help=True,
)


@snapshot.command()
def read(
    config: ConfigPath,
    destination: Destination,
    tables: Annotated[
        str, typer.Option("--tables", help="Canal regex list over schema.table.")
    ],
    mode: Annotated[
        Mode,
        typer.Option(
            help="consistent: all rows of one moment; keyed: by chunks, changes between them."
        ),
    ] = Mode.consistent,
    readers: Annotated[int, typer.Option(min=1, help="Connections that read at once.")] = 1,
    may_lock: Annotated[
        bool,
        typer.Option(
            "--may-lock",
            help="Allow FLUSH TABLES WITH READ LOCK for some milliseconds, to begin.",
        ),
    ] = False,
    format: Annotated[
        RowFormat, typer.Option(help="json: lines; arrow: an IPC stream for each table.")
    ] = RowFormat.json,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="File (a directory for arrow); standard output if left out."
        ),
    ] = None,
) -> None:
    """Read all rows of tables as they are at one place of the log, and say which place it is.

    The server of DESTINATION is read; no lock is taken and nothing is written, and no Ray is
    needed. A destination that starts at that place (source.start = "position") gets each later
    change once.
    """
    from ray_canal.render import write_snapshot
    from ray_canal.snapshot.read import read_snapshot

    tell_of_first_use()
    with read_snapshot(
        config, destination, tables=tables, mode=mode.value, readers=readers, may_lock=may_lock
    ) as found:
        for name, why in found.left_out:
            typer.echo(f"not read: {name} is {why}", err=True)
        write_snapshot(found, format.value, output)
        typer.echo(f"{found.rows:,} rows of {len(found.tables)} tables", err=True)
        typer.echo(f"journal_name = {found.position.journal_name!r}", err=True)
        typer.echo(f"position = {found.position.position}", err=True)
        typer.echo(f"gtid_set = {found.position.gtid!r}", err=True)
