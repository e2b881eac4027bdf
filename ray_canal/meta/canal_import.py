"""Canal's `meta.dat` (FileMixedMetaManager): subscribers and cursors of one destination, as JSON.

    {"clientDatas": [{"clientIdentity": {"clientId", "destination", "filter"},
                      "cursor": {"identity": {"slaveId", "sourceAddress": {"address", "port"}},
                                 "postion": {"gtid", "included", "journalName", "position",
                                             "serverId", "timestamp"}}}],
     "destination"}

(`postion` is Canal's spelling.) Or one `cursor`, as ZooKeeper has it of each client: with an
`@type`, and without the client's id, which is in the record's path.

Canal's cursor is where the last acked entry *begins*: the transaction's end, or a DDL statement. So
that one entry comes again, and nothing is left out. Whose log it is of is asked
(source/start/canal_cursors.py).
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from ray_canal.config import CanalConfig
from ray_canal.errors import ConfigError
from ray_canal.meta.manager import MetaManager, SubscriberMeta
from ray_canal.meta.open import open_backend
from ray_canal.model.position import EntryPosition, LogPosition, SourceIdentity
from ray_canal.model.subscription import refuse_client_id
from ray_canal.source.start.canal_cursors import tied

CANALS_CLIENT_ID = 1001
"""That of Canal's Java client and of its producers for message queues."""


def read_meta_dat(path: Path) -> tuple[str, list[SubscriberMeta]]:
    """Return the destination of a `meta.dat`, and its subscribers; of a cursor of ZooKeeper "" and
    Canal's own client. Raises ConfigError."""
    try:
        tree = _tree(path.read_text(encoding="utf-8"))
        found = [_subscriber(client) for client in tree["clientDatas"]]
        return str(tree.get("destination") or ""), found
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{path} is not a meta.dat of Canal: {type(error).__name__} {error}. Canal leaves it "
            "empty or cut when it ends during a write: take an older copy, or give the "
            'destination source.start = "position"'
        ) from None


def _tree(text: str) -> Any:
    """Return what a file has, as meta.dat has it. Raises ValueError."""
    start = text.lstrip()
    if not start.startswith('{"@type"'):
        return json.loads(text)
    cursor, _ = json.JSONDecoder().raw_decode(start)  # zkCli.sh prints more behind it
    client = {"clientId": CANALS_CLIENT_ID, "filter": ""}
    return {"clientDatas": [{"clientIdentity": client, "cursor": cursor}]}


def _subscriber(client: dict[str, Any]) -> SubscriberMeta:
    identity = client["clientIdentity"]
    cursor, client_id = client.get("cursor"), int(identity["clientId"])
    refuse_client_id(client_id)
    return SubscriberMeta(
        client_id,
        str(identity.get("filter") or ""),
        None if cursor is None else _position(cursor),
    )


def _position(cursor: dict[str, Any]) -> LogPosition:
    place = cursor.get("postion") or cursor["position"]
    source = (cursor.get("identity") or {}).get("sourceAddress") or {}
    address = f"{source.get('address', '')}:{source.get('port', '')}".strip(":")
    return LogPosition(
        SourceIdentity(address),
        EntryPosition(
            str(place["journalName"]),
            int(place["position"]),
            gtid=str(place.get("gtid") or ""),
            timestamp=int(place.get("timestamp") or 0) // 1000,
        ),
    )


def import_meta(
    config: CanalConfig,
    path: Path,
    destination: str = "",
    *,
    replace: bool = False,
    server_uuid: str = "",
    unchecked: bool = False,
) -> tuple[str, list[SubscriberMeta]]:
    """Write a `meta.dat`'s cursors where the configuration keeps cursors; what was written.

    `destination` "": the file's own. `server_uuid`: whose log the cursors are of, if the address in
    the file does not tell. `unchecked`: ask no server; then each cursor is looked at when the
    destination starts. A destination that runs is fenced, so stop it before. Raises ConfigError:
    not a meta.dat; no such destination; a subscriber has a cursor already, and not `replace`; the
    cursors are not of the destination's server.
    """
    named, subscribers = read_meta_dat(path)
    name = destination or named
    if not name:
        raise ConfigError(f"{path} names no destination: give it as --destination NAME")
    source = config.destination(name).source
    if config.meta.backend == "memory":
        raise ConfigError('meta.backend = "memory" keeps nothing; there is nowhere to import to')
    if not unchecked:
        placed = [s for s in subscribers if s.cursor is not None]
        cursors = tied(source, [s.cursor for s in placed if s.cursor is not None], server_uuid)
        found = {s.client_id: cursor for s, cursor in zip(placed, cursors, strict=True)}
        subscribers = [dataclasses.replace(s, cursor=found.get(s.client_id)) for s in subscribers]
    manager = MetaManager(open_backend(config.meta))
    try:
        known = manager.load(name)
        taken = [s.client_id for s in subscribers if s.client_id in known]
        if taken and not replace:
            raise ConfigError(
                f"clients {taken} of destination {name} have cursors already: "
                + ", ".join(_shown(known[client_id]) for client_id in taken)
                + "; --replace overwrites them"
            )
        epoch = manager.acquire(name)
        for subscriber in subscribers:
            manager.save(name, epoch, subscriber)
    finally:
        manager.close()
    return name, subscribers


def _shown(subscriber: SubscriberMeta) -> str:
    at = "no cursor" if subscriber.cursor is None else str(subscriber.cursor.position)
    return f"{subscriber.client_id} at {at}"
