"""Commands about sinks: what is written to databases, queues and files."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Annotated

import typer

from ray_canal.cli.answer import answer
from ray_canal.cli.options import NAMESPACE, AsJson, ConfigPath, Namespace
from ray_canal.cli.signals import until_signal
from ray_canal.cli.status import sink_line

if TYPE_CHECKING:
    from ray_canal.config import CanalConfig

sink_app = typer.Typer(help="Write changes to databases, queues and files.", no_args_is_help=True)

_REPORT_S = 10.0


@sink_app.command("list")
def list_(config: ConfigPath, as_json: AsJson = False) -> None:
    """Show the sinks of CONFIG: destination, target, guarantee."""
    from ray_canal.config import load
    from ray_canal.sinks.open import make_sink

    found = [
        {
            "name": sink.name,
            "destination": sink.destination,
            "type": sink.type,
            "client_id": sink.client_id,
            "guarantee": make_sink(sink).guarantee.replace("_", " "),
        }
        for sink in load(config).sink
    ]
    line = "{name}: {destination} -> {type}, {guarantee}"
    answer(found, *(line.format(**each) for each in found), as_json=as_json)


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


def start_all(deployment: CanalConfig) -> list[str]:
    """Start a deployment's sinks; return those that did not run before."""
    if not deployment.sink:
        return []
    import ray_canal as canal

    before = canal.sink_status(namespace=deployment.ray.namespace)
    return [name for name in canal.start_sinks(deployment) if name not in before]


Name = Annotated[str, typer.Argument(help="The sink's name.")]


@sink_app.command("start")
def start(
    config: ConfigPath,
    names: Annotated[
        list[str] | None, typer.Argument(help="Sinks of CONFIG; all if left out.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Start sinks on the cluster, where their destinations run; `ray-canal start` does it, too.

    One that has failed, or runs with another configuration, is started over where it was.
    """
    import ray_canal as canal

    started = canal.start_sinks(config, *(names or ()))
    lines = [f"sink {name}: started" for name in started]
    answer({"started": started}, *lines, as_json=as_json)


@sink_app.command("stop")
def stop(name: Name, as_json: AsJson = False, namespace: Namespace = NAMESPACE) -> None:
    """Stop a sink; its subscriber and its place stay."""
    import ray_canal as canal

    canal.stop_sink(name, namespace=namespace)
    answer({"stopped": name}, f"sink {name}: stopped", as_json=as_json)


@sink_app.command("pause")
def pause(name: Name, as_json: AsJson = False, namespace: Namespace = NAMESPACE) -> None:
    """Let a sink write nothing until it is resumed, also over restarts."""
    import ray_canal as canal

    canal.pause_sink(name, namespace=namespace)
    answer({"paused": name}, f"sink {name}: paused", as_json=as_json)


@sink_app.command("resume")
def resume(name: Name, as_json: AsJson = False, namespace: Namespace = NAMESPACE) -> None:
    """Let a paused sink go on."""
    import ray_canal as canal

    canal.resume_sink(name, namespace=namespace)
    answer({"resumed": name}, f"sink {name}: goes on", as_json=as_json)


@sink_app.command("seek")
def seek(
    name: Name,
    place: Annotated[
        str,
        typer.Argument(help="head, tail, earliest, latest, FILE:POSITION, a GTID set or a time."),
    ],
    as_json: AsJson = False,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Move a sink to a place of the log. What a mirror has by key is written again."""
    import ray_canal as canal

    canal.seek_sink(name, place, namespace=namespace)
    answer({"moved": name, "to": place}, f"sink {name}: moved to {place}", as_json=as_json)


@sink_app.command("status")
def status(
    name: Annotated[str | None, typer.Argument(help="One sink; all if left out.")] = None,
    as_json: AsJson = False,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Show each sink of the cluster on a line: state, rows, place, and what keeps it."""
    import ray_canal as canal

    found = canal.sink_status(name, namespace=namespace)
    none = "no sink runs in this cluster; start one with `ray-canal sink start CONFIG`"
    lines = [sink_line(each, told) for each, told in found.items()]
    answer(found, *(lines or [none]), as_json=as_json)


@sink_app.command("compact")
def compact(
    config: ConfigPath,
    name: Annotated[str, typer.Argument(help="A [[sink]] of CONFIG that writes a lake.")],
    tables: Annotated[
        list[str] | None,
        typer.Option("--table", help="DATABASE.TABLE in the lake; repeat it. Not given: all."),
    ] = None,
    vacuum: Annotated[bool, typer.Option(help="Remove files that only old versions have.")] = False,
    hours: Annotated[
        int | None,
        typer.Option(min=0, help="Age of what vacuum removes; not given: the table's property."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Join the small files of a lake's tables, also while the sink runs.

    Below 168 hours (or the table's property), vacuum may remove files that readers or the sink
    still use.
    """
    from ray_canal.config import load
    from ray_canal.sinks.open import lake_of
    from ray_canal.sinks.schema_follower import TableName

    lake = lake_of(load(config).sink_named(name))
    lake.open()
    chosen = [TableName(*table.split(".", 1)) for table in tables or ()] or lake.names()
    found = {}
    for table in chosen:
        found[str(table)] = done = lake.compact(table, vacuum, hours)
        if not as_json:  # each as soon as it is done: it may take minutes
            typer.echo(f"{table}: {done}")
    lake.close()
    answer(found, as_json=as_json)
