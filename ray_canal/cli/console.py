"""`ray-canal console`: the page of a deployment, and files for Prometheus and Grafana."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ray_canal.cli.options import NAMESPACE, Namespace
from ray_canal.cli.signals import until_signal


def console(
    config: Annotated[
        Path | None, typer.Argument(help="A TOML file with a section `console`, if there is one.")
    ] = None,
    port: Annotated[int | None, typer.Option(help="In place of console.port.")] = None,
    write: Annotated[
        Path | None,
        typer.Option(help="The file that the form of a first source writes (canal.toml)."),
    ] = None,
    rules: Annotated[bool, typer.Option("--rules", help="Print Prometheus' alert rules.")] = False,
    dashboard: Annotated[bool, typer.Option("--dashboard", help="Print a Grafana board.")] = False,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Open the console: pages, REST API and metrics of what runs in the cluster, until Ctrl-C.

    Where CONFIG has a section `console`, `ray-canal start` opens it as an actor of the cluster.
    Without CONFIG, and without a password in it, this machine alone can reach it. Without a Ray
    cluster it starts a local one, for the sources that are started on its page.
    """
    from ray_canal.errors import ConfigError

    try:
        from ray_canal.console.app import Console
        from ray_canal.console.rules import dashboard as made_dashboard
        from ray_canal.console.rules import rules as made_rules
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error}; the console needs: pip install 'ray-canal[console]'") from None
    if rules or dashboard:
        typer.echo(made_rules() if rules else made_dashboard(), nl=False)
        return
    from ray_canal.client.joining import connect_ray
    from ray_canal.config import ConsoleConfig, load
    from ray_canal.config.log import LogConfig
    from ray_canal.console.cluster import Cluster
    from ray_canal.console.first_source import SourceFiles
    from ray_canal.console.niceness import give_way
    from ray_canal.logs import write_to_stderr

    deployment = load(config) if config else None
    section = (deployment.console if deployment else None) or ConsoleConfig.model_validate({})
    if port is not None:
        section = section.model_copy(update={"port": port})
    namespace = deployment.ray.namespace if deployment else namespace
    log = (deployment.log if deployment else None) or LogConfig()
    write_to_stderr(log.format, log.level)
    connect_ray(deployment)
    give_way()  # a Ray that was started here does not
    folder = "" if write else section.sources_folder
    files = SourceFiles("" if folder else str(write or "canal.toml"), folder)
    made = Console(section, Cluster(namespace), files)
    with until_signal() as stopped:
        typer.echo(f"the console: {made.start()}")
        if section.warning:
            typer.echo(f"warning: {section.warning}", err=True)
        typer.echo("Ctrl-C stops.", err=True)
        stopped.wait()
    made.stop()
