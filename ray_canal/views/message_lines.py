"""Write what Canal would send to a message queue as JSON lines: for `ray-canal decode`, and to
compare.

    {"topic": …, "partition": …, "message": FlatMessage}
    {"topic": …, "partition": …, "entries": [base64 of Entry, …], "packet": base64 of Packet}

A batch is so many entries, BEGIN and END included; its number is the messages' id. Lines of a batch
are sorted by topic; those of one topic are in log order, or by partition (entries).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import replace

from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.errors import ConfigError
from ray_canal.model.arrays import Bools
from ray_canal.views.entries import chosen_entries
from ray_canal.views.entry_messages import entry_messages, packet
from ray_canal.views.flat import FlatOptions, flat_messages
from ray_canal.views.routing import topic_order


class MessageLines:
    """Lines of chunks that come in order. `as_entries`: in protobuf; else FlatMessages. Ids begin
    at `options.id`. Raises ConfigError: a batch has no entries."""

    def __init__(self, options: FlatOptions, batch_entries: int, *, as_entries: bool) -> None:
        if batch_entries < 1:
            raise ConfigError(f"a batch has at least one entry, not {batch_entries}")
        self._options = options
        self._batch_entries = batch_entries
        self._as_entries = as_entries
        self._count = 0  # entries of the batch so far
        self._batch: list[tuple[str, int, bytes]] = []

    def add(self, chunk: DecodedChunk, mask: Bools | None, gtid_set: str) -> Iterator[bytes]:
        """The lines of the batches that end in this chunk. `gtid_set`: executed before it."""
        shown = chosen_entries(chunk, 0, chunk.layout.event_count, mask)
        render = entry_messages if self._as_entries else flat_messages
        while len(shown):
            part = shown[: self._batch_entries - self._count]
            first, last = int(part[0]), int(part[-1]) + 1
            found = render(chunk, first, last, mask, self._options, gtid_set=gtid_set)
            names, topics = found.topic_names, found.topics.tolist()
            for index, partition in enumerate(found.partitions.tolist()):
                self._batch.append((names[topics[index]], partition, bytes(found[index])))
            shown = shown[len(part) :]
            self._count += len(part)
            if self._count == self._batch_entries:
                yield from self.finish()

    def finish(self) -> Iterator[bytes]:
        """The lines of the batch that has begun; the next entries begin another one."""
        batch, self._batch, self._count = self._batch, [], 0
        self._options = replace(self._options, id=self._options.id + 1)
        if not self._as_entries:
            for topic, partition, message in sorted(batch, key=lambda line: topic_order(line[0])):
                head = b'{"topic":%s,"partition":%d,"message":' % (_text(topic), partition)
                yield head + message + b"}\n"
            return
        groups: dict[tuple[str, int], list[bytes]] = {}
        for topic, partition, entry in batch:
            groups.setdefault((topic, partition), []).append(entry)
        for topic, partition in sorted(groups, key=lambda key: (topic_order(key[0]), key[1])):
            entries = groups[topic, partition]
            yield b'{"topic":%s,"partition":%d,"entries":[%s],"packet":"%s"}\n' % (
                _text(topic),
                partition,
                b",".join(b'"%s"' % base64.b64encode(entry) for entry in entries),
                base64.b64encode(packet(entries)),
            )


def _text(value: str) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()
