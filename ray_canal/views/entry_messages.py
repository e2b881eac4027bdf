"""Render Canal's entries for message queues in protobuf (canal.mq.flatMessage = false), with the
topic and the partition of each entry, or of each row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.canal.generated import CanalProtocol_pb2 as pb
from ray_canal.canal.packet import VERSION
from ray_canal.kernels.render import entry_split as kernels
from ray_canal.kernels.render.flat_partitions import BY_ROW, R_MODE, WHOLE
from ray_canal.model.arrays import Bools, Bytes, Int64s
from ray_canal.views.entries import EntryBytes, render_entries
from ray_canal.views.flat import FlatOptions
from ray_canal.views.flat_tables import flat_blobs, table_records
from ray_canal.views.routed import FlatMessages, Routed, Split, by_place, data_entries
from ray_canal.views.row_arrays import row_arrays


def entry_messages(
    chunk: DecodedChunk,
    first: int,
    last: int,
    mask: Bools | None,
    options: FlatOptions,
    *,
    gtid_set: str = "",
) -> FlatMessages:
    """Return the entries [first, last) whose `mask` is true, without BEGIN and END, as protobuf
    `Entry`; where a row's key chooses its partition, an entry for each row. `packets` puts those of
    a topic and partition together. The parameters are those of `flat_messages`. Raises ConfigError:
    no such time zone."""
    chosen = data_entries(chunk, first, last, mask)
    routed = Routed(chunk, chosen, options.routing, by_entry=True)
    blobs = flat_blobs()
    tables, columns = table_records(chunk.layout.tables, blobs, options.fields, routed.hashed)
    arrays = row_arrays(chunk, (tables, columns), blobs, options.time_zone)
    split = _by_row(chunk, routed, routed.split(chosen, arrays))
    wanted: Bools = np.zeros(chunk.layout.event_count, np.bool_)
    wanted[chosen] = True
    rendered = render_entries(
        chunk, first, last, wanted, time_zone=options.time_zone, gtid=options.gtid,
        gtid_set=gtid_set, fields=options.fields,
    )  # fmt: skip
    owners: Int64s = np.searchsorted(chosen, split.lines[:, 0])
    rows = int(chunk.events["rows"][chosen].astype(np.int64).sum())
    return split.placed(*_cut(rendered, owners, split, rows))


def packets(found: FlatMessages) -> FlatMessages:
    """Return one message for each topic and partition: Canal's `Packet` of its entries, as its
    consumers read it. Its entry is the first one's."""
    groups = list(by_place(found))
    values = [packet([bytes(found[index]) for index in group.tolist()]) for _, _, group in groups]
    return FlatMessages(
        np.frombuffer(b"".join(values), np.uint8),
        np.cumsum([0, *map(len, values)]),
        np.array([topic for topic, _, _ in groups], np.int32),
        found.topic_names,
        np.array([partition for _, partition, _ in groups], np.int32),
        np.array([found.entries[group].min() for _, _, group in groups], np.int32),
        np.array([found.rows[group].sum() for _, _, group in groups], np.int32),
    )


def packet(entries: Sequence[bytes]) -> bytes:
    """Return Canal's `Packet` of entries, as it sends it to a queue: without a batch id."""
    body = pb.Messages(messages=entries).SerializeToString()
    return bytes(pb.Packet(version=VERSION, type=pb.MESSAGES, body=body).SerializeToString())


def _by_row(chunk: DecodedChunk, routed: Routed, split: Split) -> Split:
    """Return a line for each row of an entry whose rows choose their partition; its place in
    `order` is then the row's number in its event."""
    lines = split.lines
    events = chunk.events
    table = events["table"][lines[:, 0]]
    by_row = np.zeros(len(lines), np.bool_)
    if len(routed.routes):
        by_row = (table >= 0) & (routed.routes[table, R_MODE] == BY_ROW) & (lines[:, 2] > 0)
    counts = np.where(by_row, lines[:, 2], 1)
    owners = np.repeat(np.arange(len(lines)), counts)
    ordinals = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    made: Int64s = lines[owners]
    cut = by_row[owners]
    listed = cut & (made[:, 1] != WHOLE)
    first = events["row"][made[:, 0]].astype(np.int64)
    places = made[:, 1] + ordinals
    places[listed] = split.order[places[listed]] - first[listed]
    made[:, 1] = np.where(listed, places, np.where(cut, ordinals, WHOLE))
    made[cut, 2] = 1
    return Split(made, split.order, split.topics[owners], split.topic_names)


def _cut(
    rendered: EntryBytes, owners: Int64s, split: Split, rows_in_all: int
) -> tuple[Bytes, Int64s]:
    """Return the entries of these lines, whose numbers among the rendered ones are `owners`, and
    their offsets."""
    wholes = split.lines[:, 1] == WHOLE
    heads: Int64s = np.zeros((len(rendered), kernels.HEAD_FIELDS), np.int64)
    bounds: Int64s = np.zeros((rows_in_all, 2), np.int64)
    firsts: Int64s = np.zeros(len(rendered), np.int64)
    kernels.find_rows(rendered.buffer, rendered.offsets, heads, bounds, firsts)
    rows = np.where(wholes, WHOLE, firsts[owners] + split.lines[:, 1])
    whole_bytes = np.diff(rendered.offsets)[owners]
    of_row = bounds[np.maximum(rows, 0)] if len(bounds) else np.zeros((len(rows), 2), np.int64)
    head_bytes = heads[owners, kernels.H_STORE] - rendered.offsets[owners]
    body_bytes = heads[owners, kernels.H_ROWS] - heads[owners, kernels.H_BODY]
    cut_bytes = head_bytes + body_bytes + of_row[:, 1] - of_row[:, 0]
    sizes = np.where(wholes, whole_bytes, cut_bytes + kernels.STORE_HEAD_BYTES_MAX)
    out: Bytes = np.empty(int(sizes.sum()), np.uint8)
    offsets: Int64s = np.zeros(len(owners) + 1, np.int64)
    kernels.write_rows(
        rendered.buffer, rendered.offsets, heads, owners, rows, bounds, out, offsets
    )
    return out, offsets
