"""`position`: what a destination's log has at a place."""

from __future__ import annotations

from typing import Annotated

import typer

from ray_canal.cli.answer import answer
from ray_canal.cli.options import AsJson, ConfigPath, Destination


def position(
    config: ConfigPath,
    destination: Destination,
    place: Annotated[
        str,
        typer.Argument(
            help="FILE:POSITION, a time with its zone, a GTID, a GTID set of what was consumed, "
            "earliest or latest."
        ),
    ] = "latest",
    as_json: AsJson = False,
) -> None:
    """Say what the source's log has at a time, a GTID or an offset. No Ray; nothing is changed."""
    from ray_canal.config import load
    from ray_canal.source.start.lookup import locate, log_of, told

    instance = load(config).destination(destination)
    with log_of(instance) as log:
        found = locate(instance.source, log, place)
    answer(found.as_dict(), *told(found, place), as_json=as_json)
