"""RabbitMQ: messages to an exchange, each confirmed by the broker before the log is acknowledged.

At least once. What was confirmed when a connection broke is not sent again by this runner: `open`
returns the last entry whose messages all are. A runner that died repeats its last batch; messages
carry an id that is the same then. (Those of protobuf and Arrow have as many entries as the log gave
at once: their ids end with a digest.)
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from pika import spec

from ray_canal.config import SinkConfig, secret
from ray_canal.config.section import host_port_of
from ray_canal.sinks.messages import MessageMaker
from ray_canal.sinks.port import Changes, Cursor, Guarantee, SinkError
from ray_canal.sinks.queues.amqp_link import AmqpLink, parameters
from ray_canal.sinks.queues.broker_link import LinkError, Publish, Refused, sink_error
from ray_canal.sinks.target_checks import SourceTable
from ray_canal.source.connection import tls_context
from ray_canal.source.setting_checks import CheckResult
from ray_canal.views.routed import FlatMessages

_PORT = 5672
_KEY_BYTES_MAX = 255
_IN_FLIGHT = 2000
"""So many messages are put together at once."""
_ONE_BY_ONE_S = 60.0
"""How long, after the broker has refused one, messages wait for each other's confirm."""
_LONG_BYTES = 1 << 20
"""A message of more bytes goes alone: one beyond the broker's maximum ends its channel, and nobody
knows which of those under way with it have arrived."""
_MAXIMUM = re.compile(r"larger than (?:configured )?max(?:imum)? size (\d+)")


class _Written(NamedTuple):
    """Changes that were published: the number of the first message, the entry of each."""

    first: int
    entries: list[int]
    changes: Changes


class RabbitSink:
    guarantee: Guarantee = "at_least_once"

    def __init__(self, config: SinkConfig) -> None:
        self._config = config.rabbitmq
        message = config.message.model_copy(update={"tombstones": False})
        self._maker = MessageMaker(message, config.routing)
        self._link: AmqpLink | None = None
        self._written: list[_Written] = []
        self._place: Cursor | None = None  # all up to it is in queues
        self._confirmed: Cursor | None = None  # the same, of a batch that comes again
        self._one_by_one_until = 0.0
        self._bytes_max = 0  # of a message, by the broker's words; 0: it has not said

    def open(self) -> Cursor | None:
        try:
            self._link = self._channel()
        except LinkError as error:
            raise sink_error(error) from None
        return self._place

    def _channel(self) -> AmqpLink:
        link = self._link = self._logged_in()  # it is closed where what follows fails
        self._declare(link)
        return link

    def _logged_in(self) -> AmqpLink:
        config = self._config
        host, port = host_port_of(config.address, _PORT, "rabbitmq.address")
        given = parameters(
            host, port, config.virtual_host, config.username, secret(config.password),
            context=tls_context(config.tls, "rabbitmq.tls"), timeout_s=config.timeout_s,
        )  # fmt: skip
        return AmqpLink(given, config.timeout_s)

    def _declare(self, link: AmqpLink) -> None:
        config = self._config
        if config.exchange_type:
            link.do(
                lambda channel, answer: channel.exchange_declare(
                    config.exchange, config.exchange_type, durable=True, callback=answer
                )
            )
        if config.queue:
            arguments = {} if config.queue_type == "classic" else {"x-queue-type": "quorum"}
            link.do(
                lambda channel, answer: channel.queue_declare(
                    config.queue, durable=True, arguments=arguments, callback=answer
                )
            )
        if config.queue and config.exchange and config.binding_key:
            link.do(
                lambda channel, answer: channel.queue_bind(
                    config.queue, config.exchange, config.binding_key, callback=answer
                )
            )

    def check(self, tables: Sequence[SourceTable]) -> Iterator[CheckResult]:
        """Log in, and look for the exchange, unless the sink makes it. Raises SinkError."""
        config = self._config
        try:
            link = self._logged_in()
            try:
                yield CheckResult("connection", True, config.address)
                if config.exchange and not config.exchange_type:
                    link.do(
                        lambda channel, answer: channel.exchange_declare(
                            config.exchange, passive=True, callback=answer
                        )
                    )
                    yield CheckResult("exchange", True, config.exchange)
            finally:
                link.close()
        except LinkError as error:
            raise sink_error(error) from None

    def write(self, changes: Changes) -> None:
        link, changes = self._opened(), changes.after(self._confirmed)
        if not len(changes):
            return
        found = self._maker.make(changes)
        self._refuse_too_long(found)
        # Messages come by topic, and a queue may be bound to several.
        order = np.argsort(found.entries, kind="stable")
        self._written.append(_Written(link.sent, found.entries[order].tolist(), changes))
        with self._translated():
            for run, is_alone in self._runs(self._messages(changes, found, order.tolist())):
                if is_alone:
                    link.wait_confirmed()
                link.publish(self._config.exchange, run)
                if is_alone:
                    link.wait_confirmed()

    def _runs(self, messages: Iterator[Publish]) -> Iterator[tuple[list[Publish], bool]]:
        """Yield messages that are sent at once, and whether others wait for their confirm."""
        one_by_one = time.monotonic() < self._one_by_one_until
        run: list[Publish] = []
        for message in messages:
            is_alone = one_by_one or len(message.body) > _LONG_BYTES
            if run and (is_alone or len(run) == _IN_FLIGHT):
                yield run, False
                run = []
            if is_alone:
                yield [message], True
            else:
                run.append(message)
        if run:
            yield run, False

    def _refuse_too_long(self, found: FlatMessages) -> None:
        """Raise SinkError before anything is sent, if the broker would not take a message."""
        longest = int(np.diff(found.offsets).max(initial=0))
        if 0 < self._bytes_max < longest:
            raise SinkError(
                f"RabbitMQ: a message has {longest} bytes, and the broker takes at most "
                f"{self._bytes_max} (max_message_size)",
                "poison",
            )

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except Refused as error:
            self._one_by_one_until = time.monotonic() + _ONE_BY_ONE_S
            raise sink_error(error) from None
        except LinkError as error:
            found = sink_error(error)
            if maximum := _MAXIMUM.search(str(error)):
                self._bytes_max = int(maximum[1])
            if error.code == spec.NOT_FOUND and self._config.exchange_type:
                found = SinkError(str(found), "retry")  # opening makes the exchange again
            raise found from None

    def _messages(
        self, changes: Changes, found: FlatMessages, order: list[int]
    ) -> Iterator[Publish]:
        names = list(self._maker.ids(changes, found))
        topics = [self._maker.topic(name) for name in found.topic_names]
        keys: dict[tuple[str, int], str] = {}
        for number in order:
            topic, partition = topics[found.topics[number]], int(found.partitions[number])
            key = keys.get((topic, partition))
            if key is None:
                key = keys[topic, partition] = self._routing_key(topic, partition)
            yield Publish(key, names[number], found[number])

    def _routing_key(self, topic: str, partition: int) -> str:
        """Raises SinkError: it is longer than AMQP has them."""
        key = self._config.routing_key.replace("{topic}", topic)
        key = key.replace("{partition}", str(partition))
        if len(key.encode()) > _KEY_BYTES_MAX:
            raise SinkError(
                f"RabbitMQ: the routing key {key!r} has more than {_KEY_BYTES_MAX} bytes: give "
                "such tables a shorter topic by routing.dynamic_topic, or change routing_key",
                "poison",
            )
        return key

    def commit(self, upto: Cursor) -> None:
        with self._translated():
            self._opened().wait_confirmed(soon=True)
        self._written.clear()
        if self._confirmed is not None and upto.is_before(self._confirmed):
            return  # the first half of a batch that comes again: the confirmed part goes further
        self._place, self._confirmed = upto, None

    def abort(self) -> None:
        """Note what is confirmed, and connect again if the connection has ended. What is under way
        cannot be called back, so it is waited for: of what is written again, only entries with a
        message that is not confirmed are sent again."""
        if self._link is not None:
            with contextlib.suppress(LinkError):
                self._link.wait_confirmed()
        self._note_confirmed()
        if self._link is not None and self._link.is_broken:
            self._link.close()
            self.open()

    def close(self) -> None:
        self._note_confirmed()
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def _note_confirmed(self) -> None:
        """Keep the last entry before the first whose message is not confirmed."""
        written, self._written = self._written, []
        if self._link is None or not written:
            return
        unconfirmed = np.array(self._link.unconfirmed(), np.int64)
        for first, entries, changes in written:
            low, high = np.searchsorted(unconfirmed, [first, first + len(entries)])
            missing = [entries[n - first] for n in unconfirmed[low:high].tolist()]
            missing += entries[max(self._link.sent - first, 0) :]
            part = changes.part
            reached = changes.between(part.first, min([*missing, part.last]))
            if len(reached):
                self._place = self._confirmed = reached.cursor
            if missing:
                return

    def _opened(self) -> AmqpLink:
        if self._link is None:
            raise SinkError("RabbitMQ: not connected", "retry")
        return self._link
