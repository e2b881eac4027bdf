"""Changes by visitors, for pages and REST alike: rights are checked, the audit log is written."""

from __future__ import annotations

from typing import Any

from ray_canal.console.access import Visitor
from ray_canal.console.cluster import Steer, SteerSink, SteerSnapshot
from ray_canal.console.context import ConsoleContext
from ray_canal.console.quarantine import Decoded, decoded, remove_chunks
from ray_canal.errors import AccessDenied, ConfigError, InstanceNotFound

_CLIENT_ID_DIGITS_MAX = 19


async def redriven(
    context: ConsoleContext, visitor: Visitor, destination: str, schema_sql: str
) -> Decoded:
    """Decode what is in quarantine, and dead letters, for an operator. Where columns are hidden,
    only an admin says how they are named: another name would not be hidden."""
    hidden = context.config.hidden_columns
    visitor.refuse_without("admin" if hidden and schema_sql.strip() else "subscribe", destination)

    def found() -> Decoded:
        return decoded(context.cluster.deployment(destination), destination, schema_sql, hidden)

    return await context.change(visitor, "decode quarantine", destination, found)


async def released(context: ConsoleContext, visitor: Visitor, destination: str, keys: str) -> int:
    """Remove quarantined chunks and dead letters for an admin."""
    visitor.refuse_without("admin", destination)

    def done() -> int:
        return remove_chunks(context.cluster.deployment(destination), destination, keys)

    return await context.change(visitor, "release quarantine", destination, done)


async def sink_steered(
    context: ConsoleContext,
    visitor: Visitor,
    destination: str,
    name: str,
    action: SteerSink,
    to: str = "",
) -> None:
    """Pause, resume or move a sink for an operator, stop it for an admin. Raises AccessDenied,
    InstanceNotFound; ConfigError: nowhere to move it to."""
    visitor.refuse_without("admin" if action == "stop" else "subscribe", destination)
    refuse_unknown_sink(context, destination, name)
    refuse_operating(
        visitor, destination, context.collector.sinks_of(destination)[name]["client_id"]
    )
    if action == "seek" and not to:
        raise ConfigError("say where to: head, tail, FILE:POSITION, a GTID set or a time")
    steer = context.cluster.steer_sink
    await context.change(visitor, f"{action} sink", destination, steer, name, action, to)


def refuse_unknown_sink(context: ConsoleContext, destination: str, name: str) -> None:
    """Raises InstanceNotFound: the destination has no such sink."""
    if name not in context.collector.sinks_of(destination):
        raise InstanceNotFound(f"no sink {name!r} runs for {destination}")


async def snapshot_steered(
    context: ConsoleContext,
    visitor: Visitor,
    destination: str,
    client_id: int,
    action: SteerSnapshot,
) -> dict[str, Any]:
    """Pause, resume or cancel a snapshot for an operator. Raises AccessDenied."""
    refuse_operating(visitor, destination, client_id)
    steer, args = context.cluster.steer_snapshot, (destination, client_id, action)
    return dict(await context.change(visitor, f"{action} snapshot", destination, steer, *args))


async def stopped(context: ConsoleContext, visitor: Visitor, destination: str) -> None:
    """Stop a destination for an admin."""
    visitor.refuse_without("admin", destination)
    await context.change(visitor, "stop", destination, context.cluster.stop, destination)


async def removed(
    context: ConsoleContext, visitor: Visitor, destination: str, client_id: int
) -> None:
    """Remove a subscriber: an admin any, an operator one of their own client ids."""
    visitor.refuse_without("admin" if visitor.user.client_ids is None else "subscribe", destination)
    refuse_operating(visitor, destination, client_id)
    await context.change(
        visitor,
        "remove subscriber",
        destination,
        context.cluster.unsubscribe,
        destination,
        client_id,
    )


async def filtered(
    context: ConsoleContext, visitor: Visitor, destination: str, client_id: int, tables: str
) -> None:
    """Change a subscriber's filter for an operator. Raises AccessDenied."""
    refuse_operating(visitor, destination, client_id)
    call = context.cluster.set_filter
    await context.change(
        visitor, "change filter", destination, call, destination, client_id, tables
    )


async def steered(
    context: ConsoleContext,
    visitor: Visitor,
    destination: str,
    client_id: int,
    action: Steer,
    to: str,
) -> None:
    """Pause, resume or seek a subscriber for an operator. Raises AccessDenied; ConfigError."""
    refuse_operating(visitor, destination, client_id)
    if action in ("copy", "rename"):
        refuse_operating(visitor, destination, client_id_of(to))
    if action == "seek" and not to:
        raise ConfigError("say where to: head, tail, FILE:POSITION, a GTID set or a time")
    steer, args = context.cluster.steer, (destination, client_id, action, to)
    await context.change(visitor, action, destination, steer, *args)


def client_id_of(text: str) -> int:
    """Return the client id that a text says. Raises ConfigError: it is none."""
    if not text.isdecimal() or len(text) > _CLIENT_ID_DIGITS_MAX:
        raise ConfigError(f"client_id: a number is needed, not {text[:40]!r}")
    return int(text)


def refuse_operating(visitor: Visitor, destination: str, client_id: int) -> None:
    """Raises AccessDenied: the visitor is no operator of this client id."""
    visitor.refuse_without("subscribe", destination)
    ranges = visitor.user.client_ids
    if ranges is not None and not any(client_id in each for each in ranges):
        raise AccessDenied(f"{visitor.name} may not change client {client_id}").at(
            destination=destination
        )
