"""Messages that a consumer gives up: kept where the schemas are, and given back to it later.

They lie next to quarantined events and the decoder's dead letters; redrive.py gives them, too. No
Ray: the store is opened directly. Nothing limits them but who gives up.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Protocol

import pyarrow as pa

from ray_canal.config import CanalConfig, load
from ray_canal.errors import CorruptEvent
from ray_canal.meta.open import open_schema_store
from ray_canal.meta.schema_store import chunk_key
from ray_canal.model.position import EntryPosition
from ray_canal.model.schema_record import EVENT_AT, Quarantined, QuarantinedChunk
from ray_canal.views.ipc_stream import ipc_stream
from ray_canal.views.row_places import RowPlace, place_at

_CLIENT = "client "
_PLACE = ("journal_name", "position", "row")


class GivenUp(Protocol):
    """A message as it is kept: its Arrow batches, and where it begins."""

    @property
    def id(self) -> int:
        """Return the batch's id."""
        ...

    @property
    def start(self) -> EntryPosition | None: ...

    @property
    def batches(self) -> Sequence[pa.RecordBatch]:
        """Return its rows, a record batch for each table."""
        ...


@dataclass(frozen=True, slots=True)
class Letter:
    """A message that was given up: when (seconds since the epoch), why, and its batches."""

    at: float
    reason: str
    batches: list[pa.RecordBatch]


class DeadLetters:
    """Messages that one subscriber has given up. Use it as a context manager, or close it."""

    def __init__(
        self,
        config: str | os.PathLike[str] | dict[str, Any] | CanalConfig,
        destination: str,
        client_id: int,
    ) -> None:
        """Raises ConfigError: no such destination, the store is damaged; MetaUnavailable."""
        deployment = load(config)
        path = deployment.destination(destination).tsdb.path
        self._destination = destination
        self._client_id = client_id
        self._store = open_schema_store(deployment.meta, path)

    def keep(self, message: GivenUp, reason: str) -> None:
        """Keep a message, durably; acknowledge it afterwards. Keeping it twice changes nothing; one
        that came again with other rows is another one. Raises MetaUnavailable, OSError."""
        start = message.start or EntryPosition("", message.id)
        batches = list(message.batches)
        where = (
            f"the message of {_CLIENT}{self._client_id} at {start.journal_name}:{start.position}"
        )
        at, streams = time.time(), [ipc_stream(batch) for batch in batches]
        kept = Quarantined(
            f"{_CLIENT}{self._client_id} {_name(batches, streams)}",
            start.journal_name,
            start.position,
            ((EVENT_AT, where),),
            at,
            reason,
            _packed(at, reason, streams),
        )
        self._store.quarantine(self._destination, [kept])

    def __len__(self) -> int:
        return len(self._mine())

    def _mine(self) -> list[QuarantinedChunk]:
        held = self._store.quarantined(self._destination)
        mine = [chunk for chunk in held if is_message_of(chunk, self._client_id)]
        return sorted(mine, key=lambda chunk: chunk.server.split()[2:3])  # by timeline

    def redrive(self, *, keep: bool = False) -> Generator[Letter]:
        """Yield each letter, in the log's order. It is removed when the next one is asked for, so
        do what is to be done with it first. `keep`: none is removed."""
        for chunk in self._mine():
            data = self._store.quarantined_data(self._destination, chunk_key(chunk))
            if data is None:  # somebody else has taken it
                continue
            yield unpack(data)
            if not keep:
                self._store.release(self._destination, chunk_key(chunk))

    def close(self) -> None:
        """Release the store."""
        self._store.close()

    def __enter__(self) -> DeadLetters:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


def is_message(chunk: QuarantinedChunk) -> bool:
    """Return whether what is held is a consumer's message, not bytes of a log."""
    return chunk.server.startswith(_CLIENT)


def is_message_of(chunk: QuarantinedChunk, client_id: int) -> bool:
    """Return whether what is held is a message that this subscriber gave up."""
    return chunk.server.split()[:2] == [_CLIENT.strip(), str(client_id)]


def pack(letter: Letter) -> bytes:
    """Return a letter as bytes: a line of JSON, then each batch as an Arrow stream."""
    return _packed(letter.at, letter.reason, [ipc_stream(batch) for batch in letter.batches])


def _packed(at: float, reason: str, streams: list[bytes]) -> bytes:
    head = {"at": at, "reason": reason, "sizes": [len(each) for each in streams]}
    return zlib.compress(json.dumps(head).encode() + b"\n" + b"".join(streams), 1)


def _name(batches: list[pa.RecordBatch], streams: list[bytes]) -> str:
    """Return what tells messages of one client apart that begin at one event, in their order:
    timeline and row of the first change, and a digest."""
    places = [
        place_at(batch, 0)
        for batch in batches
        if batch.num_rows and set(_PLACE) <= set(batch.schema.names)
    ]
    first = min(places, key=lambda place: place.key, default=RowPlace(0, 0, 0, 0))
    digest = blake2b(b"".join(streams), digest_size=8).hexdigest()
    return f"{first.timeline:012} {first.row:020} {digest}"


def unpack(data: bytes) -> Letter:
    """Return what `pack` packed. Raises CorruptEvent."""
    try:
        line, _, body = zlib.decompress(data).partition(b"\n")
        head = json.loads(line)
        batches, at = [], 0
        for size in head["sizes"]:
            with pa.ipc.open_stream(body[at : at + size]) as reader:
                batches += list(reader)
            at += size
        return Letter(float(head["at"]), str(head["reason"]), batches)
    except (zlib.error, ValueError, KeyError, TypeError, pa.ArrowInvalid) as error:
        raise CorruptEvent(f"a dead letter cannot be read: {error}") from None
