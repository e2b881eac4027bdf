"""Terms of a subscription besides its filter."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias, get_args

from ray_canal.errors import ConfigError
from ray_canal.model.position import EntryPosition
from ray_canal.model.snapshot_wish import SnapshotStart

Policy = Literal["block", "spill", "detach"]
HEAD, TAIL = "head", "tail"
_LIKE_GTIDS = re.compile(r"[0-9A-Fa-f]{8}-|[0-9A-Fa-f]{32}|\d+-\d+-\d+")
"""A server's UUID, or MariaDB's domain, server and number."""

DEFAULT_CLIENT_ID = 1001
"""The client id that Canal's Java client always uses."""

StartWish: TypeAlias = str | EntryPosition | datetime
"""HEAD: the oldest entry of the log. TAIL: after the newest whole transaction of the log. A place
in the binlog. Any other text: a GTID set, of what was consumed already. A time: the first
transaction at or after it."""


TCP_HOLDER = "tcp:"
"""Prefix of holders that are connections of Canal's TCP protocol. Alone: a connection that
has not subscribed itself, as a Canal client may do that returns."""


def shares(holder: str, known: str) -> bool:
    """Return whether `holder` may make calls for a subscriber that `known` has subscribed last.

    Canal's clients open connection after connection for one subscriber, so its TCP connections are
    not told apart here. Holders are empty where nobody in particular calls (a person's command) or
    has subscribed."""
    both_tcp = holder.startswith(TCP_HOLDER) and (not known or known.startswith(TCP_HOLDER))
    return not holder or holder == known or both_tcp


def may_unsubscribe(holder: str, known: str) -> bool:
    """Return whether `holder` may end a subscription whose last holder was `known`: one that was
    replaced meanwhile may not."""
    return shares(holder, known) and (not known or holder in ("", TCP_HOLDER, known))


@dataclass(frozen=True, slots=True)
class Subscription:
    """None: as it was; the first time, as the destination has it. `policy`: what happens when it is
    a whole log behind. `transactions`: it gets whole transactions. `start`: where it starts the
    first time (HEAD); no more looked at when it has a cursor. `ephemeral`: it ends when its client
    is silent for EPHEMERAL_S. `snapshot`: whether it gets the rows that tables hold, too."""

    policy: Policy | None = None
    transactions: bool | None = None
    start: StartWish | None = None
    ephemeral: bool = False
    snapshot: SnapshotStart | None = None


EPHEMERAL_S = 20.0
"""More than `Attendance` counts at once: a store that was held up itself makes nobody look gone."""
_EPHEMERAL_IDS = range(1 << 30, 1 << 31)


def new_client_id() -> int:
    """Return a client id for an ephemeral subscription; two are alike once in a thousand million
    times."""
    return secrets.choice(_EPHEMERAL_IDS)


def is_ephemeral_id(client_id: int) -> bool:
    """Return whether the id may be one that `new_client_id` gave."""
    return client_id in _EPHEMERAL_IDS


def refuse_client_id(client_id: int) -> None:
    """Raises ConfigError: no subscriber can have this id, or its cursor cannot be kept."""
    if not 0 <= client_id < 1 << 63:
        raise ConfigError(f"client_id {client_id}: ids begin at 0 and have at most 63 bits")


def refuse_wishes(wishes: Subscription) -> None:
    """Raises ConfigError: nothing that there is."""
    if wishes.policy is not None and wishes.policy not in get_args(Policy):
        raise ConfigError(f"policy {wishes.policy!r}: there are {', '.join(get_args(Policy))}")
    if wishes.snapshot is not None and wishes.snapshot not in get_args(SnapshotStart):
        raise ConfigError(
            f"snapshot {wishes.snapshot!r}: there are {', '.join(get_args(SnapshotStart))}"
        )
    if isinstance(wishes.start, datetime) and wishes.start.tzinfo is None:
        raise ConfigError(f"start {wishes.start.isoformat()} has no time zone; give it one")
    text = wishes.start if isinstance(wishes.start, str) else ""
    if text not in (HEAD, TAIL, "") and not _LIKE_GTIDS.search(text):
        raise ConfigError(
            f"start {text!r}: as text it is {HEAD!r} (with what the log still has), {TAIL!r} (with "
            "what comes now) or a GTID set"
        )
