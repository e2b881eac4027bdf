"""Render rows as Debezium's change events in JSON: a message a row, with its key.

An update that changes the key is a delete of the old row and a create of the new one, and each
delete is followed by a tombstone, a message without a value, so that a compacted topic forgets the
key. What changes a table as a whole (TRUNCATE, DDL) has no message.
docs/reference/debezium.md has the format.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ray_canal import __version__
from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.errors import ConfigError, UnsupportedEvent
from ray_canal.model.arrays import Bools, Bytes, Int32s, Int64s
from ray_canal.model.table_event import STATEMENT
from ray_canal.model.table_meta import TableMeta
from ray_canal.views.debezium_schema import FormField, TableForm, form_of
from ray_canal.views.debezium_types import Decimals
from ray_canal.views.routed import FlatMessages
from ray_canal.views.table_events import is_of_table
from ray_canal.views.texts import BYTES, base64_texts, joined, json_texts, parts_of, wrapped
from ray_canal.views.whole_images import whole

NEEDED = ("event_type", "journal_name", "position", "row", "execute_time", "gtid")
TOMBSTONE = ord("t")
_CREATE, _UPDATE, _DELETE, _READ = (ord(letter) for letter in "cudr")
_OPS = {"INSERT": _CREATE, "UPDATE": _UPDATE, "DELETE": _DELETE, "READ": _READ}


@dataclass(frozen=True, kw_only=True)
class DebeziumOptions:
    """How messages are made. `prefix` is Debezium's `topic.prefix`; `connector` "mysql" or
    "mariadb"; "": as the log says. `schemas`: each message has its schema. `tombstones`: see above.
    `ts_us`: when they are made; 0: now."""

    prefix: str
    connector: str = ""
    decimals: Decimals = "precise"
    schemas: bool = False
    tombstones: bool = True
    ts_us: int = 0

    @property
    def now_us(self) -> int:
        """Return the time of the envelope, in microseconds since the epoch: now, or the one that
        was set."""
        return self.ts_us or time.time_ns() // 1000


@dataclass(frozen=True)
class Events:
    """Change events of one batch: event i is of the batch's row rows[i]; `ops` are the letters of
    Debezium, or TOMBSTONE. `entries`: of which entry of the chunk each row is."""

    form: TableForm
    batch: pa.RecordBatch
    rows: Int64s
    ops: Bytes
    entries: Int32s
    server_ids: Int64s

    @property
    def is_gone(self) -> Bools:
        """Return whether an event is of the row before it was changed."""
        found: Bools = (self.ops == _DELETE) | (self.ops == TOMBSTONE)
        return found

    def column(self, name: str) -> pa.Array:
        """Return a column's values of these events' rows."""
        return self.batch[name].take(pa.array(self.rows))

    def image(self, side: str, fields: Sequence[FormField]) -> list[pa.Array]:
        """Return columns of before or after in Connect's types, a value for each row."""
        column = self.batch[side]
        return [each.kind.physical(pc.struct_field(column, [each.name])) for each in fields]


def events_of(
    batch: pa.RecordBatch, meta: TableMeta | None, chunk: DecodedChunk, first: int, last: int,
    options: DebeziumOptions,
) -> Events:  # fmt: skip
    """Return the events of a batch of the chunk's entries [first, last). Raises ConfigError: it
    lacks columns; UnsupportedEvent: rows were changed by a statement of which the log has the text
    alone, or their images lack columns for which nothing can stand."""
    lacking = [name for name in (*NEEDED, "before", "after") if name not in batch.schema.names]
    if lacking:
        raise ConfigError(f"a batch without {', '.join(lacking)}: a transform has to keep them")
    connector = options.connector or chunk.layout.flavor
    form = form_of(batch.schema, meta, options.prefix, connector, options.decimals)
    kinds = batch["event_type"].cast(pa.string())
    if batch.num_rows and kinds[0].as_py() == STATEMENT:
        raise UnsupportedEvent(
            f"rows of {form.schema}.{form.table} were changed by a statement that the log has as "
            "text alone, so no change events can be made of it: use binlog_format=ROW"
        )
    batch = whole(batch, meta)
    own = np.array([_OPS[kind] for kind in kinds.to_pylist()], np.uint8)
    moved = _moved(batch, own, form.key)
    gone = (own == _DELETE) | moved
    counts = 1 + moved.astype(np.int64) + (gone if options.tombstones else 0)
    rows = np.repeat(np.arange(len(own), dtype=np.int64), counts)
    ops = own[rows]
    nth = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    ops[(nth == 0) & moved[rows]] = _DELETE
    ops[(nth == 1) & gone[rows]] = TOMBSTONE if options.tombstones else _CREATE
    ops[(nth == 2)] = _CREATE
    positions = chunk.events["position"][first:last]
    entries = first + np.searchsorted(positions, batch["position"].to_numpy())
    return Events(
        form, batch, rows, ops, entries.astype(np.int32),
        chunk.events["server_id"][entries].astype(np.int64),
    )  # fmt: skip


def _moved(batch: pa.RecordBatch, ops: Bytes, key: Sequence[FormField]) -> Bools:
    """Return which rows an update gave another key."""
    if not key or not (ops == _UPDATE).any():
        return np.zeros(len(ops), np.bool_)
    differs = [
        pc.fill_null(
            pc.not_equal(*(_plain(pc.struct_field(batch[side], [each.name]))
                           for side in ("before", "after"))), False)
        for each in key
    ]  # fmt: skip
    found: Bools = np.asarray(reduce(pc.or_, differs)) & (ops == _UPDATE)
    return found


def _plain(values: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(values.type):
        return values.cast(pa.string())
    return pc.binary_join(values, ",") if pa.types.is_list(values.type) else values


def events_of_chunk(
    chunk: DecodedChunk, batches: Sequence[pa.RecordBatch], options: DebeziumOptions
) -> list[Events]:
    """Return the events of a whole chunk's batches. Raises what `events_of` raises."""
    metas = {(table.meta.schema, table.meta.table): table.meta for table in chunk.layout.tables}
    found = []
    for batch in batches:
        if is_of_table(batch) and batch["event_type"][0].as_py() != STATEMENT:
            continue
        notes = batch.schema.metadata
        meta = metas.get((notes[b"canal.schema"].decode(), notes[b"canal.table"].decode()))
        found.append(events_of(batch, meta, chunk, 0, chunk.layout.event_count, options))
    return found


def message_lines(events: Sequence[Events], options: DebeziumOptions) -> Iterator[bytes]:
    """Yield a chunk's messages as JSON lines `{"topic": …, "key": …, "message": …}`, in log order;
    the message of a tombstone is null."""
    made = [json_values(each, options) for each in events]
    found = placed(events, made, [json_keys(each, options) for each in events])
    names = [_json(name) for name in found.topic_names]
    keys, places = found.keys or (np.zeros(0, np.uint8), found.offsets)
    for number, topic in enumerate(found.topics.tolist()):
        key = bytes(keys[places[number] : places[number + 1]]) or b"null"
        line = names[topic], key, bytes(found[number]) or b"null"
        yield b'{"topic":%s,"key":%s,"message":%s}\n' % line


def placed(
    events: Sequence[Events], values: Sequence[pa.Array], keys: Sequence[pa.Array]
) -> FlatMessages:
    """Return values and keys with their topics, in log order over all batches."""
    names = sorted({each.form.topic for each in events})
    entries = _all([each.entries[each.rows] for each in events])
    ordinals = _all([np.asarray(each.column("row")) for each in events])
    topics = _all([np.full(len(each.rows), names.index(each.form.topic)) for each in events])
    tombstones = _all([each.ops == TOMBSTONE for each in events])
    all_values = pa.chunked_array(values, BYTES).combine_chunks()
    all_keys = pa.chunked_array(keys, BYTES).combine_chunks()
    if len(events) > 1:
        order = np.lexsort((ordinals, entries))  # stable
        entries, topics, tombstones = entries[order], topics[order], tombstones[order]
        all_values, all_keys = (array.take(pa.array(order)) for array in (all_values, all_keys))
    buffer, offsets = parts_of(pc.fill_null(all_values, b""))
    return FlatMessages(
        buffer, offsets, topics.astype(np.int32), tuple(names),
        np.full(len(entries), -1, np.int32), entries.astype(np.int32),
        (~tombstones.astype(np.bool_)).astype(np.int32), parts_of(pc.fill_null(all_keys, b"")),
    )  # fmt: skip


def _all(parts: Sequence[Any]) -> Any:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


# --- JSON ----------------------------------------------------------------------------------------


def json_values(events: Events, options: DebeziumOptions) -> pa.Array:
    """Return the messages' values; null for a tombstone."""
    before, after = (_objects(events, side, events.form.fields) for side in ("before", "after"))
    gone, has_before = pa.array(events.is_gone), np.isin(events.ops, [_UPDATE, _DELETE])
    rows = pa.array(events.rows)
    after = pc.if_else(gone, b"null", pc.fill_null(after.take(rows), b"null"))
    before = pc.if_else(pa.array(has_before), pc.fill_null(before.take(rows), b"null"), b"null")
    form = events.form
    text = joined(
        b'{"before":', before, b',"after":', after, b',"source":', *_source_texts(events),
        b',"transaction":null,"op":"', _letters(events.ops), b'",', _stamps(options.now_us), b"}",
    )  # fmt: skip
    if options.schemas:
        text = wrapped(text, b'{"schema":%s,"payload":' % _json(form.value_schema()), b"}")
    return pc.if_else(pa.array(events.ops == TOMBSTONE), pa.scalar(None, BYTES), text)


def json_keys(events: Events, options: DebeziumOptions) -> pa.Array:
    """Return the messages' keys; null where the table has none."""
    form, count = events.form, len(events.rows)
    schema = form.key_schema()
    if schema is None:
        return pa.nulls(count, BYTES)
    rows = pa.array(events.rows)
    before, after = (_objects(events, side, form.key).take(rows) for side in ("before", "after"))
    text = pc.if_else(pa.array(events.is_gone), before, after)
    if options.schemas:
        text = wrapped(text, b'{"schema":%s,"payload":' % _json(schema), b"}")
    return text


def _objects(events: Events, side: str, fields: Sequence[FormField]) -> pa.Array:
    """Return an object for each row of the batch; null where it has no such image."""
    image = events.batch[side]
    if image.null_count == len(image):
        return pa.nulls(len(image), BYTES)
    if not fields:
        return pc.if_else(image.is_null(), pa.scalar(None, BYTES), b"{}")
    pieces: list[pa.Array | bytes] = []
    before = b"{"
    for each, values in zip(fields, events.image(side, fields), strict=True):
        pieces += [before + _json(each.name) + b":", pc.fill_null(json_value(values), b"null")]
        before = b","
    return pc.if_else(image.is_null(), pa.scalar(None, BYTES), joined(*pieces, b"}"))


def json_value(values: pa.Array) -> pa.Array:
    """Return values of Connect's types in JSON; null stays null."""
    kind = values.type
    if pa.types.is_boolean(kind):
        return pc.if_else(values, b"true", b"false").cast(BYTES)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return values.cast(pa.string()).cast(BYTES)
    if pa.types.is_struct(kind):
        return _json_structs(values)
    if pa.types.is_list(kind):
        texts = pc.binary_join(values.cast(pa.list_(pa.string())), ",")
        return wrapped(texts.cast(BYTES), b"[", b"]")
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return json_texts(values)
    return wrapped(base64_texts(values), b'"', b'"')


def _json_structs(values: pa.Array) -> pa.Array:
    pieces: list[pa.Array | bytes] = []
    before = b"{"
    for place, each in enumerate(values.type):
        found = json_value(pc.struct_field(values, [place]))
        pieces += [before + _json(each.name) + b":", pc.fill_null(found, b"null")]
        before = b","
    return pc.if_else(values.is_null(), pa.scalar(None, BYTES), joined(*pieces, b"}"))


def _source_texts(events: Events) -> list[pa.Array | bytes]:
    form = events.form
    head = {"version": __version__, "connector": form.connector, "name": form.prefix}
    times = pc.cast(events.column("execute_time"), pa.timestamp("s", "UTC"), safe=False)
    seconds = _integers(times)
    gtid = json_texts(events.column("gtid").cast(pa.string()))
    file = json_texts(events.column("journal_name").cast(pa.string()))
    is_read = pa.array(events.ops == _READ)
    return [
        _json(head)[:-1] + b',"ts_ms":', seconds, b'000,"snapshot":"',
        pc.if_else(is_read, b"true", b"false").cast(BYTES),
        b'","db":%s,"sequence":null,"ts_us":' % _json(form.schema), seconds,
        b'000000,"ts_ns":', seconds, b'000000000,"table":%s,"server_id":' % _json(form.table),
        _integers(pa.array(events.server_ids[events.rows])),
        b',"gtid":', pc.fill_null(gtid, b"null"), b',"file":', file,
        b',"pos":', _integers(events.column("position")), b',"row":',
        _integers(events.column("row")), b',"thread":null,"query":null}',
    ]  # fmt: skip


def source_of(events: Events) -> list[dict[str, object]]:
    """Return the source of each event, as objects."""
    form = events.form
    same = {"version": __version__, "connector": form.connector, "name": form.prefix,
            "sequence": None, "thread": None, "query": None, "db": form.schema,
            "table": form.table}  # fmt: skip
    times = pc.cast(events.column("execute_time"), pa.timestamp("s", "UTC"), safe=False)
    columns = [
        times.cast(pa.int64()).to_pylist(),
        *(events.column(name).to_pylist() for name in ("gtid", "journal_name", "position", "row")),
        events.server_ids[events.rows].tolist(),
        (events.ops == _READ).tolist(),
    ]
    return [
        {**same, "ts_ms": seconds * 1000, "ts_us": seconds * 10**6, "ts_ns": seconds * 10**9,
         "snapshot": "true" if is_read else "false", "gtid": gtid, "file": file, "pos": position,
         "row": row, "server_id": server_id}
        for seconds, gtid, file, position, row, server_id, is_read in zip(*columns, strict=True)
    ]  # fmt: skip


def _integers(values: pa.Array) -> pa.Array:
    return values.cast(pa.int64()).cast(pa.string()).cast(BYTES)


def _letters(ops: Bytes) -> pa.Array:
    offsets = pa.py_buffer(np.arange(len(ops) + 1, dtype=np.int64))
    return pa.Array.from_buffers(BYTES, len(ops), [None, offsets, pa.py_buffer(ops)])


def _stamps(us: int) -> bytes:
    return b'"ts_ms":%d,"ts_us":%d,"ts_ns":%d' % (us // 1000, us, us * 1000)


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
