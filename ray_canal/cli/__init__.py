"""The `ray-canal` command. Thin: each command parses its options and calls the public API.

How it goes is in status.py, commands about subscribers are in subscribers.py, those about snapshots
in snapshot.py, the console in console.py, the comparison with another decoder in verify.py. What
prints changes as JSON lives in `ray_canal/render.py`, the demo in `ray_canal/demo/`.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ray_canal import __version__
from ray_canal.cli import snapshot_control as snapshot_control  # its commands
from ray_canal.cli.answer import answer, is_of_ray, ray_text
from ray_canal.cli.apply import apply
from ray_canal.cli.console import console
from ray_canal.cli.decode import decode
from ray_canal.cli.first_use import tell_of_first_use
from ray_canal.cli.nodes import nodes
from ray_canal.cli.options import (
    NAMESPACE,
    AsJson,
    ConfigPath,
    Destination,
    Namespace,
)
from ray_canal.cli.ports import close_ports, open_ports, port_lines
from ray_canal.cli.position import position
from ray_canal.cli.process import prepare_process
from ray_canal.cli.signals import ending_with_head as _ending_with_head
from ray_canal.cli.signals import interrupted_by_sigterm as _interrupted_by_sigterm
from ray_canal.cli.signals import until_signal as _until_signal
from ray_canal.cli.sinks import sink_app, start_all
from ray_canal.cli.snapshot import snapshot
from ray_canal.cli.spark_jar import spark_jar
from ray_canal.cli.standby import stand_by, with_standby
from ray_canal.cli.status import explain, status
from ray_canal.cli.subscriber import subscriber
from ray_canal.cli.subscribers import filter_, subscribers, unsubscribe
from ray_canal.cli.tail import tail
from ray_canal.cli.verify import verify
from ray_canal.errors import CanalError, InstanceNotFound, os_error_text
from ray_canal.logs import write_to_stderr
from ray_canal.malloc import keep_freed_memory

if TYPE_CHECKING:
    from ray_canal.config import CanalConfig

app = typer.Typer(
    name="ray-canal",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ray-canal {__version__}")
        raise typer.Exit()


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and end."
        ),
    ] = False,
) -> None:
    """MySQL and MariaDB change data capture on Ray."""


Replace = Annotated[
    bool, typer.Option(help="Restart what runs with another configuration; else refuse.")
]


@app.command()
def start(
    config: ConfigPath,
    detach: Annotated[
        bool, typer.Option(help="Return at once when it runs, on a running Ray cluster.")
    ] = False,
    replace: Replace = True,
    standby: Annotated[
        bool, typer.Option("--standby", help="Wait while another head of CONFIG is active.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Start the destinations of CONFIG.

    One that runs with another configuration is started over and goes on at its cursors; one that
    runs with this configuration is left alone.

    On a running Ray cluster the actors stay after this command ends (--detach) or are watched until
    Ctrl-C, which stops what this command has started: a destination or a TCP port that ran before
    goes on. Without a cluster, a local Ray is started and lives until Ctrl-C.
    """
    import ray_canal as canal
    from ray_canal.client.joining import connect_ray
    from ray_canal.config import load

    deployment = with_standby(load(config)) if standby else load(config)
    if deployment.log is not None:
        write_to_stderr(deployment.log.format, deployment.log.level)
    connect_ray(deployment, local=not detach)
    tell_of_first_use()
    namespace = deployment.ray.namespace
    before = set(canal.destinations(namespace=namespace))
    served_before = bool(deployment.server and canal.server_status(namespace=namespace))
    names = _begin(deployment, before, replace=replace, stays=detach, as_json=as_json)
    told = {name: "running, started before" if name in before else "running" for name in names}
    if deployment.ray.standby:
        answer({"destinations": told}, *map(": ".join, told.items()), as_json=as_json)
        stand_by(deployment, detach=detach, as_json=as_json)
        return
    servers = canal.server_status(namespace=namespace) if deployment.server else []
    opened = open_ports(deployment)
    sinks = start_all(deployment)
    found = {
        "destinations": told,
        "tcp": [server.get("address") for server in servers],
        "ports": opened,
        "sinks": [sink.name for sink in deployment.sink],
    }
    answer(found, *_started_lines(found), as_json=as_json)
    if detach:
        return
    typer.echo("Ctrl-C stops what was started here.", err=True)
    with _until_signal() as stopped:
        stopped.wait()
    with _ending_with_head():
        _stop_sinks(sinks, namespace)
        if deployment.server and not served_before:
            canal.stop_serving(namespace=namespace)
        _stop_destinations(deployment, [name for name in names if name not in before], as_json)


def _begin(
    deployment: CanalConfig, before: set[str], *, replace: bool, stays: bool, as_json: bool
) -> list[str]:
    """Start the destinations and return their names. Ctrl-C meanwhile stops what was not there
    `before`, or says that it `stays`."""
    import ray_canal as canal

    namespace = deployment.ray.namespace
    try:
        return canal.start(deployment, replace=replace)
    except KeyboardInterrupt:
        new = {each.destination for each in deployment.instance} - before
        begun = sorted(new.intersection(canal.destinations(namespace=namespace)))
        if not stays:
            _stop_destinations(deployment, begun, as_json)
        for name in begun if stays else ():
            typer.echo(f"{name}: goes on; `ray-canal stop {name}` stops it", err=True)
        raise


def _stop_sinks(names: list[str], namespace: str) -> None:
    import ray_canal as canal

    for name in names:
        with contextlib.suppress(InstanceNotFound):  # `ray-canal sink stop` was first
            canal.stop_sink(name, namespace=namespace)


def _stop_destinations(deployment: CanalConfig, names: list[str], as_json: bool) -> None:
    """Stop those that nobody has stopped yet, and close the ports that were opened for them."""
    import ray_canal as canal

    if names:
        close_ports(deployment)
    for name in names:
        with contextlib.suppress(InstanceNotFound):
            canal.stop(name, namespace=deployment.ray.namespace)
        typer.echo(f"{name}: stopped", err=as_json)


def _started_lines(found: dict[str, Any]) -> list[str]:
    """Return lines of what runs: destinations, ports, sinks."""
    return [
        *map(": ".join, found.get("destinations", {}).items()),
        *(f"Canal's TCP protocol: {address}" for address in found["tcp"]),
        *port_lines(found["ports"]),
        *(f"sink {name}: running" for name in found.get("sinks", ())),
    ]


@app.command()
def serve(
    config: ConfigPath,
    detach: Annotated[bool, typer.Option(help="Return at once when it listens.")] = False,
    replace: Replace = True,
    as_json: AsJson = False,
) -> None:
    """Open Canal's TCP port, Arrow Flight and the console for the destinations that run.

    These are the sections `server`, `flight` and `console`. `start` opens them, too; this is for a
    cluster whose destinations run already. A port that is open
    with another configuration, or with an earlier password or certificate, is closed and reopened.
    """
    import ray_canal as canal
    from ray_canal.client.joining import connect_ray
    from ray_canal.config import load

    deployment = load(config)
    connect_ray(deployment, local=False)
    found: dict[str, Any] = {"tcp": []}
    if deployment.server or not (deployment.flight or deployment.console):
        found["tcp"] = canal.serve(deployment, replace=replace)
    found["ports"] = open_ports(deployment)
    answer(found, *_started_lines(found), as_json=as_json)
    if detach:
        return
    typer.echo("Ctrl-C stops.", err=True)
    with _until_signal() as stopped:
        stopped.wait()
    with _ending_with_head():
        canal.stop_serving(namespace=deployment.ray.namespace)
        close_ports(deployment)


@app.command()
def stop(
    destination: Destination, as_json: AsJson = False, namespace: Namespace = NAMESPACE
) -> None:
    """Stop a destination. Its cursors stay; a later start resumes without loss."""
    import ray_canal as canal

    canal.stop(destination, namespace=namespace)
    answer({"stopped": destination}, f"{destination}: stopped", as_json=as_json)


app.command()(apply)
app.command()(status)
app.command()(explain)
app.command()(nodes)
app.command()(position)


app.command()(tail)
app.command()(subscribers)
app.command()(subscriber)
app.command()(unsubscribe)
app.command("filter")(filter_)


@app.command()
def check(
    config: ConfigPath,
    as_json: AsJson = False,
) -> None:
    """Check CONFIG, its servers, the cursors' backend and the sinks' targets before a start.

    Exits with 1 if anything would keep a destination or a sink from running, and says what to run
    to fix it.
    """
    from ray_canal.config import load
    from ray_canal.console.deployments import checks

    told = checks(load(config))
    if as_json:
        typer.echo(json.dumps(told, indent=2))
    for destination, results in {} if as_json else told.items():
        typer.echo(f"{destination}:")
        for result in results:
            mark = "ok  " if result["ok"] else ("warn" if result["advisory"] else "FAIL")
            typer.echo(f"  {mark} {result['name']}: {result['detail']}")
            if not result["ok"] and result["fix"]:
                typer.echo(f"       fix: {result['fix']}")
    if not all(each["ok"] or each["advisory"] for results in told.values() for each in results):
        raise typer.Exit(1)


app.command()(decode)
app.command()(verify)
app.command("spark-jar")(spark_jar)
app.add_typer(snapshot)
app.command()(console)
app.add_typer(sink_app, name="sink")


@app.command("import")
def import_(
    canal_properties: Annotated[Path, typer.Argument(help="Canal's canal.properties.")],
    instances: Annotated[
        list[Path] | None,
        typer.Argument(help="instance.properties files; left out: those next to canal.properties."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="File; standard output if left out.")] = None,
    force: Annotated[bool, typer.Option(help="Overwrite the file.")] = False,
    accept_refused: Annotated[
        bool, typer.Option(help="Write the file although keys were refused.")
    ] = False,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", help="KEY=VALUE with precedence over the files, as Canal's -e."),
    ] = None,
    time_zone: Annotated[
        str,
        typer.Option(help="Zone of Canal's JVM, as Asia/Shanghai; this machine's if left out."),
    ] = "",
) -> None:
    """Make a canal.toml of Canal's configuration.

    Every key is mapped, or named with the reason why not (docs/reference/canal-compat.md lists all
    of them). Exits with 1, and writes nothing, if a key asks for what is not there. Passwords are
    written as references to environment variables.
    """
    from ray_canal.errors import ConfigError
    from ray_canal.migration.convert import import_canal
    from ray_canal.migration.toml_text import render

    overrides = dict(_assignment(text) for text in setting or ())
    imported = import_canal(canal_properties, instances or (), overrides, time_zone)
    for finding in imported.findings:
        typer.echo(f"{'REFUSED' if finding.refused else 'note   '} {finding}", err=True)
    if imported.refused and not accept_refused:
        raise ConfigError(
            f"{len(imported.refused)} keys ask for what is not there; take them out, or say "
            "--accept-refused"
        )
    text = render(imported, [str(path) for path in (canal_properties, *(instances or ()))])
    if out is None:
        typer.echo(text, nl=False)
        return
    if out.exists() and not force:
        raise ConfigError(f"{out} exists; say --force to overwrite it")
    out.write_text(text, encoding="utf-8")
    typer.echo(f"{out}: {', '.join(i['destination'] for i in imported.tree['instance'])}")


def _assignment(text: str) -> tuple[str, str]:
    from ray_canal.errors import ConfigError

    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--set {text!r}: expected KEY=VALUE")
    return key.strip(), value.strip()


@app.command()
def redrive(
    config: ConfigPath,
    destination: Destination,
    schema: Annotated[
        Path | None, typer.Option(help="CREATE TABLE statements of the tables in quarantine.")
    ] = None,
    keep: Annotated[bool, typer.Option(help="Print them, and remove nothing.")] = False,
    client_id: Annotated[
        int | None, typer.Option(help="Only the messages that this subscriber gave up.")
    ] = None,
) -> None:
    """Print changes that are in quarantine as JSON lines, and remove what was written.

    Give what their tables looked like at that time, if the table meta history does not know it.
    Restart the destination afterwards: its later rows are then decoded with that schema, too.
    """
    from ray_canal.redrive import redrive as redriven
    from ray_canal.render import print_durably, standard_output

    for part in redriven(config, destination, schema_sql=schema, keep=keep, client_id=client_id):
        print_durably(part, standard_output())


@app.command()
def import_meta(
    config: ConfigPath,
    meta_dat: Annotated[
        Path,
        typer.Argument(
            help="Canal's conf/DESTINATION/meta.dat, or a file with a cursor of ZooKeeper."
        ),
    ],
    destination: Annotated[
        str, typer.Option(help="Our destination, if its name differs from Canal's.")
    ] = "",
    replace: Annotated[bool, typer.Option(help="Overwrite existing cursors.")] = False,
    server_uuid: Annotated[
        str, typer.Option(help="The cursors' server, if its address has changed.")
    ] = "",
    unchecked: Annotated[
        bool, typer.Option(help="Do not ask the server; each cursor is checked at the start.")
    ] = False,
) -> None:
    """Take over subscribers and cursors from Canal's meta.dat, before the first start.

    The server is asked whether they are of its log. Stop Canal first: what it acks later is not
    known here and comes again.
    """
    from ray_canal.config import load
    from ray_canal.meta.canal_import import import_meta as imported

    name, subscribers = imported(
        load(config),
        meta_dat,
        destination,
        replace=replace,
        server_uuid=server_uuid,
        unchecked=unchecked,
    )
    for one in subscribers:
        at = one.cursor.position if one.cursor else "where source.start says"
        typer.echo(f"{name}: client {one.client_id} at {at}, filter {one.filter!r}")


@app.command()
def demo(
    spark: Annotated[bool, typer.Option(help="Hand the changes to Spark, too.")] = True,
    show: Annotated[int, typer.Option(help="Print so many changes as they come.")] = 20,
) -> None:
    """Replay the bundled binlog files through the whole pipeline on a local Ray, then in Spark."""
    from ray_canal.demo.run import run_demo

    with _until_signal() as stopped:
        run_demo(spark=spark, show=show, stopped=stopped)


def main() -> None:
    """Entry point: one clear line for each of our errors, and for files that cannot be read or
    written, exit code 1; 130 after Ctrl-C or SIGTERM; 0 where nobody reads any more."""
    prepare_process()
    keep_freed_memory()
    _interrupted_by_sigterm()
    try:
        app()
    except CanalError as error:
        typer.echo(f"ray-canal: {type(error).__name__}: {error}", err=True)
        raise SystemExit(1) from None
    except SystemExit as ended:
        gone = isinstance(ended.__context__, BrokenPipeError)  # Typer says 1 then, without a word
        raise SystemExit(0 if gone else ended.code) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except Exception as error:
        if is_of_ray(error):
            text = ray_text(error)
        elif isinstance(error, OSError) and error.strerror:
            text = os_error_text(error)
        else:
            raise
        typer.echo(f"ray-canal: {text}", err=True)
        raise SystemExit(1) from None
