"""Commands about snapshots into a subscriber's log: start, status, pause, resume, cancel."""

from __future__ import annotations

import json
import sys
import time
from typing import Annotated

import typer

from ray_canal.cli.options import NAMESPACE, AsJson, ClientId, Destination, Namespace
from ray_canal.cli.snapshot import Mode, snapshot
from ray_canal.model.reports import SnapshotReport
from ray_canal.model.subscription import DEFAULT_CLIENT_ID

_ENDED = ("done", "failed", "cancelled")
_WATCH_S = 1.0
_BAR = 24

Watch = Annotated[bool, typer.Option("--watch", help="Show how it goes until it has ended.")]


@snapshot.command()
def start(
    destination: Destination,
    client_id: ClientId = DEFAULT_CLIENT_ID,
    tables: Annotated[
        str, typer.Option(help="Canal regex list over schema.table; all it subscribes to.")
    ] = "",
    where: Annotated[
        list[str] | None,
        typer.Option(help="SQL condition on rows, or PATTERN => CONDITION for some tables."),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(help="Columns a,b besides the key's, or PATTERN => a,b for some tables."),
    ] = None,
    snapshot_id: Annotated[
        str, typer.Option("--id", help="Name it: started twice, it is one.")
    ] = "",
    mode: Annotated[
        Mode | None,
        typer.Option(help="keyed: rows between the changes; consistent: all rows of one moment."),
    ] = None,
    watch: Watch = False,
    as_json: AsJson = False,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Read the rows that tables hold now into a subscriber's log, between the changes."""
    import ray_canal as canal

    conditions, lists = _by_pattern(where or []), _by_pattern(columns or [])
    named = {pattern: _names(text) for pattern, text in lists.items() if pattern}
    found = canal.subscriber(destination, client_id, namespace=namespace).snapshot.start(
        tables,
        where=conditions.get("", "") if set(conditions) <= {""} else conditions,
        columns=named or _names(lists.get("", "")),
        snapshot_id=snapshot_id,
        mode=mode.value if mode else "",
    )
    _show(destination, client_id, namespace, found, watch=watch, as_json=as_json)


@snapshot.command()
def status(
    destination: Destination,
    client_id: ClientId = DEFAULT_CLIENT_ID,
    watch: Watch = False,
    as_json: AsJson = False,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Show how a subscriber's newest snapshot goes: rows, rate, when it ends, what it waits for."""
    _act("status", destination, client_id, namespace, watch=watch, as_json=as_json)


@snapshot.command()
def pause(
    destination: Destination,
    client_id: ClientId = DEFAULT_CLIENT_ID,
    as_json: AsJson = False,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Pause the subscriber's newest snapshot; changes go on."""
    _act("pause", destination, client_id, namespace, as_json=as_json)


@snapshot.command()
def resume(
    destination: Destination,
    client_id: ClientId = DEFAULT_CLIENT_ID,
    watch: Watch = False,
    as_json: AsJson = False,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Go on with a paused or failed snapshot where it was."""
    _act("resume", destination, client_id, namespace, watch=watch, as_json=as_json)


@snapshot.command()
def cancel(
    destination: Destination,
    client_id: ClientId = DEFAULT_CLIENT_ID,
    as_json: AsJson = False,
    namespace: Namespace = NAMESPACE,
) -> None:
    """End a snapshot where it is; changes go on."""
    _act("cancel", destination, client_id, namespace, as_json=as_json)


def _act(
    action: str,
    destination: str,
    client_id: int,
    namespace: str,
    *,
    watch: bool = False,
    as_json: bool = False,
) -> None:
    import ray_canal as canal

    one = canal.subscriber(destination, client_id, namespace=namespace).snapshot
    found = getattr(one, action)()
    _show(destination, client_id, namespace, found, watch=watch, as_json=as_json)


def _by_pattern(texts: list[str]) -> dict[str, str]:
    """Return the texts by the pattern before `=>`; without one, by an empty text."""
    found: dict[str, str] = {}
    for text in texts:
        pattern, arrow, rest = text.partition("=>")
        found[pattern.strip() if arrow else ""] = (rest if arrow else text).strip()
    if "" in found and len(found) > 1:
        raise typer.BadParameter("name a pattern for each (PATTERN => …), or give one for all")
    return found


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _show(
    destination: str,
    client_id: int,
    namespace: str,
    found: SnapshotReport,
    *,
    watch: bool,
    as_json: bool,
) -> None:
    """Print how it goes; with `watch`, until it has ended. Exits with 1 if it has failed."""
    import ray_canal as canal

    one = canal.subscriber(destination, client_id, namespace=namespace).snapshot
    live = watch and not as_json and sys.stdout.isatty()
    while watch and found["state"] not in (*_ENDED, "paused"):
        if live:
            typer.echo(f"\r\033[K{line_of(found)}", nl=False)
        time.sleep(_WATCH_S)
        found = one.status()
    if live:
        typer.echo("\r\033[K", nl=False)
    typer.echo(json.dumps(found, indent=2) if as_json else line_of(found))
    if found["state"] == "failed":
        raise typer.Exit(1)


def line_of(found: SnapshotReport) -> str:
    """Return how a snapshot goes, in a line: bar, rows, rate, time left, what it waits for."""
    rows, estimate = found["rows"], max(found["rows_estimate"], found["rows"], 1)
    share = 1.0 if found["state"] == "done" else min(rows / estimate, 1.0)
    done = round(share * _BAR)
    parts = [
        f"{found['id']} {found['state']}",
        f"[{'#' * done}{'.' * (_BAR - done)}] {share:.0%}",
        f"{rows:,} of about {estimate:,} rows" if found["state"] != "done" else f"{rows:,} rows",
        f"{found['tables_done']} of {found['tables']} tables",
    ]
    if found["rows_per_s"]:
        parts.append(f"{found['rows_per_s']:,.0f} rows/s")
    if found["left_s"] is not None:
        parts.append(f"{found['left_s']:,.0f} s left")
    if found["waits_for"]:
        parts.append(f"waits for {found['waits_for']}")
    if found["place"]:
        parts.append(f"consistent at {found['place']}")
    if found["error"]:
        parts.append(found["error"])
    return ", ".join(parts)
