"""Route a chunk's entries and rows: which of them become one message, and its topic and
partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.errors import UnsupportedEvent
from ray_canal.kernels.render import flat_partitions as kernels
from ray_canal.kernels.render.arrays import RowArrays
from ray_canal.kernels.render.entry_values import VALUE_BYTES_MAX
from ray_canal.model.arrays import Bools, Bytes, Int32s, Int64s
from ray_canal.model.canal_types import UPDATE
from ray_canal.views.entries import chosen_entries
from ray_canal.views.key_moves import split_moves
from ray_canal.views.routing import KEY_CHANGES_SPLIT, Route, Routing, topic_order

_ROWDATA = 2
_TEXT_BYTES = VALUE_BYTES_MAX + 32


@dataclass(frozen=True, slots=True)
class FlatMessages:
    """Messages with their places: message i is `buffer[offsets[i]:offsets[i + 1]]`; one without
    bytes is a tombstone.

    It goes to `topic_names[topics[i]]` and `partitions[i]`, is of the chunk's entry `entries[i]`
    and has `rows[i]` rows (0: a statement). With `keys`, bytes and offsets, each has a key (no
    bytes: none), which chooses the partition, -1 here. Those of one topic and partition are in log
    order. The buffer is not shared."""

    buffer: Bytes
    offsets: Int64s
    topics: Int32s
    topic_names: tuple[str, ...]
    partitions: Int32s
    entries: Int32s
    rows: Int32s
    keys: tuple[Bytes, Int64s] | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> memoryview:
        return self.buffer[self.offsets[index] : self.offsets[index + 1]].data


def by_place(found: FlatMessages) -> Iterator[tuple[int, int, Int64s]]:
    """(topic's number, partition, numbers of its messages in log order) for each place that has
    messages."""
    order = np.lexsort((found.partitions, found.topics))
    topics, partitions = found.topics[order], found.partitions[order]
    changes = (np.diff(topics) != 0) | (np.diff(partitions) != 0)
    for group in np.split(order, np.flatnonzero(changes) + 1):
        if len(group):
            yield int(found.topics[group[0]]), int(found.partitions[group[0]]), group


def data_entries(chunk: DecodedChunk, first: int, last: int, mask: Bools | None) -> Int64s:
    """Return the numbers of the entries that become messages: shown, and neither BEGIN nor END."""
    chosen = chosen_entries(chunk, first, last, mask)
    kept: Int64s = chosen[chunk.events["kind"][chosen] == _ROWDATA]
    return kept


@dataclass(frozen=True, slots=True)
class Split:
    """Messages before they are rendered: a line of entry, place in `order`, rows and partition for
    each, sorted by topic. `kinds`: the event type of each, if some have another one than their
    entry (0: its own)."""

    lines: Int64s
    order: Int32s
    topics: Int32s
    topic_names: tuple[str, ...]
    kinds: Int64s | None = None

    def placed(self, buffer: Bytes, offsets: Int64s) -> FlatMessages:
        """Return the rendered messages with their places."""
        entries, _, counts, partitions = (
            np.ascontiguousarray(self.lines[:, k], np.int32) for k in range(4)
        )
        return FlatMessages(
            buffer, offsets, self.topics, self.topic_names, partitions, entries, counts
        )


class Routed:
    """Routes of the entries of one chunk. `hashed`: for each table, which columns choose a row's
    partition."""

    def __init__(
        self, chunk: DecodedChunk, chosen: Int64s, routing: Routing, *, by_entry: bool
    ) -> None:
        self._chunk = chunk
        self._by_entry = by_entry
        self._splits = not by_entry and routing.key_changes == KEY_CHANGES_SPLIT
        metas = [table.meta for table in chunk.layout.tables]
        found = [routing.route(meta.schema, meta.table) for meta in metas]
        self.routes: Int64s = np.zeros((len(found), kernels.ROUTE_FIELDS), np.int64)
        self.hashed: list[tuple[bool, ...]] = []
        for number, (meta, route) in enumerate(zip(metas, found, strict=True)):
            rule = route.rule
            by_row = rule is not None and (route.partitions > 1 or by_entry)
            self.routes[number] = (
                kernels.BY_ROW if by_row else kernels.ONE,
                route.partitions,
                routing.hash_seed(meta.schema) if by_row else route.partition,
            )
            flags: Sequence[bool] = (False,) * len(meta.columns)
            if rule is not None and by_row:
                names = [column.name for column in meta.columns]
                keys = [column.is_key for column in meta.columns]
                flags = rule.hashed(names, keys, by_entry=by_entry)
            self.hashed.append(tuple(flags))
        tables = chunk.events["table"][chosen]
        statements = np.flatnonzero(tables < 0)
        names_of = [_named(chunk, int(chosen[at])) for at in statements.tolist()]
        self._place(routing, found, tables, statements, names_of)

    def _place(
        self,
        routing: Routing,
        found: list[Route],
        tables: Int32s,
        statements: Int64s,
        names: list[tuple[str, str]],
    ) -> None:
        """Number the topics, sorted, and assign one to each entry."""
        numbers: dict[str, int] = {}
        by_table = np.array([numbers.setdefault(r.topic, len(numbers)) for r in found], np.int32)
        own = [routing.route(*name) for name in names]
        by_statement = [numbers.setdefault(r.topic, len(numbers)) for r in own]
        topics: Int32s = np.zeros(len(tables), np.int32)
        if len(found):
            topics[:] = by_table[tables]
        topics[statements] = by_statement
        ordered = sorted(numbers, key=topic_order)
        place_of: Int32s = np.zeros(max(len(numbers), 1), np.int32)
        place_of[[numbers[name] for name in ordered]] = np.arange(len(ordered))
        self.topic_names = tuple(ordered)
        self._topics = place_of[topics]
        self._fixed = 0 if routing.partition_hash else routing.partition

    def split(self, chosen: Int64s, arrays: RowArrays) -> Split:
        """Return the messages of these entries. Raises UnsupportedEvent: whether rows move to
        another partition is not in the log."""
        events = arrays.events
        table = events["table"][chosen]
        counts = events["rows"][chosen].astype(np.int64)
        by_row = np.zeros(len(chosen), np.bool_)
        if len(self.routes):
            by_row = (table >= 0) & (self.routes[table, kernels.R_MODE] == kernels.BY_ROW)
        total = int(counts[by_row].sum())
        lines: Int64s = np.empty((len(chosen) + total, 4), np.int64)
        order: Int32s = np.empty(max(total, 1), np.int32)
        room = (
            np.zeros(_TEXT_BYTES, np.uint8),
            np.zeros(int(self.routes[:, kernels.R_PARTITIONS].max(initial=1)), np.int64),
            np.empty(int(counts[by_row].max(initial=1)), np.int64),
        )
        count = kernels.split_by_partition(
            chosen, self._by_entry, self._fixed, tuple(arrays), self.routes, room, order, lines
        )
        lines, kinds = lines[:count], None
        if self._splits and len(self.routes):
            hashed = np.array([any(flags) for flags in self.hashed])
            self._refuse_cut_images(chosen[by_row & hashed[table]])
            moves: Int64s = np.empty((total, kernels.MOVE_FIELDS), np.int64)
            found = kernels.moved_rows(chosen, tuple(arrays), self.routes, room[0], moves)
            if found:
                lines, order, kinds = split_moves(lines, order, moves[:found])
        where = np.searchsorted(chosen, lines[:, 0])
        topics = self._topics[where]
        if len(self.topic_names) > 1:
            sorted_lines = np.argsort(topics, kind="stable")
            lines, topics = lines[sorted_lines], topics[sorted_lines]
            kinds = None if kinds is None else kinds[sorted_lines]
        return Split(lines, order, topics, self.topic_names, kinds)


    def _refuse_cut_images(self, chosen: Int64s) -> None:
        events, layout = self._chunk.events, self._chunk.layout
        cut = (events["event_type"][chosen] == UPDATE) & (events["present"][chosen] >= 0)
        for number in chosen[cut][:1].tolist():
            meta = layout.tables[int(events["table"][number])].meta
            raise UnsupportedEvent(
                f"an UPDATE of {meta.full_name} at {layout.journal_name}:"
                f"{int(events['position'][number])} lacks columns, so whether its rows move to "
                'another partition is not known: key_changes = "split" needs '
                "binlog_row_image=FULL in each session"
            )


def _named(chunk: DecodedChunk, number: int) -> tuple[str, str]:
    """Return (schema, table) of a statement's header."""
    query = chunk.queries[chunk.events["aux"][number]]

    def text(name: str) -> str:
        at, size = int(query[name]), int(query[f"{name}_bytes"])
        return chunk.arena[at : at + max(size, 0)].tobytes().decode("utf-8", "replace")

    return text("schema"), text("table")
