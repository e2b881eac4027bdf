"""Render a decoded chunk as Canal's FlatMessages, the JSON messages that Canal sends to message
queues, with the topic and the partition of each.

    found = flat_messages(chunk, first, last, mask, FlatOptions(id=7, routing=Routing(topic="t")))
    for i in range(len(found)):
        send(found.topic_names[found.topics[i]], found.partitions[i], found[i])

All messages lie in one buffer, one after the other, so that a client in C can take them as they lie
(`rd_kafka_produce_batch`). docs/reference/flat-message.md has the format.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.canal.generated import EntryProtocol_pb2 as pb
from ray_canal.errors import ConfigError
from ray_canal.filter import FieldFilter
from ray_canal.kernels.base.jit import read_only
from ray_canal.kernels.render import flat_messages as kernels
from ray_canal.kernels.render import flat_rows as rows
from ray_canal.kernels.render.arrays import FlatArrays, MessageArrays
from ray_canal.malloc import large
from ray_canal.model.arrays import Bools, Bytes, Int64s
from ray_canal.views.flat_tables import TABLE_ROOM, flat_blobs, json_bytes, table_records
from ray_canal.views.gtid_sets import executed_sets
from ray_canal.views.key_moves import of_kinds
from ray_canal.views.routed import FlatMessages, Routed, data_entries
from ray_canal.views.routing import Routing
from ray_canal.views.row_arrays import Blobs, row_arrays

OLD_CANAL, OLD_EXACT = "canal", "exact"

_TEXT_EXPANSION = 2
"""Usual most bytes of text for a byte of binlog; more grows the buffer."""
_KINDS = 16


@dataclass(frozen=True, kw_only=True)
class FlatOptions:
    """How messages are made. `id`: that of the batch. `ts_ms`: when they are made; 0: now.
    `time_zone`: zone in which TIMESTAMP is printed. `gtid`: put the executed set into `gtid`.
    `old`: for an UPDATE, the columns that the row or one before it in the same event changes, as in
    Canal (`canal`), or those that the row itself changes (`exact`). `fields`: leave out columns
    that it does not admit."""

    id: int = 1
    ts_ms: int = 0
    routing: Routing = field(default_factory=Routing)
    time_zone: str = "UTC"
    gtid: bool = False
    old: str = OLD_CANAL
    fields: FieldFilter | None = None

    def __post_init__(self) -> None:
        if self.old not in (OLD_CANAL, OLD_EXACT):
            raise ConfigError(f"old is {OLD_CANAL!r} or {OLD_EXACT!r}, not {self.old!r}")


def flat_messages(
    chunk: DecodedChunk,
    first: int,
    last: int,
    mask: Bools | None,
    options: FlatOptions,
    *,
    gtid_set: str = "",
) -> FlatMessages:
    """Return the messages of the entries [first, last) whose `mask` (one element an entry of the
    chunk; None: all) is true; those of one topic together.

    `gtid_set`: the set executed before the chunk. Raises ConfigError: no such time zone."""
    chosen = data_entries(chunk, first, last, mask)
    blobs = flat_blobs()
    routed = Routed(chunk, chosen, options.routing, by_entry=False)
    tables, columns = table_records(chunk.layout.tables, blobs, options.fields, routed.hashed)
    flat = FlatArrays(
        queries=read_only(chunk.queries),
        gtids=_gtids(chunk, gtid_set if options.gtid else None, blobs),
        tails=_tails(options.ts_ms or time.time_ns() // 1_000_000, blobs),
        since=np.zeros(int(tables[:, rows.FT_COUNT].max(initial=1)), np.int64),
    )
    arrays = row_arrays(chunk, (tables, columns), blobs, options.time_zone)
    split = routed.split(chosen, arrays)
    lines = np.ascontiguousarray(split.lines.T)
    if split.kinds is not None:
        events, lines[0] = of_kinds(arrays.events, lines[0], split.kinds)
        arrays = arrays._replace(events=events)
    count = len(split.lines)
    messages = MessageArrays(
        entries=lines[0],
        firsts=lines[1],
        counts=lines[2],
        ids=np.full(count, options.id, np.int64),
        order=split.order,
    )
    groups = [tuple(group) for group in (messages, arrays, flat)]
    buffer, starts = _written(
        groups, count, options.old == OLD_EXACT, _most_bytes(chunk, split.lines, tables, flat.gtids)
    )
    return split.placed(buffer, np.append(buffer.size - starts, buffer.size))


def _written(
    groups: list[tuple[Any, ...]], count: int, is_exact: bool, most_bytes: int
) -> tuple[Bytes, Int64s]:
    """Return the bytes of `count` messages, and each one's distance from their end. `groups` are
    the kernel's fields."""
    messages, arrays, flat = groups
    buffer: Bytes = large(most_bytes)
    starts: Int64s = np.zeros(count, np.int64)
    done, used = count, 0
    while done:
        done, used = kernels.write_messages(
            messages, done, arrays, flat, is_exact, buffer, used, starts
        )
        if done:
            grown: Bytes = large(2 * buffer.size)
            grown[grown.size - used :] = buffer[buffer.size - used :]
            buffer = grown
    return buffer[buffer.size - used :], starts


def _most_bytes(
    chunk: DecodedChunk, lines: Int64s, tables: Int64s, gtids: Int64s
) -> int:
    """Return the usual most size of messages, in bytes; a buffer that is too small grows."""
    events = chunk.events
    entries = lines[:, 0]  # the messages of one lie next to each other
    entries = entries[np.append(True, entries[1:] != entries[:-1])[: len(entries)]]
    # Events that were compressed together all have the whole's length.
    log_bytes = min(int(events["length"][entries].astype(np.int64).sum()), chunk.arena.size)
    table = events["table"][lines[:, 0]]
    of_rows = lines[table >= 0]
    room = tables[table[table >= 0]]
    constant = int(room[:, rows.FT_ROOM].sum()) if len(room) else 0
    names = room[:, rows.FT_COUNT] * of_rows[:, 2] if len(room) else np.zeros(1, np.int64)
    statements = len(lines) - len(of_rows)
    return (
        4096
        + constant
        + 24 * int(names.sum())
        + _TEXT_EXPANSION * log_bytes
        + (TABLE_ROOM + int(gtids[:, 1].max())) * (len(lines) + statements)
    )


def _tails(ts_ms: int, blobs: Blobs) -> Int64s:
    """Return the end of a message, for each event type."""
    names = {value: name for name, value in pb.EventType.items()}
    return np.array(
        [
            blobs.add(b'%d,"type":%s}' % (ts_ms, json_bytes(names.get(kind, "QUERY"))))
            for kind in range(max(max(names) + 1, _KINDS))
        ],
        np.int64,
    )


def _gtids(chunk: DecodedChunk, before: str | None, blobs: Blobs) -> Int64s:
    """Return the piece between `es` and the id for each transaction; the last line: without a
    GTID."""
    lines: Int64s = np.zeros((len(chunk.gtids) + 1, 2), np.int64)
    lines[:] = blobs.add(b',"gtid":"","id":')
    if before is not None:
        for number, text in executed_sets(chunk, before):
            lines[number] = blobs.add(b',"gtid":%s,"id":' % json_bytes(text))
    return lines
