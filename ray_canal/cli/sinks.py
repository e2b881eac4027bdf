"""Commands about sinks: what is written to databases, queues and files."""

from __future__ import annotations

import threading
from typing import Annotated

import typer

from ray_canal.cli.options import ConfigPath
from ray_canal.cli.signals import until_signal

sink_app = typer.Typer(help="Write changes to databases, queues and files.", no_args_is_help=True)

_REPORT_S = 10.0


@sink_app.command("list")
def list_(config: ConfigPath) -> None:
    """Show the sinks of CONFIG: destination, target, guarantee."""
    from ray_canal.config import load
    from ray_canal.sinks.open import make_sink

    for sink in load(config).sink:
        guarantee = make_sink(sink).guarantee.replace("_", " ")
        typer.echo(f"{sink.name}: {sink.destination} -> {sink.type}, {guarantee}")


@sink_app.command("run")
def run(
    config: ConfigPath,
    name: Annotated[str, typer.Argument(help="A [[sink]] of CONFIG.")],
    every_s: Annotated[
        float, typer.Option("--report", min=0, help="Seconds between lines of status; 0: none.")
    ] = _REPORT_S,
) -> None:
    """Run a sink until Ctrl-C, or the end of the binlog files. Its destination must run.

    Start it again wherever it ended: it goes on behind what the target has. A second run of the
    same sink takes over from the first. Exits with 1 at an error that does not pass by itself.
    """
    from ray_canal.client.joining import connect_ray
    from ray_canal.config import load
    from ray_canal.sinks.open import runner_of
    from ray_canal.sinks.runner import status_text

    deployment = load(config)
    runner = runner_of(deployment, name)
    connect_ray(deployment, local=False)
    done = threading.Event()

    def report() -> None:
        while not done.wait(every_s):
            typer.echo(status_text(name, runner.status), err=True)

    if every_s:
        threading.Thread(target=report, name="report", daemon=True).start()
    try:
        with until_signal() as stopped:
            runner.run(stopped)
    finally:
        done.set()
        typer.echo(status_text(name, runner.status), err=True)
