"""Commands about who has subscribed: list, remove, change a filter."""

from __future__ import annotations

from typing import Annotated

import typer

from ray_canal.cli.answer import answer, down_by
from ray_canal.cli.options import (
    NAMESPACE,
    NOTHING,
    AsJson,
    ClientId,
    Destination,
    Namespace,
    Offline,
    OptionalConfig,
)


def subscribers(
    destination: Annotated[
        str | None, typer.Argument(help="One destination; all if left out.")
    ] = None,
    config: OptionalConfig = None,
    as_json: AsJson = False,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Show who has subscribed: cursor, filter, last call, how far behind, what keeps it.

    Also while a destination starts or has failed; with --config, while it is down."""
    import ray_canal as canal
    from ray_canal.render import subscriber_lines

    with down_by(config):
        found = canal.subscribers(destination, config=config, namespace=namespace)
    lines = []
    for name, records in found.items():
        lines.append(f"{name}: {'subscribers' if records else 'no subscriber'}")
        lines += [f"  {line}" for line in subscriber_lines(records)] if records else []
    if not found:
        lines = [NOTHING]
    answer(found, *lines, as_json=as_json)


def unsubscribe(
    destination: Destination,
    client_id: Annotated[int, typer.Argument(help="As `ray-canal subscribers` shows it.")],
    config: OptionalConfig = None,
    offline: Offline = False,
    as_json: AsJson = False,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Remove a subscriber and its cursor: the log no longer waits for it.

    Also while the destination starts or has failed; with --config, while it is down."""
    import ray_canal as canal

    with down_by(config):
        canal.unsubscribe(
            destination, client_id, config=config, namespace=namespace, offline=offline
        )
    line = f"{destination}: client {client_id} is no subscriber any more"
    answer({"removed": client_id}, line, as_json=as_json)


def filter_(
    destination: Destination,
    tables: Annotated[str, typer.Argument(help="Canal regex list over schema.table.")] = "",
    client_id: ClientId = 1001,
    instance: Annotated[
        bool, typer.Option("--instance", help="The destination's own filter, not a subscriber's.")
    ] = False,
    keys: Annotated[
        list[str] | None,
        typer.Option("--set", help="KEY=VALUE of instance.filter; with --instance, repeatable."),
    ] = None,
    as_json: AsJson = False,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Change a subscriber's table filter while it reads; it counts from its next get on.

    With --instance the destination's own: it counts for all that no subscriber has acked."""
    import ray_canal as canal

    pairs = [pair.partition("=") for pair in keys or ()]
    if (pairs and not instance) or not (tables or pairs) or not all(eq for _, eq, _ in pairs):
        raise typer.BadParameter("give TABLES; or --instance with TABLES or --set KEY=VALUE")
    if instance:
        changes = {key: value for key, _, value in pairs}
        if tables:
            changes["tables"] = tables
        found = canal.set_instance_filter(destination, namespace=namespace, **changes)
        answer(found, f"{destination}: the destination reads {found['tables']}", as_json=as_json)
        return
    canal.set_filter(destination, tables, client_id=client_id, namespace=namespace)
    found = {"client_id": client_id, "filter": tables}
    answer(found, f"{destination}: client {client_id} reads {tables}", as_json=as_json)
