"""RocketMQ 5: messages to its gRPC proxy, each confirmed before the log is acknowledged.

At least once: a transaction of this protocol holds one message. Order is kept by message groups,
which are Canal's partitions: each has one message under way, since the client may repeat a send
that came late, behind the next one. (Groups go side by side.)
"""

from __future__ import annotations

import logging
import queue
import socket
import zlib
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import pairwise
from typing import Any, TypeAlias

from rocketmq.grpc_protocol.definition_pb2 import Code
from rocketmq.v5.client import ClientConfiguration, Credentials
from rocketmq.v5.exception import (
    BadRequestException,
    ForbiddenException,
    IllegalArgumentException,
    NotFoundException,
    PayloadEmptyException,
    PayloadTooLargeException,
    PaymentRequiredException,
    RequestHeaderFieldsTooLargeException,
    UnauthorizedException,
    UnsupportedException,
)
from rocketmq.v5.model import Message
from rocketmq.v5.producer import Producer

from ray_canal.config import SinkConfig, secret
from ray_canal.config.section import host_port_of
from ray_canal.proxies import grpc_direct_here
from ray_canal.sinks.messages import MessageMaker
from ray_canal.sinks.port import Changes, Cursor, Guarantee, Kind, SinkError
from ray_canal.sinks.target_checks import SourceTable
from ray_canal.source.setting_checks import CheckResult
from ray_canal.views.routed import FlatMessages

_PORT = 8081
_QUIET_S = 60.0
_TRIES = 4
"""How often the client tries a message, and once more for its pauses."""
_FATAL = (
    UnauthorizedException, ForbiddenException, PaymentRequiredException, BadRequestException,
    IllegalArgumentException, UnsupportedException,
)  # fmt: skip
_TOO_LONG = (
    PayloadTooLargeException, PayloadEmptyException, RequestHeaderFieldsTooLargeException,
)  # fmt: skip
_PASSING = {"MESSAGE_CORRUPTED"}  # on its way: its digest did not fit
_HINTS = {
    "ILLEGAL_ACCESS_POINT": "is rocketmq.address that of RocketMQ 5's proxy?",
    "ILLEGAL_TOPIC": "a topic has letters, digits, _, - and %: see routing.topic and dynamic_topic",
    "ILLEGAL_MESSAGE_TAG": "set another rocketmq.tag",
    "ILLEGAL_MESSAGE_GROUP": "a group is the topic and Canal's partition: give topics shorter "
    "names, or set rocketmq.fifo = false (no order)",
    "ILLEGAL_MESSAGE_KEY": "a key is what names a message (docs/reference/flat-message.md); does "
    "the broker limit keys?",
    "UNAUTHORIZED": "set rocketmq.access_key and secret_key to a user of the broker's ACL",
    "FORBIDDEN": "give the user of rocketmq.access_key the right PUB on the topic",
}


_Done: TypeAlias = "queue.SimpleQueue[tuple[Hashable, Future[Any]]]"


def _log_as_the_others() -> None:
    """The client's package writes a log file of its own in the home folder; its warnings belong to
    the log of the process."""
    logger = logging.getLogger("rocketmq-python-client")
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()
    logger.setLevel(logging.WARNING)
    logger.propagate = True
    if not any(isinstance(each, _OnceInAWhile) for each in logger.filters):
        logger.addFilter(_OnceInAWhile())


class _OnceInAWhile(logging.Filter):
    """Each place of the client's code once a minute: it warns of each message that it sends again,
    and what keeps the sink is in its status."""

    def __init__(self) -> None:
        super().__init__()
        self._last_s: dict[tuple[str, int], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        place = record.pathname, record.lineno
        if record.created - self._last_s.get(place, 0.0) < _QUIET_S:
            return False
        self._last_s[place] = record.created
        return True


def _places(address: str) -> list[tuple[str, int]]:
    return [host_port_of(each, _PORT, "rocketmq.address") for each in address.split(";")]


def refuse_silence(address: str, timeout_s: float) -> None:
    """Raise SinkError if nothing listens at any of the addresses: the client itself would see that
    with the first topic that it is asked for."""
    failures = []
    for host, port in _places(address):
        try:
            socket.create_connection((host, port), timeout_s).close()
            return
        except OSError as error:
            failures.append(f"{host}:{port}: {error}")
    raise SinkError(f"RocketMQ: {'; '.join(failures)}", "retry")


class RocketSink:
    guarantee: Guarantee = "at_least_once"

    def __init__(self, config: SinkConfig) -> None:
        _log_as_the_others()
        self._config = config.rocketmq
        message = config.message.model_copy(update={"tombstones": False})
        self._maker = MessageMaker(message, config.routing)
        self._producer: Any = None

    def open(self) -> Cursor | None:
        config = self._config
        keys = Credentials(secret(config.access_key), secret(config.secret_key))
        address = ";".join(f"{host}:{port}" for host, port in _places(config.address))
        grpc_direct_here()
        try:
            given = ClientConfiguration(
                address, keys, config.namespace, request_timeout=int(config.timeout_s)
            )
            self._producer = Producer(given, tls_enable=config.tls)
            self._producer.startup()
        except Exception as error:  # the client raises its own kinds, gRPC's and plain ones
            raise _error(error) from None
        return None

    def check(self, tables: Sequence[SourceTable]) -> Iterator[CheckResult]:
        """Log in. Raises SinkError."""
        refuse_silence(self._config.address, self._config.timeout_s)
        try:
            self.open()
        finally:
            self.close()
        yield CheckResult("connection", True, self._config.address)

    def write(self, changes: Changes) -> None:
        """Send messages, and wait until the broker has confirmed each."""
        producer = self._producer
        if producer is None:
            raise SinkError("RocketMQ: not connected", "retry")
        found = self._maker.make(changes)
        ids = list(self._maker.ids(changes, found))
        topics = [name.replace(".", "_") for name in found.topic_names]  # no dots in RocketMQ's
        group_of = self._groups(found, topics) if self._config.fifo else [""] * len(found)
        groups: dict[Hashable, deque[int]] = {}
        for number, group in enumerate(group_of):
            groups.setdefault(group or number, deque()).append(number)

        def send(number: int) -> Future[Any]:
            topic, body = topics[found.topics[number]], bytes(found[number])
            message = self._message(topic, group_of[number], ids[number], body)
            sent: Future[Any] = producer.send_async(message)
            return sent

        in_order(groups, send, self._config.in_flight, _TRIES * self._config.timeout_s)

    def _groups(self, found: FlatMessages, topics: list[str]) -> list[str]:
        """Return each message's group."""
        partitions = found.partitions.tolist()
        if found.keys is not None:
            buffer, offsets = found.keys
            keys = (buffer[low:high].data for low, high in pairwise(offsets.tolist()))
            partitions = [zlib.crc32(key) % self._config.groups for key in keys]
        pairs = zip(found.topics.tolist(), partitions, strict=True)
        return [f"{topics[topic]}-{partition}" for topic, partition in pairs]

    def _message(self, topic: str, group: str, name: str, body: bytes) -> Any:
        message = Message()
        message.topic, message.body, message.keys = topic, body, name
        if group:
            message.message_group = group
        if self._config.tag:
            message.tag = self._config.tag
        return message

    def commit(self, upto: Cursor) -> None:
        """All is confirmed already; RocketMQ keeps no place."""

    def abort(self) -> None:
        """Do nothing: what was sent stays; what is written again comes again, under the same
        keys."""

    def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None and producer.is_running:
            producer.shutdown()


def in_order(
    groups: Mapping[Hashable, deque[int]], send: Callable[[int], Future[Any]], in_flight: int,
    timeout_s: float,
) -> None:  # fmt: skip
    """Send the numbers of each group one after the other, at most `in_flight` groups at once.
    After a failure nothing is begun, and what is under way is waited for, so that nothing of it
    comes behind what is sent again. Raises SinkError."""
    done: _Done = queue.SimpleQueue()
    ready, running = deque(groups), 0
    failure: SinkError | None = None
    while True:
        while ready and running < in_flight and failure is None:
            group = ready.popleft()
            try:
                sent = send(groups[group].popleft())
            except Exception as error:
                failure = _error(error)
            else:
                running += 1
                sent.add_done_callback(partial(_put, done, group))
        if not running:
            break
        try:
            group, sent = done.get(timeout=timeout_s)
        except queue.Empty:
            raise failure or SinkError(
                f"RocketMQ: {running} messages were not confirmed in {timeout_s:g} s", "retry"
            ) from None
        running -= 1
        refused = sent.exception()
        if refused is not None:
            failure = failure or _error(refused)
        elif groups[group]:
            ready.append(group)
    if failure is not None:
        raise failure


def _put(done: _Done, group: Hashable, sent: Future[Any]) -> None:
    done.put((group, sent))


def _error(error: BaseException) -> SinkError:
    code = getattr(error, "code", None)
    name = Code.Name(code) if code in Code.values() else ""
    text = f"{type(error).__name__}: {f'{name} ' if name else ''}{error}"
    found: Kind = "retry"
    if isinstance(error, _TOO_LONG) or "body size exceeds" in text:
        found = "poison"
    elif "message type not match" in text:
        found = "fatal"
        text += (
            "; make the topic with `mqadmin updateTopic … -a +message.type=FIFO`, or set "
            "rocketmq.fifo = false (no order)"
        )
    elif isinstance(error, NotFoundException) or "failed to fetch topic" in text:
        text += "; is there such a topic, and RocketMQ 5's proxy at rocketmq.address?"
    elif isinstance(error, _FATAL) and name not in _PASSING:
        found = "fatal"
        text += f"; {_HINTS[name]}" if name in _HINTS else ""
    return SinkError(f"RocketMQ: {text}", found)
