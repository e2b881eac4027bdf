"""The REST API: what the pages show and do, as JSON; /api/v1/openapi.json describes it."""

from __future__ import annotations

import itertools
import json
from typing import Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import StreamingResponse

from ray_canal.console.alerts import problems
from ray_canal.console.cluster import Steer, SteerSink, SteerSnapshot
from ray_canal.console.collector import KnownDestination
from ray_canal.console.context import Changer, Reader, TheContext
from ray_canal.console.first_source import FirstSource, check_first, start_first
from ray_canal.console.live_tail import Tails, refuse_hidden, tail
from ray_canal.console.overview import limit, why
from ray_canal.console.quarantine import shown_chunks, told_keys
from ray_canal.console.rows import read_rows
from ray_canal.console.steering import (
    filtered,
    redriven,
    refuse_operating,
    refuse_unknown_sink,
    released,
    removed,
    sink_steered,
    snapshot_steered,
    steered,
    stopped,
)
from ray_canal.errors import InstanceNotRunning
from ray_canal.source.start.lookup import locate, log_of

router = APIRouter(prefix="/api/v1")

_LONG_LIMIT_S = 600.0


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class TablesBody(_Body):
    """A table filter, by Canal's grammar."""

    tables: str = Field(min_length=1, max_length=16384)


class PlaceBody(_Body):
    """Where a subscriber goes on, its label, or its new client id."""

    to: str = Field(max_length=16384)


class SchemaText(_Body):
    """CREATE TABLE statements of the tables as they were; empty: what is known."""

    schema_sql: str = Field("", max_length=49152)


class Keys(_Body):
    """Keys of chunks, as decoding them has given them."""

    keys: str = Field(max_length=49152)


class Tidying(_Body):
    """Which tables of a lake (`database.table`; none: all), and whether to remove old versions'
    files, of what age."""

    tables: list[str] = Field(default_factory=list)
    vacuum: bool = False
    hours: int | None = Field(None, ge=0)


class SnapshotRequest(_Body):
    """Tables to read into a subscriber's log (empty: all it subscribes to). `where` and `columns`
    are for all of them, or by patterns."""

    tables: str = Field("", max_length=16384)
    where: str | dict[str, str] = ""
    columns: list[str] | dict[str, list[str]] = Field(default_factory=list)
    id: str = Field("", max_length=128)
    mode: Literal["", "keyed", "consistent"] = ""


class FilterChanges(_Body):
    """Keys of [instance.filter] to change."""

    changes: dict[str, Any]


def destination_json(known: KnownDestination) -> dict[str, Any]:
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
    """Return who asks, and what for."""
    return {"name": visitor.name, "role": visitor.role, "csrf": visitor.csrf}


@router.get("/destinations")
async def destinations(context: TheContext, visitor: Reader) -> list[dict[str, Any]]:
    """Each destination that runs: state, problems, status."""
    return [destination_json(known) for known in context.visible(visitor)]


@router.get("/destinations/{destination}")
async def destination(destination: str, context: TheContext, visitor: Reader) -> dict[str, Any]:
    """One destination."""
    return destination_json(context.one(visitor, destination))


@router.get("/destinations/{destination}/samples")
async def samples(destination: str, context: TheContext, visitor: Reader) -> list[dict[str, Any]]:
    """The last hour: lag, rate and fill, every half minute."""
    return [
        {
            "at": each.at,
            "lag_seconds": each.lag_seconds,
            "lag_bytes": each.lag_bytes,
            "rows_per_second": each.rows_per_s,
            "fill": each.fill,
        }
        for each in context.one(visitor, destination).samples
    ]


@router.get("/destinations/{destination}/schemas")
async def schemas(
    destination: str, context: TheContext, visitor: Reader, table: str = ""
) -> dict[str, Any]:
    """The tables whose schemas are known, and the versions of one by place, with the DDL."""
    context.one(visitor, destination)
    return dict(await context.call(context.cluster.schema_history, destination, table))


@router.get("/destinations/{destination}/tail")
async def tail_events(
    request: Request,
    destination: str,
    context: TheContext,
    visitor: Reader,
    tables: str = r".*\..*",
    where: str = "",
    start: Literal["head", "tail"] = "tail",
) -> StreamingResponse:
    """Rows as they come, as server-sent events; `start=head`: with what the log still has."""
    context.one(visitor, destination)
    refuse_hidden(where, context.config.hidden_columns)
    tails: Tails = request.app.state.tails
    context.audit.tell(visitor.name, "look at rows", destination, tables=tables, where=where)
    events = tail(context, tails, destination, tables, where, start)
    return StreamingResponse(events, media_type="text/event-stream")


@router.get("/destinations/{destination}/rows")
async def rows(
    request: Request,
    destination: str,
    tables: str,
    context: TheContext,
    visitor: Reader,
    mode: Literal["consistent", "keyed"] = "consistent",
) -> StreamingResponse:
    """The rows that tables hold now, as JSON lines; the first one names the tables, the last one
    says at which place of the log the rows are so, or what went wrong."""
    visitor.refuse_without("subscribe", destination)
    tails: Tails = request.app.state.tails
    context.audit.tell(visitor.name, "read rows", destination, tables=tables)
    config = await context.call(context.cluster.deployment, destination)
    lines = read_rows(tails, config, destination, tables, mode, context.config.hidden_columns)
    first = await context.call(next, lines)
    both = itertools.chain([first], lines)
    return StreamingResponse(both, media_type="application/x-ndjson")


@router.get("/destinations/{destination}/explain")
async def explain(
    destination: str, context: TheContext, visitor: Reader, client_id: int | None = None
) -> dict[str, Any]:
    """Return why nothing (more) comes, to one subscriber if named: stage, evidence, what to do."""
    found = why(context.one(visitor, destination), client_id)
    if found is None:
        raise InstanceNotRunning(f"{destination} has not answered this console yet; ask again")
    return found.as_dict()


@router.get("/destinations/{destination}/position")
async def position(
    destination: str, context: TheContext, visitor: Reader, place: str = "latest"
) -> dict[str, Any]:
    """Return what the source's log has at FILE:POSITION, a time, a GTID, a GTID set, earliest,
    latest."""
    visitor.refuse_without("subscribe", destination)

    def found() -> dict[str, Any]:
        instance = context.cluster.deployment(destination).destination(destination)
        with log_of(instance) as log:
            return locate(instance.source, log, place).as_dict()

    return await context.call(found)


@router.get("/destinations/{destination}/quarantine")
async def quarantine(
    destination: str, context: TheContext, visitor: Reader
) -> list[dict[str, Any]]:
    """Return what is in quarantine, and dead letters: place, tables, size, why."""
    context.one(visitor, destination)
    return await context.call(
        lambda: shown_chunks(context.cluster.deployment(destination), destination)
    )


@router.post("/destinations/{destination}/quarantine/decode")
async def decode_quarantine(
    destination: str, body: SchemaText, context: TheContext, visitor: Changer
) -> dict[str, Any]:
    """Decode what is held, with CREATE TABLE statements if need be; nothing is removed."""
    found = await redriven(context, visitor, destination, body.schema_sql)
    changes = [json.loads(line) for line in found.lines]
    return {"changes": changes, "keys": told_keys(found.keys), "failure": found.failure or None}


@router.post("/destinations/{destination}/quarantine/release")
async def release_quarantine(
    destination: str, body: Keys, context: TheContext, visitor: Changer
) -> dict[str, Any]:
    """Remove what was decoded (its `keys`): you have it."""
    return {"released": await released(context, visitor, destination, body.keys)}


@router.get("/destinations/{destination}/sinks")
async def sinks(
    destination: str, context: TheContext, visitor: Reader
) -> dict[str, dict[str, Any]]:
    """The destination's sinks that run: state, rows, place, error."""
    context.one(visitor, destination)
    return context.collector.sinks_of(destination)


@router.post("/destinations/{destination}/sinks/{name}/compact")
async def compact_sink(
    destination: str, name: str, body: Tidying, context: TheContext, visitor: Changer
) -> dict[str, str]:
    """Join the small files of a lake's tables, also while the sink runs."""
    visitor.refuse_without("admin", destination)
    refuse_unknown_sink(context, destination, name)
    args = (name, body.tables, body.vacuum, body.hours)
    call = context.cluster.compact
    return await context.change(
        visitor, "compact sink", destination, call, *args, limit_s=_LONG_LIMIT_S
    )


@router.post("/destinations/{destination}/sinks/{name}/{action}")
async def steer_sink(
    destination: str,
    name: str,
    action: SteerSink,
    context: TheContext,
    visitor: Changer,
    body: PlaceBody | None = None,
) -> dict[str, Any]:
    """Pause a sink, let it go on, move it to a place (`to`), or stop it."""
    await sink_steered(context, visitor, destination, name, action, body.to if body else "")
    return {action: name}


@router.post("/destinations/{destination}/subscribers/{client_id}/snapshot/{action}")
async def steer_snapshot(
    destination: str, client_id: int, action: SteerSnapshot, context: TheContext, visitor: Changer
) -> dict[str, Any]:
    """Pause, resume or cancel a subscriber's newest snapshot."""
    return await snapshot_steered(context, visitor, destination, client_id, action)


@router.get("/destinations/{destination}/subscribers/{client_id}/snapshot")
async def snapshot(
    destination: str, client_id: int, context: TheContext, visitor: Reader
) -> dict[str, Any]:
    """Return how a subscriber's newest snapshot goes."""
    context.one(visitor, destination)
    return dict(await context.call(context.cluster.snapshot, destination, client_id))


@router.post("/destinations/{destination}/subscribers/{client_id}/snapshot")
async def start_snapshot(
    destination: str, client_id: int, body: SnapshotRequest, context: TheContext, visitor: Changer
) -> dict[str, Any]:
    """Read the rows that tables hold now into a subscriber's log, between the changes."""
    refuse_operating(visitor, destination, client_id)
    args = (destination, client_id, body.tables, body.where, body.columns, body.id, body.mode)
    call = context.cluster.start_snapshot
    return dict(await context.change(visitor, "start snapshot", destination, call, *args))


@router.get("/destinations/{destination}/subscribers")
async def subscribers(
    destination: str, context: TheContext, visitor: Reader
) -> list[dict[str, Any]]:
    """Each subscriber: cursor, how far behind, policy, filter."""
    return context.one(visitor, destination).subscribers


@router.get("/destinations/{destination}/subscribers/{client_id}")
async def show_subscriber(
    destination: str, client_id: int, context: TheContext, visitor: Reader
) -> dict[str, Any]:
    """One subscriber, as its destination knows it now."""
    context.one(visitor, destination)
    return dict(await context.call(context.cluster.subscriber, destination, client_id))


@router.delete("/destinations/{destination}/subscribers/{client_id}")
async def remove_subscriber(
    destination: str, client_id: int, context: TheContext, visitor: Changer
) -> dict[str, Any]:
    """Remove a subscriber and its cursor."""
    await removed(context, visitor, destination, client_id)
    return {"removed": client_id}


@router.post("/destinations/{destination}/subscribers/{client_id}/{action}")
async def steer(
    destination: str,
    client_id: int,
    action: Steer,
    context: TheContext,
    visitor: Changer,
    body: PlaceBody | None = None,
) -> dict[str, Any]:
    """Pause a subscriber, let it go on, expire it, move its cursor (head, tail, FILE:POSITION, a
    GTID set, a time with its zone), label it, copy or rename it (to another client id)."""
    await steered(context, visitor, destination, client_id, action, body.to if body else "")
    return {action: client_id}


@router.put("/destinations/{destination}/subscribers/{client_id}/filter")
async def set_filter(
    destination: str, client_id: int, body: TablesBody, context: TheContext, visitor: Changer
) -> dict[str, Any]:
    """Change a subscriber's table filter; it counts from its next get on."""
    await filtered(context, visitor, destination, client_id, body.tables)
    return {"filter": body.tables}


@router.patch("/destinations/{destination}/filter")
async def set_destination_filter(
    destination: str, body: FilterChanges, context: TheContext, visitor: Changer
) -> dict[str, Any]:
    """Change keys of the destination's own filter, for all that nobody has acknowledged."""
    visitor.refuse_without("admin", destination)
    return await context.change(
        visitor,
        "change the destination's filter",
        destination,
        context.cluster.set_destination_filter,
        destination,
        body.changes,
    )


@router.post("/destinations/{destination}/stop")
async def stop(destination: str, context: TheContext, visitor: Changer) -> dict[str, Any]:
    """Stop a destination; its cursors stay."""
    await stopped(context, visitor, destination)
    return {"stopped": destination}


@router.post("/check")
async def check(body: FirstSource, context: TheContext, visitor: Changer) -> list[dict[str, Any]]:
    """Check a source before a start: settings, grants, reachability."""
    visitor.refuse_without("admin")
    return await context.call(check_first, body)


@router.post("/start")
async def start(body: FirstSource, context: TheContext, visitor: Changer) -> dict[str, Any]:
    """Write a canal.toml for a source, and start it."""
    visitor.refuse_without("admin")
    name, args = body.destination, (context.cluster, context.files, body)
    return await context.change(visitor, "start", name, lambda: start_first(*args))
