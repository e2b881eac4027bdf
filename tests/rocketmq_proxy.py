"""RocketMQ's gRPC service in this process: it keeps what is sent. (No registry has a broker: it
proves our calls, not RocketMQ; tests/integration/test_rocketmq.py runs against a real proxy, too.)
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from zlib import crc32

import grpc
from rocketmq.grpc_protocol.definition_pb2 import (
    AddressScheme,
    Code,
    DigestType,
    MessageType,
    Permission,
)
from rocketmq.grpc_protocol.service_pb2 import (
    AckMessageResponse,
    HeartbeatResponse,
    NotifyClientTerminationResponse,
    QueryRouteResponse,
    ReceiveMessageResponse,
    SendMessageResponse,
    TelemetryCommand,
)
from rocketmq.grpc_protocol.service_pb2_grpc import (
    MessagingServiceServicer,
    add_MessagingServiceServicer_to_server,
)
from rocketmq.v5.util import Misc

_QUEUES = 4
MAX_BODY_BYTES = 1 << 20


class RocketProxy(MessagingServiceServicer):  # type: ignore[misc]
    """`topics`: what each takes (MessageType). `refuse`: a Code for a message that it does not
    take. `delay_s`: of each answer."""

    def __init__(self, topics: dict[str, int], delay_s: float = 0.0) -> None:
        self.topics = topics
        self.delay_s = delay_s
        self.refuse: Callable[[Any], int] = lambda message: Code.OK
        self.messages: list[Any] = []
        self.metadata: dict[str, str] = {}
        self.at_once = self.at_once_max = 0
        self._queues: dict[str, list[list[Any]]] = {}
        self._read: dict[tuple[str, str], list[int]] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(32)
        self._server = grpc.server(self._pool)
        add_MessagingServiceServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    def stop(self) -> None:
        self._server.stop(0).wait()
        self._pool.shutdown()

    def QueryRoute(self, request: Any, context: Any) -> Any:
        response = QueryRouteResponse()
        name = request.topic.name
        if name not in self.topics:
            response.status.code, response.status.message = Code.TOPIC_NOT_FOUND, f"no {name}"
            return response
        response.status.code = Code.OK
        for number in range(_QUEUES):
            queue = response.message_queues.add()
            queue.topic.name, queue.id = name, number
            queue.permission = Permission.READ_WRITE
            queue.accept_message_types.append(self.topics[name])
            queue.broker.name = "broker"
            queue.broker.endpoints.scheme = AddressScheme.IPv4
            address = queue.broker.endpoints.addresses.add()
            address.host, address.port = "127.0.0.1", self.port
        return response

    def SendMessage(self, request: Any, context: Any) -> Any:
        response = SendMessageResponse()
        [message] = request.messages
        self.metadata = dict(context.invocation_metadata())
        with self._lock:
            self.at_once += 1
            self.at_once_max = max(self.at_once_max, self.at_once)
        time.sleep(self.delay_s)
        with self._lock:
            self.at_once -= 1
            code = self.refuse(message)
            if code == Code.OK:
                self.messages.append(message)
                self._store(message)
        response.status.code = code
        if code == Code.OK:
            response.entries.add().message_id = message.system_properties.message_id
        return response

    def _store(self, message: Any) -> None:
        """Put a message behind its queue's last one; a group has one queue."""
        own = message.system_properties
        own.queue_id = crc32(own.message_group.encode()) % _QUEUES
        queue = self._queues_of(message.topic.name)[own.queue_id]
        own.queue_offset, own.delivery_attempt, own.receipt_handle = len(queue), 1, "r"
        own.body_digest.type = DigestType.CRC32
        own.body_digest.checksum = Misc.crc32_checksum(message.body)
        queue.append(message)

    def _queues_of(self, topic: str) -> list[list[Any]]:
        return self._queues.setdefault(topic, [[] for _ in range(_QUEUES)])

    def ReceiveMessage(self, request: Any, context: Any) -> Iterator[Any]:
        """Hand each message of a tag to a consumer group once. As RocketMQ's proxy does it, a new
        group begins at the last message of each queue."""
        topic, wanted = request.message_queue.topic.name, request.filter_expression.expression
        found: list[Any] = []
        with self._lock:
            queues = self._queues_of(topic)
            first = [max(len(queue) - 1, 0) for queue in queues]
            read = self._read.setdefault((request.group.name, topic), first)
            for number, queue in enumerate(queues):
                taken = queue[read[number] : read[number] + request.batch_size - len(found)]
                read[number] += len(taken)
                found += [each for each in taken if each.system_properties.tag == wanted]
        response = ReceiveMessageResponse()
        response.status.code = Code.OK if found else Code.MESSAGE_NOT_FOUND
        yield response
        for message in found:
            yield ReceiveMessageResponse(message=message)

    def AckMessage(self, request: Any, context: Any) -> Any:
        response = AckMessageResponse()
        response.status.code = Code.OK
        return response

    def Heartbeat(self, request: Any, context: Any) -> Any:
        response = HeartbeatResponse()
        response.status.code = Code.OK
        return response

    def NotifyClientTermination(self, request: Any, context: Any) -> Any:
        response = NotifyClientTerminationResponse()
        response.status.code = Code.OK
        return response

    def Telemetry(self, request_iterator: Iterator[Any], context: Any) -> Iterator[Any]:
        for command in request_iterator:
            if command.HasField("settings"):
                answer = TelemetryCommand()
                answer.status.code = Code.OK
                answer.settings.CopyFrom(command.settings)
                answer.settings.publishing.max_body_size = MAX_BODY_BYTES
                answer.settings.publishing.validate_message_type = True
                yield answer


FIFO, NORMAL = MessageType.FIFO, MessageType.NORMAL
