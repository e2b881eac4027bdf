"""The REST API: what the pages show and do, as JSON; /api/v1/openapi.json describes it."""

from __future__ import annotations

import json
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from ray_canal.console.access import Visitor
from ray_canal.console.alerts import problems
from ray_canal.console.cluster import Steer, SteerSink, SteerSnapshot
from ray_canal.console.collector import Known
from ray_canal.console.desk import Changer, Desk, Reader, TheDesk
from ray_canal.console.first_source import FirstSource, check_first, start_first
from ray_canal.console.overview import limit, why
from ray_canal.console.quarantine import Decoded, decoded, remove_chunks, shown_chunks, told_keys
from ray_canal.destination.diagnosis import diagnose
from ray_canal.errors import AccessDenied, ConfigError, InstanceNotFound
from ray_canal.source.start.lookup import locate, log_of

router = APIRouter(prefix="/api/v1")


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Tables(_Body):
    """A table filter, by Canal's grammar."""

    tables: str = Field(min_length=1, max_length=16384)


class Place(_Body):
    """Where a subscriber goes on, its label, or its new client id."""

    to: str = Field(max_length=16384)


class SchemaText(_Body):
    """CREATE TABLE statements of the tables as they were; empty: what is known."""

    schema_sql: str = Field("", max_length=49152)


class Keys(_Body):
    """Keys of chunks, as decoding them has given them."""

    keys: str = Field(max_length=49152)


class FilterChanges(_Body):
    """Keys of [instance.filter] to change."""

    changes: dict[str, Any]


def described(known: Known) -> dict[str, Any]:
    """Return a destination as JSON-able values."""
    diagnosis = why(known)
    return {
        "name": known.name,
        "state": known.state,
        "answered_at": known.answered_at,
        "silent_since": known.silent_since,
        "error": known.error or None,
        "problems": [
            {
                "alert": each.alert,
                "severity": each.severity,
                "summary": each.summary,
                "detail": each.detail,
                "advice": each.advice,
            }
            for each in problems(known)
        ],
        "bottleneck": limit(known.status) or None,
        "why": None if diagnosis is None else diagnosis.as_dict(),
        "status": known.status,
    }


@router.get("/me")
async def me(visitor: Reader) -> dict[str, Any]:
    """Who asks, and what for."""
    return {"name": visitor.name, "role": visitor.role, "csrf": visitor.csrf}


@router.get("/destinations")
async def destinations(desk: TheDesk, visitor: Reader) -> list[dict[str, Any]]:
    """Each destination that runs: state, problems, status."""
    return [described(known) for known in desk.visible(visitor)]


@router.get("/destinations/{destination}")
async def destination(destination: str, desk: TheDesk, visitor: Reader) -> dict[str, Any]:
    """One destination."""
    return described(desk.one(visitor, destination))


@router.get("/destinations/{destination}/samples")
async def samples(destination: str, desk: TheDesk, visitor: Reader) -> list[dict[str, Any]]:
    """The last hour: lag, rate and fill, every half minute."""
    return [
        {
            "at": each.at,
            "lag_seconds": each.lag_seconds,
            "lag_bytes": each.lag_bytes,
            "rows_per_second": each.rows_per_s,
            "fill": each.fill,
        }
        for each in desk.one(visitor, destination).samples
    ]


@router.get("/destinations/{destination}/schemas")
async def schemas(
    destination: str, desk: TheDesk, visitor: Reader, table: str = ""
) -> dict[str, Any]:
    """The tables whose schemas are known, and the versions of one by place, with the DDL."""
    desk.one(visitor, destination)
    return await desk.call(desk.cluster.schema_history, destination, table)


@router.get("/destinations/{destination}/explain")
async def explain(
    destination: str, desk: TheDesk, visitor: Reader, client_id: int | None = None
) -> dict[str, Any]:
    """Why nothing (more) comes, to one subscriber if named: stage, evidence, what to do."""
    known = desk.one(visitor, destination)
    return diagnose(known.status, known.subscribers, client_id).as_dict()


@router.get("/destinations/{destination}/position")
async def position(
    destination: str, desk: TheDesk, visitor: Reader, place: str = "latest"
) -> dict[str, Any]:
    """What the source's log has at FILE:POSITION, a time, a GTID, a GTID set, earliest, latest."""
    visitor.refuse_without("subscribe", destination)

    def found() -> dict[str, Any]:
        instance = desk.cluster.deployment(destination).destination(destination)
        with log_of(instance) as log:
            return locate(instance.source, log, place).as_dict()

    return await desk.call(found)


@router.get("/destinations/{destination}/quarantine")
async def quarantine(destination: str, desk: TheDesk, visitor: Reader) -> list[dict[str, Any]]:
    """What is in quarantine: place, tables, size."""
    desk.one(visitor, destination)
    return await desk.call(lambda: shown_chunks(desk.cluster.deployment(destination), destination))


@router.post("/destinations/{destination}/quarantine/decode")
async def decode_quarantine(
    destination: str, body: SchemaText, desk: TheDesk, visitor: Changer
) -> dict[str, Any]:
    """Decode what is held, with CREATE TABLE statements if need be; nothing is removed."""
    found = await redriven(desk, visitor, destination, body.schema_sql)
    return {"changes": [json.loads(line) for line in found.lines], "keys": told_keys(found.keys)}


@router.post("/destinations/{destination}/quarantine/release")
async def release_quarantine(
    destination: str, body: Keys, desk: TheDesk, visitor: Changer
) -> dict[str, Any]:
    """Remove what was decoded (its `keys`): you have it."""
    return {"released": await released(desk, visitor, destination, body.keys)}


@router.get("/destinations/{destination}/sinks")
async def sinks(destination: str, desk: TheDesk, visitor: Reader) -> dict[str, dict[str, Any]]:
    """The destination's sinks that run: state, rows, place, error."""
    desk.one(visitor, destination)
    return desk.collector.sinks_of(destination)


@router.post("/destinations/{destination}/sinks/{name}/{action}")
async def steer_sink(
    destination: str, name: str, action: SteerSink, desk: TheDesk, visitor: Changer
) -> dict[str, Any]:
    """Pause a sink, or let it go on."""
    await sink_steered(desk, visitor, destination, name, action)
    return {action: name}


@router.post("/destinations/{destination}/subscribers/{client_id}/snapshot/{action}")
async def steer_snapshot(
    destination: str, client_id: int, action: SteerSnapshot, desk: TheDesk, visitor: Changer
) -> dict[str, Any]:
    """Pause, resume or cancel a subscriber's newest snapshot."""
    return await snapshot_steered(desk, visitor, destination, client_id, action)


@router.get("/destinations/{destination}/subscribers")
async def subscribers(destination: str, desk: TheDesk, visitor: Reader) -> list[dict[str, Any]]:
    """Each subscriber: cursor, how far behind, policy, filter."""
    return desk.one(visitor, destination).subscribers


@router.delete("/destinations/{destination}/subscribers/{client_id}")
async def remove_subscriber(
    destination: str, client_id: int, desk: TheDesk, visitor: Changer
) -> dict[str, Any]:
    """Remove a subscriber and its cursor."""
    await removed(desk, visitor, destination, client_id)
    return {"removed": client_id}


@router.post("/destinations/{destination}/subscribers/{client_id}/{action}")
async def steer(
    destination: str,
    client_id: int,
    action: Steer,
    desk: TheDesk,
    visitor: Changer,
    body: Place | None = None,
) -> dict[str, Any]:
    """Pause a subscriber, let it go on, expire it, move its cursor (head, tail, FILE:POSITION, a
    GTID set, a time with its zone), label it, copy or rename it (to another client id)."""
    await steered(desk, visitor, destination, client_id, action, body.to if body else "")
    return {action: client_id}


@router.put("/destinations/{destination}/subscribers/{client_id}/filter")
async def set_filter(
    destination: str, client_id: int, body: Tables, desk: TheDesk, visitor: Changer
) -> dict[str, Any]:
    """Change a subscriber's table filter; it counts from its next get on."""
    await filtered(desk, visitor, destination, client_id, body.tables)
    return {"filter": body.tables}


@router.patch("/destinations/{destination}/filter")
async def set_destination_filter(
    destination: str, body: FilterChanges, desk: TheDesk, visitor: Changer
) -> dict[str, Any]:
    """Change keys of the destination's own filter, for all that nobody has acknowledged."""
    visitor.refuse_without("admin", destination)
    return await desk.change(
        visitor,
        "change the destination's filter",
        destination,
        desk.cluster.set_destination_filter,
        destination,
        body.changes,
    )


@router.post("/destinations/{destination}/stop")
async def stop(destination: str, desk: TheDesk, visitor: Changer) -> dict[str, Any]:
    """Stop a destination; its cursors stay."""
    await stopped(desk, visitor, destination)
    return {"stopped": destination}


@router.post("/check")
async def check(body: FirstSource, desk: TheDesk, visitor: Changer) -> list[dict[str, Any]]:
    """Check a source before a start: settings, grants, reachability."""
    visitor.refuse_without("admin")
    return await desk.call(check_first, body)


@router.post("/start")
async def start(body: FirstSource, desk: TheDesk, visitor: Changer) -> dict[str, Any]:
    """Write a canal.toml for a source, and start it."""
    visitor.refuse_without("admin")
    name, args = body.destination, (desk.cluster, desk.files, body)
    return await desk.change(visitor, "start", name, lambda: start_first(*args))


async def redriven(desk: Desk, visitor: Visitor, destination: str, schema_sql: str) -> Decoded:
    """Decode what is in quarantine for an operator, and tell the audit log."""
    visitor.refuse_without("subscribe", destination)
    hidden = desk.config.hidden_columns

    def found() -> Decoded:
        return decoded(desk.cluster.deployment(destination), destination, schema_sql, hidden)

    return await desk.change(visitor, "decode quarantine", destination, found)


async def released(desk: Desk, visitor: Visitor, destination: str, keys: str) -> int:
    """Remove quarantined chunks for an admin."""
    visitor.refuse_without("admin", destination)

    def done() -> int:
        return remove_chunks(desk.cluster.deployment(destination), destination, keys)

    return await desk.change(visitor, "release quarantine", destination, done)


async def sink_steered(
    desk: Desk, visitor: Visitor, destination: str, name: str, action: SteerSink
) -> None:
    """Pause or resume a sink for an operator. Raises AccessDenied, InstanceNotFound."""
    visitor.refuse_without("subscribe", destination)
    if name not in desk.collector.sinks_of(destination):
        raise InstanceNotFound(f"no sink {name!r} runs for {destination}")
    await desk.change(
        visitor, f"{action} sink", destination, desk.cluster.steer_sink, name, action
    )


async def snapshot_steered(
    desk: Desk, visitor: Visitor, destination: str, client_id: int, action: SteerSnapshot
) -> dict[str, Any]:
    """Pause, resume or cancel a snapshot for an operator. Raises AccessDenied."""
    _refuse_operating(visitor, destination, client_id)
    steer, args = desk.cluster.steer_snapshot, (destination, client_id, action)
    return await desk.change(visitor, f"{action} snapshot", destination, steer, *args)


async def stopped(desk: Desk, visitor: Visitor, destination: str) -> None:
    """Stop a destination for an admin."""
    visitor.refuse_without("admin", destination)
    await desk.change(visitor, "stop", destination, desk.cluster.stop, destination)


async def removed(desk: Desk, visitor: Visitor, destination: str, client_id: int) -> None:
    """Remove a subscriber: an admin any, an operator one of their own client ids."""
    owned = any(client_id in each for each in visitor.user.client_ids or ())
    visitor.refuse_without("subscribe" if owned else "admin", destination)
    await desk.change(
        visitor, "remove subscriber", destination, desk.cluster.unsubscribe, destination, client_id
    )


async def filtered(
    desk: Desk, visitor: Visitor, destination: str, client_id: int, tables: str
) -> None:
    """Change a subscriber's filter for an operator. Raises AccessDenied."""
    _refuse_operating(visitor, destination, client_id)
    await desk.change(
        visitor,
        "change filter",
        destination,
        desk.cluster.set_filter,
        destination,
        client_id,
        tables,
    )


async def steered(
    desk: Desk, visitor: Visitor, destination: str, client_id: int, action: Steer, to: str
) -> None:
    """Pause, resume or seek a subscriber for an operator. Raises AccessDenied; ConfigError."""
    _refuse_operating(visitor, destination, client_id)
    if action == "seek" and not to:
        raise ConfigError("say where to: head, tail, FILE:POSITION, a GTID set or a time")
    steer, args = desk.cluster.steer, (destination, client_id, action, to)
    await desk.change(visitor, action, destination, steer, *args)


def _refuse_operating(visitor: Visitor, destination: str, client_id: int) -> None:
    visitor.refuse_without("subscribe", destination)
    ranges = visitor.user.client_ids
    if ranges is not None and not any(client_id in each for each in ranges):
        raise AccessDenied(f"{visitor.name} may not change client {client_id}").at(
            destination=destination
        )
