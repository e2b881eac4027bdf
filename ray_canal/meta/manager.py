"""The MetaManager: subscribers and their cursors, written under the owner's epoch.

A record is `CRC32 JSON`: what was changed by anything but us is refused, not believed. Records
without a checksum are those of the first version.
"""

from __future__ import annotations

import dataclasses
import json
import time
import zlib
from dataclasses import dataclass
from typing import Any

from ray_canal.errors import ConfigError
from ray_canal.meta.backend import MetaBackend, refused
from ray_canal.model.position import EntryPosition, LogPosition, SourceIdentity
from ray_canal.model.schema_record import SchemaMark
from ray_canal.model.snapshot_ledger import Ledger
from ray_canal.model.subscription import refuse_client_id
from ray_canal.model.timeline import Timeline


@dataclass(frozen=True, slots=True)
class SubscriberMeta:
    """The durable record of a subscriber: its id, its filter, the cursor of what it has acked, and
    what else it asked for (policy "" and transactions None: as the destination has it). `called`:
    when it last subscribed or acked, in seconds since the epoch; 0: not known. `idle_s`: for how
    long the destination had served without a call of its, when that was last written. `expired`:
    when it was given up for that, in seconds since the epoch: the log does not wait for it.
    `ephemeral`: it is removed when its client is silent for a while. `paused`: since when it gets
    nothing because somebody said so, in seconds since the epoch. `label`: what people call it.
    `snapshot`: how far its newest snapshot has come (model/snapshot_ledger.py); empty: none.
    `mark`: what the reader gave with its last ack that had one (spark/log_stream.py); empty: none,
    or the cursor was moved since.
    `schemas`: the newest schema record that was kept when this was written; None: not known."""

    client_id: int
    filter: str
    cursor: LogPosition | None
    policy: str = ""
    transactions: bool | None = None
    holder: str = ""
    called: int = 0
    idle_s: int = 0
    expired: int = 0
    ephemeral: bool = False
    paused: int = 0
    label: str = ""
    snapshot: str = ""
    mark: str = ""
    schemas: SchemaMark | None = None

    @property
    def position(self) -> EntryPosition | None:
        """The cursor's place."""
        return None if self.cursor is None else self.cursor.position

    @property
    def attempt(self) -> int:
        """The number of its newest snapshot's last attempt; 0: none has begun. Raises
        ConfigError."""
        return Ledger.from_json(self.snapshot).attempt if self.snapshot else 0

    def seen(self, **changes: Any) -> SubscriberMeta:
        """Return the record after a call just now that changed this."""
        now_s = int(time.time())
        return dataclasses.replace(self, called=now_s, idle_s=0, expired=0, **changes)

    def to_json(self) -> str:
        """Return it as text; `from_json` reads it."""
        tree = _fields(self)
        if self.cursor is not None:  # asdict would copy it word for word, at each ack
            tree["cursor"] = _tree_of(self.cursor)
        return json.dumps(tree, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> SubscriberMeta:
        """Raises ConfigError: the record is not one of ours."""
        try:
            tree = json.loads(text)
            cursor = tree["cursor"]
            return cls(
                int(tree["client_id"]),
                str(tree["filter"]),
                None if cursor is None else _cursor_of(cursor),
                str(tree.get("policy", "")),
                tree.get("transactions"),
                str(tree.get("holder", "")),
                int(tree.get("called", 0)),
                int(tree.get("idle_s", 0)),
                int(tree.get("expired", 0)),
                bool(tree.get("ephemeral", False)),
                int(tree.get("paused", 0)),
                str(tree.get("label", "")),
                str(tree.get("snapshot", "")),
                str(tree.get("mark", "")),
                _mark_of(tree.get("schemas")),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"a subscriber's record cannot be read ({error}): {text!r}") from None


def _mark_of(tree: Any) -> SchemaMark | None:
    """Raises TypeError, ValueError: it is none."""
    if tree is None:
        return None
    log, journal_name, position = tree
    return str(log), str(journal_name), int(position)


def _tree_of(cursor: LogPosition) -> dict[str, Any]:
    return {"identity": _fields(cursor.identity), "position": _fields(cursor.position)}


def _cursor_of(tree: dict[str, Any]) -> LogPosition:
    """Raises KeyError, TypeError: it is none."""
    return LogPosition(SourceIdentity(**tree["identity"]), EntryPosition(**tree["position"]))


def _fields(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__slots__}


_FILTER_RECORD, _TIMELINE_RECORD, _BATCH_IDS_RECORD, _START_RECORD = -1, -2, -3, -4
_ATTEMPTS_RECORD = -5
"""Client ids under which the destination keeps records of its own, so that they are fenced,
copied and restored with the cursors: its filter, its timeline, the batch ids given out, where its
log began while nobody has subscribed, and how many snapshot attempts removed subscribers had."""


class MetaManager:
    """Subscribers of destinations, timelines, and filters changed at run time. Writes are durable
    when they return, or raise Fenced."""

    def __init__(self, backend: MetaBackend) -> None:
        self._backend = backend

    @property
    def where(self) -> str:
        """Return the name of the backend for error texts."""
        return self._backend.where

    def acquire(self, destination: str, owner: str = "", after: int | None = None) -> int:
        """Own the destination: a new epoch, which fences every earlier owner. Raises Fenced: see
        MetaBackend.acquire."""
        return self._backend.acquire(destination, owner, after)

    def epoch(self, destination: str) -> int:
        """The newest epoch, 0 if nobody ever acquired the destination."""
        return self._backend.epoch(destination)

    def is_newest(self, destination: str, epoch: int) -> bool:
        """Return whether this is the newest epoch, as far as it can be told at once, from any
        thread; False: it is not, or `refuse_fenced` has to be asked."""
        return self._backend.epoch_at_once(destination) == epoch

    def load(self, destination: str) -> dict[int, SubscriberMeta]:
        """Return subscribers by client id; records with ids below 0 are no subscribers. Raises
        ConfigError: a record is damaged; MetaUnavailable."""
        return {
            client_id: self._opened(destination, client_id, record)
            for client_id, record in self._backend.load(destination).items()
            if client_id >= 0
        }

    def client_ids(self, destination: str) -> list[int]:
        """Return the client ids that have a record, damaged or not."""
        return sorted(i for i in self._backend.load(destination) if i >= 0)

    def load_filter(self, destination: str) -> str:
        """The record of the instance's filter; empty: there is none. Raises ConfigError."""
        record = self._backend.load(destination).get(_FILTER_RECORD)
        try:
            return "" if record is None else _unsealed(record)
        except ConfigError as error:
            raise ConfigError(
                f"{self._backend.where}: the record of the destination's filter (client "
                f"{_FILTER_RECORD}) is damaged: {error}. Remove it: then canal.toml's counts"
            ).at(destination=destination) from None

    def save_filter(self, destination: str, epoch: int, text: str) -> None:
        """Empty: forget it. Raises Fenced."""
        if text:
            self._backend.save(destination, epoch, _FILTER_RECORD, _sealed(text))
        else:
            self._backend.remove(destination, epoch, _FILTER_RECORD)

    def load_timeline(self, destination: str) -> Timeline | None:
        """Return the timeline that is kept; None: there is no record yet. Raises ConfigError."""
        record = self._backend.load(destination).get(_TIMELINE_RECORD)
        try:
            return None if record is None else Timeline.from_json(_unsealed(record))
        except ConfigError as error:
            raise ConfigError(
                f"{self._backend.where}: the record of the timeline (client {_TIMELINE_RECORD}) is "
                f"damaged: {error}. Remove it: then a new timeline begins"
            ).at(destination=destination) from None

    def save_timeline(self, destination: str, epoch: int, timeline: Timeline) -> None:
        """Raises Fenced."""
        self._backend.save(destination, epoch, _TIMELINE_RECORD, _sealed(timeline.to_json()))

    def load_batch_ids(self, destination: str) -> int:
        """The highest batch id that may have been given out; 0: none was. Raises ConfigError."""
        record = self._backend.load(destination).get(_BATCH_IDS_RECORD)
        try:
            return 0 if record is None else int(_unsealed(record))
        except (ConfigError, ValueError) as error:
            raise ConfigError(
                f"{self._backend.where}: the record of batch ids (client {_BATCH_IDS_RECORD}) is "
                f"damaged: {error}. Remove it: then they begin at 1 again"
            ).at(destination=destination) from None

    def save_batch_ids(self, destination: str, epoch: int, highest: int) -> None:
        """Raises Fenced."""
        self._backend.save(destination, epoch, _BATCH_IDS_RECORD, _sealed(str(highest)))

    def has_start(self, destination: str) -> bool:
        """Return whether there is a record of where the log began."""
        return _START_RECORD in self._backend.load(destination)

    def load_start(self, destination: str) -> tuple[str, LogPosition] | None:
        """Return what the configuration said, and where the log began that nobody had subscribed
        to. None: there is no record. Raises ConfigError."""
        record = self._backend.load(destination).get(_START_RECORD)
        if record is None:
            return None
        try:
            tree = json.loads(_unsealed(record))
            return str(tree["configured"]), _cursor_of(tree["began"])
        except (ConfigError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{self._backend.where}: the record of the log's beginning (client {_START_RECORD})"
                f" is damaged: {error}. Without subscribers source.start counts"
            ).at(destination=destination) from None

    def save_start(
        self, destination: str, epoch: int, record: tuple[str, LogPosition] | None
    ) -> None:
        """Keep a start; None: forget it. Raises Fenced."""
        if record is None:
            self._backend.remove(destination, epoch, _START_RECORD)
            return
        text = json.dumps({"configured": record[0], "began": _tree_of(record[1])}, sort_keys=True)
        self._backend.save(destination, epoch, _START_RECORD, _sealed(text))

    def _opened(self, destination: str, client_id: int, record: str) -> SubscriberMeta:
        try:
            subscriber = SubscriberMeta.from_json(_unsealed(record))
            if subscriber.client_id != client_id:
                raise ConfigError(f"it is client {subscriber.client_id}'s")
        except ConfigError as error:
            raise ConfigError(
                f"{self._backend.where}: the record of client {client_id} is damaged: {error}. "
                f"Put back a copy, or remove it (`ray-canal unsubscribe {destination} {client_id} "
                "--config CONFIG`): its subscriber then starts from the beginning"
            ).at(destination=destination) from None
        return subscriber

    def refuse_fenced(self, destination: str, epoch: int) -> None:
        """Raises Fenced or EpochLost if `epoch` is not the destination's newest,
        MetaUnavailable."""
        newest = self._backend.epoch(destination)
        if newest != epoch:
            raise refused(destination, epoch, newest)

    def save(self, destination: str, epoch: int, subscriber: SubscriberMeta) -> None:
        """Raises Fenced; ConfigError: no subscriber has this id."""
        refuse_client_id(subscriber.client_id)
        self._backend.save(destination, epoch, subscriber.client_id, _sealed(subscriber.to_json()))

    def load_attempts(self, destination: str) -> int:
        """The highest number of a snapshot attempt of subscribers that were removed; 0: there was
        none. Raises ConfigError."""
        record = self._backend.load(destination).get(_ATTEMPTS_RECORD)
        try:
            return 0 if record is None else int(_unsealed(record))
        except (ConfigError, ValueError) as error:
            raise ConfigError(
                f"{self._backend.where}: the record of snapshot attempts (client "
                f"{_ATTEMPTS_RECORD}) is damaged: {error}. Remove it: then rows of the next "
                "snapshot may have row ids that a removed subscriber has had"
            ).at(destination=destination) from None

    def remove(self, destination: str, epoch: int, client_id: int) -> None:
        """Remove a subscriber; what stays is the number of its last snapshot attempt, if no higher
        one is kept. Raises Fenced; ConfigError: no subscriber has this id, or attempts' record is
        damaged."""
        refuse_client_id(client_id)
        record = self._backend.load(destination).get(client_id)
        try:
            attempt = 0 if record is None else SubscriberMeta.from_json(_unsealed(record)).attempt
        except ConfigError:  # what is damaged can be removed
            attempt = 0
        if attempt > self.load_attempts(destination):
            self._backend.save(destination, epoch, _ATTEMPTS_RECORD, _sealed(str(attempt)))
        self._backend.remove(destination, epoch, client_id)

    def close(self) -> None:
        self._backend.close()


def _sealed(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x} {text}"


def _unsealed(record: str) -> str:
    """Raises ConfigError: the checksum does not fit."""
    if record.startswith("{"):
        return record
    text = record[9:]
    if record[:9] != _sealed(text)[:9]:
        raise ConfigError(f"its checksum does not fit: {record!r}")
    return text
