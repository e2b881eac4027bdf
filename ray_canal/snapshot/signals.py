"""Signals: requests for snapshots in rows of a table with columns id, type and data, as Debezium
has them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.errors import ConfigError
from ray_canal.model.snapshot_wish import CONSISTENT, KEYED, SnapshotWish
from ray_canal.views.arrow import batches

_ACTIONS = {
    "execute-snapshot": "start",
    "stop-snapshot": "cancel",
    "pause-snapshot": "pause",
    "resume-snapshot": "resume",
}
_MODES = {"": "", "incremental": KEYED, "blocking": CONSISTENT}
"""Debezium's types of snapshots: between the changes, or all rows before the next change."""


@dataclass(frozen=True, slots=True)
class Signal:
    """`action`: what to do with the snapshot of a subscriber, None: of each. `id`: the same signal
    is done once, however often it is read. `mode`: empty if the signal does not say."""

    id: str
    action: str
    wishes: tuple[SnapshotWish, ...] = ()
    client_id: int | None = None
    mode: str = ""


def inserted(chunk: DecodedChunk, schema: str, table: str) -> Iterator[dict[str, Any]]:
    """The rows that a chunk inserts into a table, names of columns in lower case."""
    for batch in batches(chunk, 0, chunk.layout.event_count):
        about = batch.schema.metadata
        if (about[b"canal.schema"].decode(), about[b"canal.table"].decode()) == (schema, table):
            for row in batch.select(["event_type", "after"]).to_pylist():
                if row["event_type"] == "INSERT":
                    yield {name.lower(): value for name, value in row["after"].items()}


def signal_of(row: dict[str, Any]) -> Signal:
    """Raises ConfigError: it cannot be understood."""
    name, kind = str(row.get("id") or ""), str(row.get("type") or "").lower()
    if not name:
        raise ConfigError("a signal needs an id")
    if kind not in _ACTIONS:
        raise ConfigError(f"signal {name}: type {kind!r}: expected {', '.join(_ACTIONS)}")
    try:
        data = json.loads(row.get("data") or "{}")
        if not isinstance(data, dict):
            raise TypeError("no JSON object")
        client_id = data.get("client_id")
        wishes = _wishes(data) if _ACTIONS[kind] == "start" else ()
        mode = _MODES[str(data.get("type") or "").lower()]
        client_id = None if client_id is None else int(client_id)
        return Signal(name, _ACTIONS[kind], wishes, client_id, mode)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(f"signal {name}: its data cannot be understood ({error})") from None


def _wishes(data: dict[str, Any]) -> tuple[SnapshotWish, ...]:
    tables = data["data-collections"]
    if not isinstance(tables, list) or not tables:
        raise TypeError("data-collections is no list of tables")
    conditions = {
        str(each["data-collection"]): str(each["filter"])
        for each in data.get("additional-conditions") or ()
    }
    unknown = set(conditions) - set(map(str, tables))
    if unknown:
        raise TypeError(f"additional-conditions of {min(unknown)}, which is none of its tables")
    return tuple(SnapshotWish(str(name), conditions.get(str(name), "")) for name in tables)
