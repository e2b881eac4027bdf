"""Operations on a subscriber: pause, resume, seek, expire, copy, rename, label, remove.

The changes of a record are pure. `operate_kept` makes them for a destination that does not run;
one that runs makes them itself, and follows with its log.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Collection
from typing import Literal, get_args

from ray_canal.config import CanalConfig, InstanceConfig
from ray_canal.errors import ConfigError, NotSubscribed
from ray_canal.meta.manager import SubscriberMeta
from ray_canal.meta.subscribers import open_manager, subscriber_report
from ray_canal.model.position import LogPosition
from ray_canal.model.reports import SubscriberReport
from ray_canal.model.snapshot_ledger import restarted
from ray_canal.model.subscription import HEAD, TAIL, is_ephemeral_id, refuse_client_id

Action = Literal[
    "show", "pause", "resume", "seek", "expire", "copy", "rename", "label", "remove"
]
Argument = str | int | None

_LABEL_CHARACTERS_MAX = 200


def refuse_action(action: str, argument: Argument) -> None:
    """Raises ConfigError: there is no such action, or its argument is none."""
    if action not in get_args(Action):
        raise ConfigError(f"action {action!r}: there are {', '.join(get_args(Action))}")
    if action == "seek" and (not isinstance(argument, str) or not argument.strip()):
        raise ConfigError("seek where? head, tail, FILE:POSITION, a GTID set or a time")
    if action in ("copy", "rename"):
        if not isinstance(argument, int):
            raise ConfigError(f"{action} needs the new client id")
        refuse_client_id(argument)
        if is_ephemeral_id(argument):
            raise ConfigError(f"client_id {argument} is one of ephemeral subscriptions; below 2^30")
    if action == "label":
        if not isinstance(argument, str):
            raise ConfigError("label needs a text; an empty one removes the label")
        if len(argument) > _LABEL_CHARACTERS_MAX or not argument.isprintable():
            raise ConfigError(f"a label is one line of at most {_LABEL_CHARACTERS_MAX} characters")


def changed(
    one: SubscriberMeta, action: str, argument: Argument, now_s: int | None = None
) -> SubscriberMeta:
    """Return the record after a pause, resume, label or expire; the same one if that changes
    nothing."""
    now_s = int(time.time()) if now_s is None else now_s
    if action == "pause":
        return one if one.paused else dataclasses.replace(one, paused=now_s)
    if action == "resume":
        return dataclasses.replace(one, paused=0)
    if action == "expire":
        return one if one.expired else dataclasses.replace(one, expired=now_s)
    if action == "label":
        return dataclasses.replace(one, label=str(argument))
    return one


def moved(one: SubscriberMeta, cursor: LogPosition) -> SubscriberMeta:
    """Return the record with another cursor. Nobody has waited for the new place, so neither an
    expiry nor an idle time counts any more; a snapshot that goes on begins again."""
    snapshot = restarted(one.snapshot)
    return dataclasses.replace(
        one, cursor=cursor, idle_s=0, expired=0, snapshot=snapshot, mark=""
    )


def copied(
    one: SubscriberMeta, action: str, client_id: int, known: Collection[int]
) -> SubscriberMeta:
    """Return the record of a copy or a renamed subscriber: same cursor, filter and terms, nobody's
    yet; label and last call go with a renamed one only. Raises ConfigError: that id has a
    subscriber."""
    if client_id == one.client_id:
        raise ConfigError(f"client {client_id} has this id already; give {action} another one")
    if client_id in known:
        raise ConfigError(f"client {client_id} is a subscriber already; remove it first")
    found = dataclasses.replace(one, client_id=client_id, holder="", ephemeral=False, idle_s=0)
    return found if action == "rename" else dataclasses.replace(found, label="", called=0)


def operate_kept(
    config: CanalConfig, destination: str, client_id: int, action: str, argument: Argument = None
) -> SubscriberReport:
    """Change a subscriber where the configuration keeps cursors, and return it; of a removed one
    the last record. For a destination that does not run. The epoch stays, so that its next owner
    loads the change, and an owner that we do not see is not fenced.

    Raises NotSubscribed, ConfigError, MetaUnavailable; of seek SourceError kinds.
    """
    refuse_client_id(client_id)
    refuse_action(action, argument)
    with open_manager(config, destination) as manager:
        known = manager.load(destination)
        if client_id not in known:
            raise NotSubscribed(
                f"there is no subscriber {client_id}; `ray-canal subscribers {destination}` names "
                "all"
            ).at(destination=destination)
        epoch = manager.epoch(destination)
        if action == "show":
            return subscriber_report(known[client_id], {})
        if action == "remove":
            manager.remove(destination, epoch, client_id)
            return subscriber_report(known[client_id], {})
        found = _after(config, destination, known, client_id, action, argument)
        manager.save(destination, epoch, found)
        if action == "rename":
            manager.remove(destination, epoch, client_id)
        return subscriber_report(found, {})


def _after(
    config: CanalConfig,
    destination: str,
    known: dict[int, SubscriberMeta],
    client_id: int,
    action: str,
    argument: Argument,
) -> SubscriberMeta:
    one = known[client_id]
    if action in ("copy", "rename"):
        return copied(one, action, int(argument or 0), known)
    if action == "seek":
        place = str(argument).strip()
        if place == HEAD:
            raise ConfigError(
                "the log of a destination that does not run has no head; say earliest (of the "
                "server's log), or start the destination first"
            ).at(destination=destination)
        return moved(one, sought(config.destination(destination), place))
    return changed(one, action, argument)


def sought(config: InstanceConfig, place: str) -> LogPosition:
    """Return a place of the source's log as a cursor. Raises ConfigError, PositionPurged,
    PositionNotFound, SourceError kinds."""
    # A store loads what searches a log only when somebody seeks: its start is quicker without.
    from ray_canal.source.start.lookup import LATEST, cursor_at

    return cursor_at(config, LATEST if place == TAIL else place)
