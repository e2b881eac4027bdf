"""Start the destinations of a configuration on a Ray cluster, and stay with them.

ray job submit --working-dir . -- python jobs/serve.py canal.toml
"""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

import ray_canal as canal
from ray_canal.errors import CanalError

# An unexpected error shows no variables: a configuration's passwords might be among them.
app = typer.Typer(add_completion=False, pretty_exceptions_show_locals=False)


@app.command()
def serve(
    config: Annotated[
        Path, typer.Argument(help="The deployment's TOML file (docs/reference/canal.toml).")
    ],
    detach: Annotated[
        bool, typer.Option("--detach", help="Return when all run; they stay on the cluster.")
    ] = False,
    timeout_s: Annotated[
        float, typer.Option(help="How long a destination may take to reach its source.")
    ] = 90.0,
) -> None:
    """Start the destinations of CONFIG and stay until SIGTERM (`ray job stop`) or
    Ctrl-C.

    On a signal they are stopped; their cursors stay, and the next start resumes
    without loss. With `ray.standby`, another head takes over then. With --detach
    the job ends at once and the destinations go on: stop them with
    `ray-canal stop NAME`.
    """
    deployment = canal.load_config(str(config))
    names = canal.start(deployment, timeout=timeout_s)
    if deployment.flight is not None:
        print(f"Arrow Flight: {canal.serve_flight(deployment)}", flush=True)
    if deployment.console is not None:
        print(f"the console: {canal.serve_console(deployment)}", flush=True)
    # Ray's own SIGTERM handler would end this process before the destinations are stopped.
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    for name in names:
        print(f"{name}: running", flush=True)
    if detach:
        return
    if deployment.ray.standby:
        state = canal.standing(namespace=deployment.ray.namespace)
        print(f"active: {state['head'] if state else 'nobody'}", flush=True)
    stopped.wait()
    if deployment.flight is not None:
        canal.stop_flight(namespace=deployment.ray.namespace)
    if deployment.console is not None:
        canal.stop_console(namespace=deployment.ray.namespace)
    if deployment.ray.standby:  # nothing counts as stopped: another head begins
        canal.leave(namespace=deployment.ray.namespace)
        return
    for name in names:
        canal.stop(name, namespace=deployment.ray.namespace)
        print(f"{name}: stopped", flush=True)


if __name__ == "__main__":
    try:
        app()
    except CanalError as error:
        sys.exit(f"{type(error).__name__}: {error}")
