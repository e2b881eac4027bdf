"""Streams of RabbitMQ: each message once, by publishing ids.

A message's id is its place in the log (publishing_ids.py), so a message that comes again has the
same, and the stream knows what it has: what is not above the last id of the sink's name is left
out here, or dropped by the broker. A name is of one configuration and one log file: with another
routing, a message of an earlier place might go to a stream that has later ones.

Messages of protobuf and Arrow have as many entries as the log gave at once, so they have no number
of their own: at least once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from hashlib import blake2b

import numpy as np
import pyarrow as pa

from ray_canal.config import SinkConfig, secret
from ray_canal.config.section import host_port_of
from ray_canal.model.arrays import Int64s
from ray_canal.sinks.messages import MessageMaker, has_runs
from ray_canal.sinks.port import Changes, Cursor, Guarantee, SinkError
from ray_canal.sinks.queues.broker_link import LinkError, sink_error
from ray_canal.sinks.queues.publishing_ids import PublishingIds, publishing_ids
from ray_canal.sinks.queues.stream_link import StreamLink, StreamLogin, StreamMessages
from ray_canal.sinks.target_checks import SourceTable
from ray_canal.source.connection import tls_context
from ray_canal.source.setting_checks import CheckResult
from ray_canal.views.routed import FlatMessages, by_place
from ray_canal.views.texts import of_parts

_PORT = 5552
_NAME_BYTES_MAX = 255
_REWINDS = "canal.rewinds"
"""The stream that has, for each sink that was moved, how often: the number is part of its name."""


class StreamSink:
    guarantee: Guarantee

    def __init__(self, config: SinkConfig) -> None:
        self._config = config.rabbitmq
        message = config.message.model_copy(update={"tombstones": False})
        self._maker = MessageMaker(message, config.routing)
        self._is_numbered = not has_runs(message.format)
        self.guarantee = "exactly_once" if self._is_numbered else "at_least_once"
        self._sink_name = f"canal.{config.destination}.{config.name}"
        self._digest = _digest(config)
        self._rewinds = 0
        self._link: StreamLink | None = None
        self._sent: dict[tuple[str, str], int] = {}  # the last number by stream and publisher

    def open(self) -> Cursor | None:
        self._link = link = self._connected()
        self._sent.clear()
        try:
            self._rewinds = link.last_id(_REWINDS, self._sink_name)
        except LinkError as error:
            raise sink_error(error) from None
        return None

    def _connected(self) -> StreamLink:
        config = self._config
        if config.stream_address:
            host, port = host_port_of(config.stream_address, _PORT, "rabbitmq.stream_address")
        else:
            host, port = host_port_of(config.address, _PORT, "rabbitmq.address")[0], _PORT
        login = StreamLogin(
            host, port, config.virtual_host, config.username, secret(config.password),
            tls_context(config.tls, "rabbitmq.tls"),
        )  # fmt: skip
        try:
            return StreamLink(login, config.timeout_s)
        except LinkError as error:
            raise sink_error(error) from None

    def check(self, tables: Sequence[SourceTable]) -> Iterator[CheckResult]:
        """Log in. Raises SinkError."""
        self._connected().close()
        yield CheckResult("connection", True, self._config.stream_address or self._config.address)

    def write(self, changes: Changes) -> None:
        found = self._maker.make(changes)
        if not len(found):
            return
        ids = publishing_ids(changes.chunk, found.entries)
        names = pa.array(self._maker.ids(changes, found), pa.string())
        bodies = of_parts(found.buffer, found.offsets)
        log_file = f"{changes.message.timeline}:{changes.chunk.layout.journal_name}"
        try:
            for stream, numbers in self._by_stream(found).items():
                for lane, run in ids.lanes(numbers):
                    publisher = self._publisher_name(log_file, lane)
                    self._publish(stream, publisher, ids, run, names, bodies)
        except LinkError as error:
            raise sink_error(error) from None

    def _by_stream(self, found: FlatMessages) -> dict[str, Int64s]:
        """Return the messages of each stream, in log order."""
        streams: dict[str, list[Int64s]] = {}
        for topic, partition, numbers in by_place(found):
            name = self._maker.topic(found.topic_names[topic])
            stream = self._config.stream.replace("{topic}", name)
            streams.setdefault(stream.replace("{partition}", str(partition)), []).append(numbers)
        every = {stream: np.concatenate(groups) for stream, groups in streams.items()}
        return {
            stream: numbers[np.lexsort((numbers, found.entries[numbers]))]
            for stream, numbers in every.items()
        }

    def _publisher_name(self, log_file: str, lane: tuple[int, int]) -> str:
        if not self._is_numbered:
            return ""
        name = f"{self._sink_name}:{self._digest}:{self._rewinds}:{log_file}"
        if any(lane):
            name += f":{lane[0]}:{lane[1]}"
        if len(name.encode()) > _NAME_BYTES_MAX:
            raise SinkError(
                f"RabbitMQ: the publisher's name {name!r} is longer than {_NAME_BYTES_MAX} bytes: "
                "give the sink or its destination a shorter name"
            )
        return name

    def _publish(
        self, stream: str, name: str, ids: PublishingIds, run: Int64s, names: pa.Array,
        bodies: pa.Array,
    ) -> None:  # fmt: skip
        """Send the messages of a run that the stream does not have."""
        link = self._opened()
        publisher = link.publisher(stream, name)
        numbers = ids.numbers[run]
        if self._is_numbered:
            if (numbers[1:] <= numbers[:-1]).any():
                raise SinkError(f"RabbitMQ: publishing ids to {stream} do not rise")
            last = self._sent.get((stream, name), publisher.last_id)
            first = int(np.searchsorted(numbers, np.uint64(last), "right"))
            run, numbers = run[first:], numbers[first:]
        if not len(run):
            return
        chosen = pa.array(run)
        link.publish(publisher, StreamMessages(numbers, names.take(chosen), bodies.take(chosen)))
        self._sent[stream, name] = int(numbers[-1])

    def commit(self, upto: Cursor) -> None:
        try:
            self._opened().wait_confirmed(soon=True)
        except LinkError as error:
            raise sink_error(error) from None

    def abort(self) -> None:
        """Connect again if the connection has ended. What is under way cannot be called back, and
        is left out when it comes again."""
        if self._link is not None and self._link.is_broken:
            self.close()
            self.open()

    def close(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def write_again(self) -> None:
        """Take another name from now on: streams get what they have already, if it comes again.
        Raises SinkError."""
        link = self._connected()
        try:
            publisher = link.publisher(_REWINDS, self._sink_name)
            count = publisher.last_id + 1
            told = json.dumps({"sink": self._sink_name, "rewinds": count}).encode()
            link.publish(
                publisher,
                StreamMessages(
                    np.array([count], np.uint64), pa.array([f"{self._sink_name}:{count}"]),
                    pa.array([told], pa.large_binary()),
                ),
            )  # fmt: skip
            link.wait_confirmed()
        except LinkError as error:
            raise sink_error(error) from None
        finally:
            link.close()

    def _opened(self) -> StreamLink:
        if self._link is None:
            raise SinkError("RabbitMQ: not connected", "retry")
        return self._link


def _digest(config: SinkConfig) -> str:
    """Return a short name of all that decides which messages there are, and where they go."""
    parts = [
        config.tables, config.transform, config.rabbitmq.stream,
        config.message.model_dump(mode="json"), config.routing.model_dump(mode="json"),
    ]  # fmt: skip
    return blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=4).hexdigest()
