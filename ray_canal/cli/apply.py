"""`apply`: show what a configuration changes of what runs, then change it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from ray_canal.cli.answer import answer
from ray_canal.cli.options import ConfigPath
from ray_canal.cli.ports import open_ports, port_lines, port_plans


def apply(
    config: ConfigPath,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show it, change nothing.")] = False,
    remove: Annotated[
        bool, typer.Option("--remove", help="Stop what runs here and is not in CONFIG.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The plan, machine-readable.")] = False,
) -> None:
    """Show what CONFIG changes of the destinations that run, then change it.

    What does not differ goes on untouched; what differs is started over at its cursors.
    """
    from ray_canal.client.apply import apply as applied
    from ray_canal.client.apply import plan
    from ray_canal.config import load
    from ray_canal.sinks.actor import apply_sinks, sink_plan

    deployment = load(config)
    sinks = sink_plan(deployment, remove=remove)
    found = {**plan(deployment), "ports": port_plans(deployment), "sinks": sinks}
    answer(found, *plan_lines(found, remove=remove), as_json=as_json)
    if dry_run or not is_change(found, remove=remove):
        return
    if not yes:
        typer.confirm("Apply?", abort=True, err=as_json)
    try:
        applied(deployment, remove=remove)
        opened = port_lines(open_ports(deployment))
        apply_sinks(deployment, remove=remove)
    except KeyboardInterrupt:
        for line in interrupted_lines(found, plan(deployment)):
            typer.echo(line, err=True)
        raise
    for line in () if as_json else (*opened, "applied"):
        typer.echo(line)


def interrupted_lines(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return what an apply has begun and what it has not, of the plan before it and the one now."""
    begun = [name for name in (*before["add"], *before["change"]) if name in now["same"]]
    return [
        *(f"{name}: begun, and goes on; `ray-canal stop {name}` stops it" for name in begun),
        *(f"{name}: not begun" for name in now["add"]),
        *(f"{name}: not changed" for name in now["change"]),
        "interrupted: nothing of it is undone; `ray-canal apply` again does the rest",
    ]


def is_change(found: Mapping[str, Any], *, remove: bool) -> bool:
    """Return whether there is anything to do."""
    gone = remove and (found["unlisted"] or found["server"] == "unlisted")
    ports = any(what != "same" for what in found["ports"].values())
    server = found["server"] in ("open", "reopen")
    sinks = any(what != "same" and (remove or what != "unlisted")
                for what in found["sinks"].values())  # fmt: skip
    return bool(found["add"] or found["change"] or server or ports or sinks or gone)


def plan_lines(found: Mapping[str, Any], *, remove: bool) -> list[str]:
    """Return a plan as a diff: `+` is started, `~` is changed, `-` is stopped, `=` goes on."""
    lines = [f"+ destination {name}" for name in found["add"]]
    for name, values in found["change"].items():
        lines.append(f"~ destination {name}: started over at its cursors")
        lines += [f"    {key}: {before} -> {after}" for key, (before, after) in values.items()]
    server = found["server"]
    if server == "open":
        lines.append("+ Canal's TCP port")
    elif server == "reopen":
        keys = ", ".join(found["server_keys"])
        lines.append(f"~ Canal's TCP port: reopened, its clients connect again ({keys})")
    for title, what in found["ports"].items():
        if what == "open":
            lines.append(f"+ {title}")
        elif what != "same":
            lines.append(f"~ {title}: opened again, who is connected comes again ({what})")
    how = {"start": "+ sink {}", "restart": "~ sink {}: started over where it is"}
    lines += [how[what].format(name) for name, what in found["sinks"].items() if what in how]
    gone = "- {}: stopped, its cursors stay" if remove else (
        "= {}: not in this file, goes on (--remove stops it)"
    )  # fmt: skip
    lines += [gone.format(f"destination {name}") for name in found["unlisted"]]
    sinks = found["sinks"].items()
    lines += [gone.format(f"sink {name}") for name, what in sinks if what == "unlisted"]
    if server == "unlisted":
        lines.append(gone.format("Canal's TCP port"))
    lines += [f"= destination {name}" for name in found["same"]]
    lines += [f"= sink {name}" for name, what in sinks if what == "same"]
    return lines if lines else ["nothing runs, and nothing is in the file"]
