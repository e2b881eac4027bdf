"""`start --standby`: a head that is active or waits, until Ctrl-C."""

from __future__ import annotations

import json

import typer

from ray_canal.cli.signals import until_signal
from ray_canal.config import CanalConfig
from ray_canal.errors import InstanceNotRunning

_LOOK_S = 2.0


def with_standby(deployment: CanalConfig) -> CanalConfig:
    """Return the configuration with ray.standby = true. Raises ConfigError: other heads would not
    find its cursors."""
    from ray_canal.config import load

    ray = deployment.ray.model_copy(update={"standby": True})
    return load({**deployment.model_dump(exclude_unset=True), "ray": ray.model_dump()})


def waiting_text(namespace: str) -> str:
    """Return which head is active, if this one waits for its turn; else an empty text."""
    import ray_canal as canal

    state = canal.standing(namespace=namespace)
    return "" if state is None or state["active"] else _text(state)


def stand_by(deployment: CanalConfig, *, detach: bool, as_json: bool) -> None:
    """Tell which head is active, whenever that changes, and open Arrow Flight and the console while
    it is this one; leave when a signal comes."""
    import ray_canal as canal
    from ray_canal.cli import ports

    namespace = deployment.ray.namespace
    told, active = "", False
    state: dict[str, object] | None = None
    with until_signal() as stopped:
        while True:
            found: dict[str, object] | None
            try:
                found = state = canal.standing(namespace=namespace)
                now = "nobody takes part" if state is None else _text(state)
            except InstanceNotRunning as error:  # the ports stay as they are
                found, now = {"error": str(error)}, str(error)
            if now != told:
                typer.echo(json.dumps(found) if as_json else now)
                told = now
            if active != bool(state and state["active"]):
                active = not active
                if not active:
                    ports.close_ports(deployment)
                else:
                    for line in ports.port_lines(ports.open_ports(deployment)):
                        typer.echo(line, err=as_json)
            if detach:
                return
            if stopped.wait(_LOOK_S):
                break
    canal.leave(namespace=namespace)
    typer.echo("this head has left; another one takes over", err=True)


def _text(state: dict[str, object]) -> str:
    if state["active"]:
        return "this head is active"
    failure = f" ({state['error']})" if state["error"] else ""
    return f"this head waits; {state['head']} is active{failure}"
