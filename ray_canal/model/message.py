"""Reply to a get: entries of chunks, by reference. The client reads them (client/message.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from ray_canal.model.arrays import Bools
from ray_canal.model.log_context import OpenTransaction
from ray_canal.model.position import EntryPosition

EMPTY_BATCH = -1
"""The id of an empty message (Canal): there is nothing to ack."""


class Caller(NamedTuple):
    """The caller of a get: `id` is the caller's own, `number` rises with each of its gets, repeated
    ones included; `received` is the newest batch (of that epoch) whose answer it has. Later ones
    that it was sent are lost; they come again."""

    id: str
    number: int
    epoch: int = 0
    received: int = 0


Payload = object
"""A chunk as its runtime keeps it: itself, or a reference that another process can read. Only the
runtime that made it looks inside."""


@dataclass(frozen=True, slots=True)
class MessagePart:
    """Entries [first, last) of one chunk, those with a true `mask` (None: all of them). `on_disk`:
    it is read from disk each time. `open`: the transaction that is open where the chunk begins.
    Of it, and of `tables` (by their index in the chunk), a true byte says that the subscriber may
    see them (None: all)."""

    payload: Payload
    first: int
    last: int
    mask: Bools | None
    gtid_set: str = ""
    on_disk: bool = False
    open: OpenTransaction | None = None
    tables: bytes | None = None


@dataclass(frozen=True, slots=True)
class MessageHead:
    """The answer to a get. `finished`: a source of files is at its end and all is delivered.
    `timeline`: of the rows' ids (model/timeline.py); 0: not known, as over Canal's TCP protocol."""

    id: int
    epoch: int
    parts: tuple[MessagePart, ...] = ()
    entry_count: int = 0
    row_count: int = 0
    start: EntryPosition | None = None
    end: EntryPosition | None = None
    ack: EntryPosition | None = None  # the cursor that its ack moves to
    finished: bool = False
    time_zone: str = "UTC"
    gtid: bool = False
    fields: str = ""  # the destination's field filter, white and black
    black_fields: str = ""
    irregular_dates: Literal["null", "error"] = "null"
    timeline: int = 0
    untracked: bool = False  # payloads are only valid until the store lets its chunks go
