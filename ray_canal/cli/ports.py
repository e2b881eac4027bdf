"""Ports next to Canal's TCP one, which commands open and close: Arrow Flight and the console."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from ray_canal.config import CanalConfig


@dataclass(frozen=True, slots=True)
class Port:
    """One port that a deployment asks for. `open` returns its address, `close` takes the namespace;
    `plan` says what `open` would do: "open", "same", or the keys with which it would reopen it."""

    title: str
    open: Callable[[CanalConfig], str]
    close: Callable[[str], None]
    plan: Callable[[CanalConfig], str]


def ports(deployment: CanalConfig) -> list[Port]:
    """Return the ports that a deployment has sections for."""
    found = []
    if deployment.flight is not None:
        from ray_canal.flight import actor as flight

        found.append(
            Port(
                "Arrow Flight",
                flight.serve_flight,
                lambda namespace: flight.stop_flight(namespace=namespace),
                flight.plan_flight,
            )
        )
    if deployment.console is not None:
        from ray_canal.errors import ConfigError

        try:
            from ray_canal.console import actor as console
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"{error}; the console needs: pip install 'ray-canal[console]'"
            ) from None
        found.append(
            Port(
                "the console",
                console.serve_console,
                lambda namespace: console.stop_console(namespace=namespace),
                console.plan_console,
            )
        )
    return found


def open_ports(deployment: CanalConfig) -> dict[str, str]:
    """Open them and return their addresses by title; print what whoever opens a port should
    know."""
    found = {port.title: port.open(deployment) for port in ports(deployment)}
    for name in ("server", "flight", "console"):
        section = getattr(deployment, name)
        if section is not None and section.warning:
            typer.echo(f"warning: [{name}]: {section.warning}", err=True)
    return found


def port_lines(addresses: dict[str, str]) -> list[str]:
    """Return a line for each port that was opened."""
    return [f"{title}: {address}" for title, address in addresses.items()]


def close_ports(deployment: CanalConfig) -> None:
    """Close them."""
    for port in ports(deployment):
        port.close(deployment.ray.namespace)


def port_plans(deployment: CanalConfig) -> dict[str, str]:
    """Return what `open_ports` would do, by title."""
    return {port.title: port.plan(deployment) for port in ports(deployment)}
