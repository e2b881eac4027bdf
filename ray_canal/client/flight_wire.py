"""Calls of DestinationApi, their answers and decoded chunks, as they go over Arrow Flight.

Everything is JSON but a chunk's arena, which goes as bytes in record batches. Nothing is unpickled:
neither side need trust the other one.

    DoAction("call", call)    {"destination", "method", "request"} -> {"answer"} | {"error", "text"}
    DoGet({"chunk": name})    a chunk of a message that the answer has named
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, fields
from datetime import datetime
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from ray_canal import errors
from ray_canal.binlog.chunk import ChunkLayout, DecodedChunk
from ray_canal.destination.api import (
    AckRequest,
    ClientRequest,
    DestinationApi,
    GetRequest,
    PollRequest,
    RollbackRequest,
    SubscribeRequest,
)
from ray_canal.errors import CanalError, ConfigError
from ray_canal.model.log_context import OpenTransaction
from ray_canal.model.message import MessageHead, MessagePart
from ray_canal.model.position import EntryPosition
from ray_canal.model.snapshot_wish import SnapshotStart
from ray_canal.model.subscription import Policy, StartWish, Subscription

PIECE_BYTES = 256 << 20
"""Bytes of an arena that are in one record batch: mostly all of it, so that it need not be put
together from pieces, which takes twice as long as receiving it."""

_INLINE_BYTES_MAX = 64 << 10
"""Chunks of a message that are no longer than this together come with it; fetching them would be
another round trip."""

LAYOUT = b"layout"
_PIECES = pa.schema([pa.field("bytes", pa.uint8(), nullable=False)])
_LAYOUTS = TypeAdapter(ChunkLayout)
_STRICT = ConfigDict(extra="forbid", frozen=True, ser_json_bytes="base64", val_json_bytes="base64")


class Wishes(BaseModel):
    """A Subscription; what its start is, is told by the name of its key."""

    model_config = _STRICT

    policy: Policy | None = None
    transactions: bool | None = None
    ephemeral: bool = False
    start: str | None = None
    start_at: EntryPosition | None = None
    start_time: datetime | None = None
    snapshot: SnapshotStart | None = None

    @classmethod
    def of(cls, wishes: Subscription) -> Wishes:
        """Return a subscription's wishes in the form of the wire."""
        start = wishes.start
        return cls(
            policy=wishes.policy,
            transactions=wishes.transactions,
            ephemeral=wishes.ephemeral,
            start=start if isinstance(start, str) else None,
            start_at=start if isinstance(start, EntryPosition) else None,
            start_time=start if isinstance(start, datetime) else None,
            snapshot=wishes.snapshot,
        )

    def subscription(self) -> Subscription:
        """Return them as a subscription's."""
        start: StartWish | None = self.start_at or self.start_time or self.start
        return Subscription(
            self.policy, self.transactions, start, self.ephemeral, self.snapshot
        )


class Subscribing(BaseModel):
    """A SubscribeRequest."""

    model_config = _STRICT

    client_id: int
    holder: str
    filter: str
    rollback: bool = True
    wishes: Wishes = Wishes()


class Small(BaseModel):
    """A small chunk, which comes with the message."""

    model_config = _STRICT

    layout: ChunkLayout
    arena: bytes

    def chunk(self) -> DecodedChunk:
        """Return the chunk."""
        return DecodedChunk(self.layout, np.frombuffer(self.arena, np.uint8))


class WirePart(BaseModel):
    """A MessagePart; `chunk` is its payload, or names it, `mask` has a bit for each of
    `entries`."""

    model_config = _STRICT

    chunk: str | Small
    first: int
    last: int
    entries: int = 0
    mask: bytes | None = None
    gtid_set: str = ""
    open: OpenTransaction | None = None
    tables: bytes | None = None

    @classmethod
    def of(cls, part: MessagePart, name: str, *, inline: bool) -> WirePart:
        """Return a part in the form of the wire. `inline`: with its chunk, if that is in this
        process."""
        mask = None if part.mask is None else np.packbits(part.mask).tobytes()
        chunk = part.payload
        return cls(
            chunk=Small(layout=chunk.layout, arena=chunk.arena.tobytes())
            if inline and isinstance(chunk, DecodedChunk)
            else name,
            first=part.first,
            last=part.last,
            entries=0 if part.mask is None else len(part.mask),
            mask=mask,
            gtid_set=part.gtid_set,
            open=part.open,
            tables=part.tables,
        )

    def message_part(self) -> MessagePart:
        """Return it as a message's."""
        mask = None
        if self.mask is not None:
            bits = np.frombuffer(self.mask, np.uint8)
            mask = np.unpackbits(bits, count=self.entries).view(np.bool_)
        chunk = self.chunk.chunk() if isinstance(self.chunk, Small) else self.chunk
        return MessagePart(
            chunk, self.first, self.last, mask, self.gtid_set, False, self.open, self.tables
        )


class Head(BaseModel):
    """A MessageHead."""

    model_config = _STRICT

    id: int
    epoch: int
    parts: list[WirePart]
    entry_count: int
    row_count: int
    start: EntryPosition | None
    end: EntryPosition | None
    ack: EntryPosition | None
    finished: bool
    time_zone: str
    gtid: bool
    fields: str
    black_fields: str
    irregular_dates: Literal["null", "error"]
    timeline: int

    @classmethod
    def of(cls, head: MessageHead, chunks: Sequence[str]) -> Head:
        """Return a head in the form of the wire; small chunks go with it."""
        rest = {name: getattr(head, name) for name in _PLAIN}
        here = [each.payload for each in head.parts if isinstance(each.payload, DecodedChunk)]
        size_bytes = sum(chunk.arena.size for chunk in here)
        inline = len(here) == len(head.parts) and size_bytes <= _INLINE_BYTES_MAX
        named = zip(head.parts, chunks, strict=True)
        return cls(parts=[WirePart.of(*each, inline=inline) for each in named], **rest)

    def message_head(self) -> MessageHead:
        """Return it as a message's."""
        parts = tuple(part.message_part() for part in self.parts)
        return MessageHead(parts=parts, **{name: getattr(self, name) for name in _PLAIN})


_PLAIN = [each.name for each in fields(MessageHead) if each.name not in ("parts", "untracked")]


class Call(BaseModel):
    """Request of DoAction("call")."""

    model_config = _STRICT

    destination: str
    method: str
    request: dict[str, Any]


class CallAnswer(BaseModel):
    """Its answer: a plain value, a message's head, or an error by its class."""

    model_config = _STRICT

    answer: int | bool | str | list[int] | None = None
    head: Head | None = None
    error: str = ""
    text: str = ""

    @classmethod
    def of_error(cls, error: CanalError) -> CallAnswer:
        """Return the answer that raises an error at the client."""
        return cls(error=type(error).__name__, text=str(error))

    def result(self) -> Any:
        """The value. Raises the error."""
        if self.error:
            kind = getattr(errors, self.error, None)
            if not (isinstance(kind, type) and issubclass(kind, CanalError)):
                kind = CanalError
            raise kind(self.text)
        return self.answer if self.head is None else self.head.message_head()


METHODS: dict[str, tuple[Callable[..., Any], type[ClientRequest]]] = {
    method.__name__: (method, kind)
    for method, kind in (
        (DestinationApi.subscribe, SubscribeRequest),
        (DestinationApi.unsubscribe, ClientRequest),
        (DestinationApi.get_without_ack, GetRequest),
        (DestinationApi.get, GetRequest),
        (DestinationApi.poll, PollRequest),
        (DestinationApi.ack, AckRequest),
        (DestinationApi.rollback, RollbackRequest),
        (DestinationApi.rollback_all, RollbackRequest),
        (DestinationApi.list_batch_ids, ClientRequest),
        (DestinationApi.filter_of, ClientRequest),
        (DestinationApi.touch, ClientRequest),
    )
}
_REQUESTS = {
    kind: TypeAdapter(kind) for _, kind in METHODS.values() if kind is not SubscribeRequest
}


def packed_call(destination: str, method: Callable[..., Any], request: ClientRequest) -> bytes:
    """A call as DoAction's body."""
    if isinstance(request, SubscribeRequest):
        wishes = Wishes.of(request.wishes)
        given = {**_shallow(request), "wishes": wishes.model_dump(mode="json", exclude_none=True)}
    else:
        given = asdict(request)
    call = Call(destination=destination, method=method.__name__, request=given)
    return call.model_dump_json().encode()


def _shallow(request: Any) -> dict[str, Any]:
    return {each.name: getattr(request, each.name) for each in fields(request)}


def unpacked_call(data: bytes) -> tuple[str, Callable[..., Any], ClientRequest]:
    """Destination, method and request of a call. Raises ConfigError: it is none."""
    try:
        call = Call.model_validate_json(data)
        if call.method not in METHODS:
            raise ConfigError(f"there is no call {call.method!r}")
        method, kind = METHODS[call.method]
        if kind is SubscribeRequest:
            given = Subscribing.model_validate(call.request)
            request: ClientRequest = SubscribeRequest(
                client_id=given.client_id,
                holder=given.holder,
                filter=given.filter,
                rollback=given.rollback,
                wishes=given.wishes.subscription(),
            )
        else:
            request = _REQUESTS[kind].validate_python(call.request)
    except ValidationError as error:
        raise ConfigError(f"the call is not understood: {error}") from None
    return call.destination, method, request


def chunk_reader(chunk: DecodedChunk) -> pa.RecordBatchReader:
    """A chunk as a stream of record batches, without a copy of its arena."""
    return bytes_reader(
        pa.py_buffer(chunk.arena.data), {LAYOUT: _LAYOUTS.dump_json(chunk.layout)}
    )


def bytes_reader(data: pa.Buffer, notes: dict[bytes, bytes]) -> pa.RecordBatchReader:
    """Bytes as a stream of record batches with one column of uint8, without a copy; `notes` go to
    the stream's metadata."""
    schema = _PIECES.with_metadata(notes)

    def pieces() -> Iterator[pa.RecordBatch]:
        for at in range(0, data.size, PIECE_BYTES):
            piece = data.slice(at, min(PIECE_BYTES, data.size - at))
            column = pa.Array.from_buffers(pa.uint8(), piece.size, [None, piece])
            yield pa.RecordBatch.from_arrays([column], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, pieces())


def chunk_of(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> DecodedChunk:
    """The chunk that a stream of `chunk_reader` has."""
    layout = _LAYOUTS.validate_json(schema.metadata[LAYOUT])
    arrays = [np.frombuffer(batch.column(0).buffers()[1], np.uint8) for batch in batches]
    arena = arrays[0] if len(arrays) == 1 else np.concatenate([np.zeros(0, np.uint8), *arrays])
    arena.flags.writeable = False
    return DecodedChunk(layout, arena)
