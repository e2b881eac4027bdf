"""Calls of our own connectors over Flight (client/flight_wire.py), passed on to a destination.

The destination answers as it does over Ray: batches, epochs and holders are its own. What is kept
here are the references of chunks that were handed out, until the batch is acked or given back.
Without Ray; the caller gives what makes calls and loads chunks.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any

from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.canal.session import Identity, Unsubscribe
from ray_canal.client.flight_wire import CallAnswer, Head, unpacked_call
from ray_canal.destination.api import (
    AckRequest,
    ClientRequest,
    DestinationApi,
    GetRequest,
    PollRequest,
    RollbackRequest,
    SubscribeRequest,
)
from ray_canal.errors import AccessDenied, CanalError, ConfigError, InstanceRestarted
from ray_canal.model.message import EMPTY_BATCH, MessageHead, Payload
from ray_canal.server.access import User

Reply = MessageHead | int | bool | str | list[int] | None
Call = Callable[..., Coroutine[Any, Any, Reply]]
"""One of DestinationApi's methods for clients, with whichever request it takes."""
Submit = Callable[[str, Call, ClientRequest], Reply]
Load = Callable[[list[Payload]], list[DecodedChunk]]
_HOLDER = "flight:"


@dataclass
class _Handed:
    """The chunks of one client's batches by their ids. `done`: an ack was for a batch that is read
    after it."""

    epoch: int = 0
    batches: dict[int, list[Payload]] = field(default_factory=dict)
    done: int = EMPTY_BATCH


class RemoteCalls:
    """Calls from several threads, one a client at a time."""

    def __init__(self, submit: Submit, load: Load, clients_max: int) -> None:
        self._submit = submit
        self._load = load
        self._clients_max = clients_max
        self._lock = threading.Lock()
        self._handed: dict[tuple[str, int], _Handed] = {}

    def call(self, user: User, data: bytes) -> bytes:
        """The answer to a call. Raises ConfigError: it is none; AccessDenied."""
        destination, method, request = unpacked_call(data)
        _refuse(user, Identity(destination, request.client_id), method, request)
        if not request.holder:
            raise ConfigError("a call names its connection (`holder`)")
        request = replace(request, holder=_HOLDER + request.holder)
        if isinstance(request, PollRequest):
            # The log has the chunks for as long as the batch is outstanding, and so have we.
            request = replace(request, untracked=True)
        key = destination, request.client_id
        self._before(key, request)
        try:
            found = self._submit(destination, method, request)
        except AccessDenied:
            raise
        except CanalError as error:
            return CallAnswer.of_error(error).model_dump_json().encode()
        if isinstance(found, MessageHead):
            answer = CallAnswer(head=self._handed_out(key, found))
        else:
            self._after(key, method, request)
            answer = CallAnswer(answer=found)
        return answer.model_dump_json().encode()

    def chunk(self, user: User, name: str) -> DecodedChunk:
        """A chunk of a message that is outstanding. Raises InstanceRestarted: it is not known any
        more; AccessDenied, ConfigError."""
        try:
            destination, *numbers = json.loads(name)
            client_id, epoch, batch_id, number = map(int, numbers)
            key = str(destination), client_id
        except (ValueError, TypeError, OverflowError, RecursionError):
            raise ConfigError(f"{name[:100]!r} names no chunk") from None
        user.refuse_without("read", Identity(*key))
        with self._lock:
            handed = self._handed.get(key)
            payloads = handed.batches.get(batch_id) if handed and handed.epoch == epoch else None
        if payloads is None or not 0 <= number < len(payloads):
            raise InstanceRestarted(
                f"batch {batch_id} is not outstanding here any more; it will be delivered again"
            ).at(destination=key[0])
        return self._load([payloads[number]])[0]

    def _handed_out(self, key: tuple[str, int], head: MessageHead) -> Head:
        names = [
            json.dumps([*key, head.epoch, head.id, number]) for number in range(len(head.parts))
        ]
        if head.id != EMPTY_BATCH:
            with self._lock:
                handed = self._handed.get(key)
                if handed is None or handed.epoch != head.epoch:
                    handed = self._handed[key] = _Handed(head.epoch)
                    self._forget_others(key)
                handed.batches[head.id] = [part.payload for part in head.parts]
        return Head.of(head, names)

    def _forget_others(self, key: tuple[str, int]) -> None:
        """Keep the chunks of so many clients; of the one that began first they come again."""
        while len(self._handed) > self._clients_max:
            del self._handed[next(each for each in self._handed if each != key)]

    def _before(self, key: tuple[str, int], request: ClientRequest) -> None:
        """A get says that what was acked before is read."""
        done = EMPTY_BATCH
        if isinstance(request, PollRequest) and request.done is not None:
            done = request.done[0]
        with self._lock:
            handed = self._handed.get(key)
            if handed is not None and isinstance(request, GetRequest):
                self._free(handed, max(done, handed.done))

    def _after(
        self, key: tuple[str, int], method: Call, request: ClientRequest
    ) -> None:
        with self._lock:
            handed = self._handed.get(key)
            if handed is None:
                return
            if isinstance(request, AckRequest):
                if request.keep:
                    handed.done = request.batch_id
                else:
                    self._free(handed, request.batch_id)
            elif isinstance(request, RollbackRequest) and request.batch_id is not None:
                kept = {i: each for i, each in handed.batches.items() if i < request.batch_id}
                handed.batches = kept
            elif isinstance(request, SubscribeRequest | RollbackRequest) or (
                method is DestinationApi.unsubscribe
            ):
                del self._handed[key]

    @staticmethod
    def _free(handed: _Handed, upto: int) -> None:
        handed.batches = {i: each for i, each in handed.batches.items() if i > upto}


def _refuse(
    user: User, identity: Identity, method: Call, request: ClientRequest
) -> None:
    """Raises AccessDenied: the user may not make this call."""
    if method is DestinationApi.unsubscribe:
        user.refuse(Unsubscribe(identity))
        return
    user.refuse_without("read", identity)
    if isinstance(request, SubscribeRequest):
        user.refuse_without("subscribe", identity)
    if isinstance(request, AckRequest) or (isinstance(request, PollRequest) and request.done):
        user.refuse_without("ack", identity)
