"""Messages for a queue: changes as messages with their topics and partitions, in the chosen
format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from hashlib import blake2b

import numpy as np
import pyarrow as pa

from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.config.queue import ROW_FORMATS, MessageConfig, RoutingConfig
from ray_canal.errors import UnsupportedEvent
from ray_canal.filter import FieldFilter
from ray_canal.model.arrays import Bytes
from ray_canal.sinks.port import Changes, SinkError, naming
from ray_canal.sinks.rows import Rows
from ray_canal.sinks.schema_registry import RegistryClient
from ray_canal.views.debezium import (
    DebeziumOptions,
    Events,
    events_of,
    json_keys,
    json_values,
    placed,
)
from ray_canal.views.debezium_schema import topic_of
from ray_canal.views.entry_messages import entry_messages, packets
from ray_canal.views.flat import FlatOptions, flat_messages
from ray_canal.views.ipc_stream import ipc_stream
from ray_canal.views.routed import FlatMessages
from ray_canal.views.routing import KEY_CHANGES_SPLIT, Routing

_OF_RUNS = ("protobuf", "arrow")


def has_runs(message_format: str) -> bool:
    """Return whether a message of a format has entries of a run, as many as the log gave at
    once."""
    return message_format in _OF_RUNS


class MessageMaker:
    """Makes the messages of a sink. Those of one topic and partition are in log order; `entries` of
    the result has the first entry that a message is of."""

    def __init__(self, message: MessageConfig, routing: RoutingConfig) -> None:
        self._config = message
        self._routing = Routing(**routing.model_dump())
        self._register: RegistryClient | None = None
        if message.registry.url:
            self._register = RegistryClient(message.registry)

    @property
    def is_by_row(self) -> bool:
        """Return whether each row is a message of its own, with a key."""
        return self._config.format in ROW_FORMATS

    def make(self, changes: Changes) -> FlatMessages:
        """Return the messages of changes. Raises SinkError."""
        if self._config.format == "arrow":
            return self._arrow(changes)
        if self.is_by_row:
            return self._change_events(changes)
        head, part = changes.message.head, changes.part
        options = FlatOptions(
            id=head.id,
            routing=self._routing,
            time_zone=head.time_zone,
            gtid=head.gtid,
            old=self._config.old,
            fields=FieldFilter(head.fields, head.black_fields),
        )
        is_flat = self._config.format != "protobuf"
        render = flat_messages if is_flat else entry_messages
        found = render(
            changes.chunk, part.first, part.last, part.mask, options, gtid_set=part.gtid_set
        )
        return found if is_flat else packets(found)

    def _change_events(self, changes: Changes) -> FlatMessages:
        config = self._config
        options = DebeziumOptions(
            prefix=self._routing.topic,
            decimals=config.decimals,
            schemas=config.schemas,
            tombstones=config.tombstones,
        )
        first, last, events = changes.part.first, changes.part.last, []
        for step in changes.steps():
            if isinstance(step, Rows):
                with naming(step.schema, step.table):
                    events.append(_events(step, changes.chunk, first, last, options))
        if config.format == "debezium":
            values = [json_values(each, options) for each in events]
            return placed(events, values, [json_keys(each, options) for each in events])
        from ray_canal.views.avro import avro_keys, avro_values

        found = [avro_values(each, options, self._register) for each in events]
        return placed(events, found, [avro_keys(each, self._register) for each in events])

    def topics(self, tables: Sequence[tuple[str, str]]) -> dict[str, int]:
        """Return the topics that messages of tables go to, with the partitions that each needs."""
        routing = self._routing
        if self.is_by_row:
            return {topic_of(routing.topic, *each): 1 for each in tables}
        if self._config.format == "arrow":
            return {routing.topic: routing.partition + 1}
        found: dict[str, int] = {}
        for route in (routing.route(*each) for each in tables or [("", "")]):
            needs = route.partition + 1 if route.rule is None else route.partitions
            name = self.topic(route.topic)
            found[name] = max(found.get(name, 1), needs)
        return found

    def topic(self, name: str) -> str:
        """Return the name that is sent to. Canal's producers put _ for the dots of every topic as
        soon as there is a dynamicTopic, also of the one for what no rule names."""
        if self.is_by_row or self._config.format == "arrow" or not self._routing.dynamic_topic:
            return name
        return name.replace(".", "_")

    def ids(self, changes: Changes, found: FlatMessages) -> Iterator[str]:
        """Yield what names each message, the same when it is made again:
        TIMELINE:FILE:POSITION:INNER:ORDINAL:PARTITION; where each row is a message, the last one is
        the message's number among those of its entry, which follows the partition where an entry
        has several messages in one. A digest follows where a message has several
        entries, as many as the log gave at once: one may begin alike and end elsewhere."""
        prefix = f"{changes.message.timeline}:{changes.chunk.layout.journal_name}"
        places, last, ordinal = _places_of(changes.chunk), -1, 0
        before: Counter[tuple[int, int]] = Counter()
        has_several = self._routing.key_changes == KEY_CHANGES_SPLIT
        is_cut = has_runs(self._config.format)
        for number in range(len(found)):
            entry, partition = int(found.entries[number]), int(found.partitions[number])
            if found.keys is not None:  # several messages an entry, all without a partition
                ordinal = ordinal + 1 if entry == last else 0
                last, partition = entry, ordinal
            nth = ""
            if has_several:
                place = entry, partition
                nth = f".{before[place]}" if before[place] else ""
                before[place] += 1
            digest = f":{blake2b(found[number], digest_size=8).hexdigest()}" if is_cut else ""
            yield f"{prefix}:{places[entry]}:{partition}{nth}{digest}"

    def _arrow(self, changes: Changes) -> FlatMessages:
        """An IPC stream for each run of rows of one table version; a long one in halves."""
        values: list[bytes] = []
        entries: list[int] = []
        rows: list[int] = []
        for batch in changes.batches:
            for piece, value in self._streams(batch):
                values.append(value)
                entries.append(_entry_of(changes, piece))
                rows.append(piece.num_rows)
        return joined(
            values, topic=self._routing.topic, partition=self._routing.partition, entries=entries,
            rows=rows,
        )  # fmt: skip

    def _streams(self, batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, bytes]]:
        waiting = [batch]
        while waiting:
            piece = waiting.pop()
            value = ipc_stream(piece)
            if len(value) > self._config.bytes_max and piece.num_rows > 1:
                middle = piece.num_rows // 2
                waiting += [piece.slice(middle), piece.slice(0, middle)]
            else:
                yield piece, value


def _places_of(chunk: DecodedChunk) -> list[str]:
    """Return for each entry of a chunk POSITION:INNER:ORDINAL, which with the log's file names
    it."""
    events = chunk.events
    position, inner = events["position"].astype(np.int64), events["inner"].astype(np.int64)
    numbers = np.arange(len(position))
    is_first = np.ones(len(position), np.bool_)
    is_first[1:] = (position[1:] != position[:-1]) | (inner[1:] != inner[:-1])
    ordinals = numbers - np.maximum.accumulate(np.where(is_first, numbers, 0))
    return [
        f"{p}:{i}:{o}"
        for p, i, o in zip(position.tolist(), inner.tolist(), ordinals.tolist(), strict=True)
    ]


def _events(
    rows: Rows, chunk: DecodedChunk, first: int, last: int, options: DebeziumOptions
) -> Events:
    try:
        return events_of(rows.batch, rows.meta, chunk, first, last, options)
    except UnsupportedEvent as error:
        raise SinkError(str(error), "schema") from None


def _entry_of(changes: Changes, piece: pa.RecordBatch) -> int:
    """The number of the first entry of a batch; of one without positions the first of all."""
    first = changes.part.first
    if "position" not in piece.schema.names:
        return first
    positions = changes.chunk.events["position"][first : changes.part.last]
    return first + int(np.searchsorted(positions, piece["position"][0].as_py()))


def joined(
    values: Sequence[bytes], *, topic: str, partition: int, entries: Sequence[int],
    rows: Sequence[int],
) -> FlatMessages:  # fmt: skip
    """Messages of their own bytes, all to one place."""
    buffer: Bytes = np.frombuffer(b"".join(values), np.uint8)
    count = len(values)
    return FlatMessages(
        buffer, np.cumsum([0, *map(len, values)]), np.zeros(count, np.int32), (topic,),
        np.full(count, partition, np.int32), np.asarray(entries, np.int32),
        np.asarray(rows, np.int32),
    )  # fmt: skip
