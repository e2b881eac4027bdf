"""Options and arguments that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ConfigPath = Annotated[
    Path, typer.Argument(help="The deployment's TOML file (see docs/reference/canal.toml).")
]
Destination = Annotated[str, typer.Argument(help="The destination's name.")]
ClientId = Annotated[int, typer.Option(help="Subscriber id; each has its own durable cursor.")]
Namespace = Annotated[
    str,
    typer.Option(
        envvar="RAY_CANAL_NAMESPACE",
        help="Ray namespace of the deployment, where ray.namespace is not the default.",
    ),
]
NAMESPACE = "ray_canal"  # the default of ray.namespace
NOTHING = "no destination is running in this cluster; start one with `ray-canal start CONFIG`"
LookingOn = Annotated[
    int | None,
    typer.Option("--client-id", help="What this subscriber gets next; it is left alone."),
]
Tables = Annotated[str, typer.Option("--filter", help="Canal regex list over schema.table.")]
AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable.")]
Offline = Annotated[
    bool,
    typer.Option(
        "--offline",
        help="With --config: the destination runs nowhere, though its cluster cannot be asked.",
    ),
]
OptionalConfig = Annotated[
    Path | None, typer.Option("--config", help="The deployment's TOML file.")
]
