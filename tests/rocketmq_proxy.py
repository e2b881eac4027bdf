"""RocketMQ's gRPC service in this process: it keeps what is sent. (No registry has a broker: it
proves our calls, not RocketMQ; tests/integration/test_rocketmq.py runs against a real proxy, too.)
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from rocketmq.grpc_protocol.definition_pb2 import AddressScheme, Code, MessageType, Permission
from rocketmq.grpc_protocol.service_pb2 import (
    HeartbeatResponse,
    NotifyClientTerminationResponse,
    QueryRouteResponse,
    SendMessageResponse,
    TelemetryCommand,
)
from rocketmq.grpc_protocol.service_pb2_grpc import (
    MessagingServiceServicer,
    add_MessagingServiceServicer_to_server,
)

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
        response.status.code = code
        if code == Code.OK:
            response.entries.add().message_id = message.system_properties.message_id
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
