"""`subscriber`: what an operator does to one subscriber."""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any

import typer

from ray_canal.cli.answer import down_by
from ray_canal.cli.options import (
    NAMESPACE,
    AsJson,
    Destination,
    Namespace,
    Offline,
    OptionalConfig,
)
from ray_canal.model.position import utc_text
from ray_canal.model.quantities import duration_text, size_text
from ray_canal.model.reports import SubscriberReport


class Action(str, Enum):
    show = "show"
    seek = "seek"
    pause = "pause"
    resume = "resume"
    expire = "expire"
    remove = "remove"
    copy = "copy"
    rename = "rename"
    label = "label"


_WITH_ARGUMENT = {
    Action.seek: "a place: head, tail, earliest, latest, FILE:POSITION, a GTID set or a time",
    Action.copy: "NEW_CLIENT_ID", Action.rename: "NEW_CLIENT_ID", Action.label: "TEXT",
}  # fmt: skip


def subscriber(
    destination: Destination,
    client_id: Annotated[int, typer.Argument(help="As `ray-canal subscribers` shows it.")],
    action: Annotated[Action, typer.Argument(help="What to do.")] = Action.show,
    argument: Annotated[
        str | None,
        typer.Argument(
            help="seek: head, tail, earliest, latest, FILE:POSITION, a GTID set or a time; copy, "
            "rename: the new client id; label: a text."
        ),
    ] = None,
    config: OptionalConfig = None,
    offline: Offline = False,
    as_json: AsJson = False,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Show, move, pause, resume, expire, remove, copy, rename or label a subscriber.

    Also while the destination starts or has failed; with --config, while it is down.
    """
    wanted = _WITH_ARGUMENT.get(action)
    if (argument is None) is not (wanted is None):
        raise typer.BadParameter(f"{action.value} takes {wanted or 'no argument'}")
    import ray_canal as canal

    one = canal.subscriber(
        destination, client_id, config=config, namespace=namespace, offline=offline
    )
    value: Any = argument
    if wanted == "NEW_CLIENT_ID":
        try:
            value = int(str(argument))
        except ValueError:
            raise typer.BadParameter(f"{argument!r} is no client id") from None
    operation = getattr(one, action.value)
    with down_by(config):
        found = operation() if wanted is None else operation(value)
    if as_json:
        typer.echo(json.dumps(found or {"removed": client_id}, indent=2))
        return
    if found is None:
        typer.echo(f"{destination}: client {client_id} is no subscriber any more")
        return
    typer.echo(f"{destination}: client {found['client_id']}")
    for line in lines(found):
        typer.echo(f"  {line}")


def lines(record: SubscriberReport) -> list[str]:
    """Return what there is to tell of a subscriber, for people."""
    return [
        f"{key}: {_TEXTS.get(key, str)(item)}"
        for key, item in record.items()
        if key != "client_id" and item is not None and item is not False and item != ""
    ]


_TEXTS: dict[str, Callable[[Any], str]] = {
    "called_at": utc_text, "expired_at": utc_text, "paused_at": utc_text, "cursor_time": utc_text,
    "last_call_s": duration_text, "seconds_behind": duration_text, "bytes_behind": size_text,
}  # fmt: skip
