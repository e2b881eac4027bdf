"""`status` and `explain`: how it goes, for people first.

One screen: a line for each destination, and below it what somebody has to know. `--details` shows
every value, `--json` is for programs.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from ray_canal.cli.options import NAMESPACE, NOTHING, AsJson, Destination, Namespace
from ray_canal.destination.status.bottleneck import bottleneck, slowest
from ray_canal.destination.status.diagnosis import diagnose
from ray_canal.model.metrics import value_at
from ray_canal.model.quantities import duration_text, rate_text, size_text

HEADINGS = (
    "destination", "state", "lag", "to read", "rows/s", "slowest subscriber", "purge in",
    "bottleneck",
)  # fmt: skip


def status(
    destination: Annotated[
        str | None, typer.Argument(help="One destination; all if left out.")
    ] = None,
    details: Annotated[bool, typer.Option("--details", help="Every value.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Again and again until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(min=0.1, help="With --watch: seconds between.")] = 2.0,
    as_json: AsJson = False,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Show each destination on a line: state, lag, rate, slowest subscriber, bottleneck."""
    import ray_canal as canal
    from ray_canal.cli.standby import waiting_text

    with contextlib.suppress(KeyboardInterrupt):
        while True:
            found = canal.status(destination, namespace=namespace)
            if not found and not as_json and (waits := waiting_text(namespace)):
                typer.echo(waits)
            else:
                _show(found, details=details, as_json=as_json, again=watch)
            if not as_json:
                for name, told in canal.sink_status(namespace=namespace).items():
                    if destination in (None, told["destination"]):
                        typer.echo(sink_line(name, told))
            if not watch:
                return
            time.sleep(every)


def sink_line(name: str, told: Mapping[str, Any]) -> str:
    """Return a sink's state as a line, and what keeps it as a second one."""
    line = f"sink {name}: {told['destination']} -> {told['type']}, {told['state']}"
    if "rows" in told:
        line += f", {told['rows']} rows in {told['commits']} commits"
    line += f", at {told['cursor']}" if told.get("cursor") else ""
    if told.get("tables_aside"):
        line += f"; set aside: {', '.join(told['tables_aside'])}"
    errors = (told.get("error"), told.get("snapshot_error"))
    return "\n  ".join([line, *(error for error in errors if error)])


def _show(
    found: Mapping[str, Mapping[str, Any]], *, details: bool, as_json: bool, again: bool
) -> None:
    from rich.console import Console

    from ray_canal.render import plain, status_table

    if as_json:
        tree = {name: plain(value) for name, value in found.items()}
        typer.echo(json.dumps(tree, indent=None if again else 2))
        return
    console = Console()
    if again:
        console.clear()
    if not found:
        typer.echo(NOTHING)
        return
    if details:
        for name, value in found.items():
            console.print(status_table(name, dict(value)))
        return
    for line in overview(found):
        typer.echo(line)


def overview(statuses: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the lines of the screen: a heading, a line for each destination, and a paragraph for
    each that waits or has a problem."""
    rows = [HEADINGS, *(_row(name, value) for name, value in statuses.items())]
    lines = _aligned(rows)
    notes = []
    for name, value in statuses.items():
        answer = diagnose({"destination": name, **value}, _places(value))
        if answer.severity != "ok":
            notes.append(str(answer))
        notes += [
            f"{name}: the snapshot of subscriber {each['client_id']} has failed: {each['error']}"
            for each in value.get("snapshots") or ()
            if each["state"] == "failed"
        ]
    return [*lines, *([""] if notes else []), *notes]


def _row(name: str, value: Mapping[str, Any]) -> tuple[str, ...]:
    lag_s, lag_bytes = value.get("lag_seconds"), value.get("lag_bytes")
    rate, purge_s = value.get("rows_per_second"), value_at(value, "purge.seconds")
    limit = bottleneck(value)
    state = str(value.get("state"))
    if state == "running" and not value.get("connected"):
        state = "disconnected"
    return (
        name,
        state,
        "-" if lag_s is None else duration_text(lag_s),
        "-" if lag_bytes is None else size_text(lag_bytes),
        "-" if rate is None else rate_text(rate),
        _slowest(value),
        "-" if purge_s is None else duration_text(max(purge_s, 0.0)),
        "-" if limit is None else f"{limit.stage} {limit.percent:.0f} %".removesuffix(" 0 %"),
    )


def _slowest(value: Mapping[str, Any]) -> str:
    found = slowest(value)
    if found is None:
        return "-"
    client_id, place = found
    if place.get("failure"):
        return f"{client_id}: failed"
    if place.get("detached"):
        return f"{client_id}: catches up"
    return f"{client_id}: {size_text(place.get('bytes_behind') or 0)}"


def _places(value: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the subscribers as `subscribers` would have them, as far as a status knows them."""
    places = value_at(value, "store.subscribers", {})
    return [
        {**place, "client_id": int(client_id), "cursor": place.get("acked")}
        for client_id, place in places.items()
    ]


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def explain(
    destination: Destination,
    client_id: Annotated[
        int | None, typer.Option("--client-id", help="Why nothing comes to this subscriber.")
    ] = None,
    as_json: AsJson = False,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Say why nothing comes: the stage, the evidence, what to do. Also while it has failed.

    Exits with 1 if somebody has to act.
    """
    from ray_canal.client.explain import explain as explained

    answer = explained(destination, client_id, namespace=namespace)
    typer.echo(json.dumps(answer.as_dict(), indent=2) if as_json else str(answer))
    if answer.severity == "problem":
        raise typer.Exit(1)
