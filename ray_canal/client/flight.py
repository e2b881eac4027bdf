"""A connector's transport over Arrow Flight: outside the cluster, without Ray, with all that the
Ray handle has.

The destination sees the same calls as over Ray (flight/remote_calls.py passes them on), so batches
have Arrow rows and entries, and what was lost on the way comes again by the same rules. Chunks of a
message are fetched side by side when it is read.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from pyarrow import flight

from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.client.flight_wire import CallAnswer, chunk_of, packed_call
from ray_canal.client.holder import holder_for
from ray_canal.client.message import Message
from ray_canal.destination.api import (
    BatchRequest,
    ClientRequest,
    GetRequest,
    Method,
    Q,
    R,
    is_repeatable,
)
from ray_canal.errors import (
    AccessDenied,
    AuthenticationFailed,
    CanalError,
    ConfigError,
    ConnectionLost,
    InstanceNotFound,
    InstanceNotRunning,
    InstanceRestarted,
    MetaUnavailable,
)
from ray_canal.model.message import EMPTY_BATCH, Caller, MessageHead, Payload

T = TypeVar("T")

_REPEAT_S = 60.0
_ANSWER_S = 60.0
_FETCH_S_MAX = 1800.0
_PAUSE_S, _PAUSE_S_MAX = 0.1, 1.0
_KEEP_ALIVE = {
    "grpc.keepalive_time_ms": 310_000,
    "grpc.keepalive_timeout_ms": 20_000,
    "grpc.http2.max_pings_without_data": 0,
}
"""A get without an end notices within six minutes that the server's machine is gone. gRPC's servers
close a connection that asks more often than every five minutes (GRPC_ARG_HTTP2_MIN_RECV_PING_
INTERVAL_WITHOUT_DATA_MS)."""
_NO_HTTP_PROXY = {"grpc.enable_http_proxy": 0}
"""gRPC would ask the proxy of `http_proxy`, which is there for the web, for each address that
`no_proxy` does not list, this machine's own too. `grpc_proxy` names one for gRPC."""
_FETCHES = 4
"""So many chunks of a message are fetched at once."""
_CALLS = 8
"""So many calls may be under way on an event loop: a get that waits, acks, gets that were given
up and are not answered yet."""


@dataclass(frozen=True, slots=True)
class FlightAddress:
    """Where the Flight port is, and how a client comes in. `ca`, `cert`, `key`: files with PEM."""

    location: str
    username: str = ""
    password: str = field(default="", repr=False)
    ca: str = ""
    cert: str = ""
    key: str = ""

    @classmethod
    def of(cls, address: str, username: str, password: str, tls: object) -> FlightAddress:
        """Raises ConfigError: `tls` is no dict of files, or does not belong to the address."""
        files = {} if tls is None else tls
        if not isinstance(files, dict) or set(files) - {"ca", "cert", "key"}:
            raise ConfigError(
                f'for {address} give tls={{"ca": FILE}}, and "cert" and "key" where the port asks '
                "for a client's certificate"
            )
        if files and not address.startswith("grpc+tls://"):
            raise ConfigError(f"tls belongs to an address grpc+tls://…, not to {address}")
        return cls(address.rstrip("/"), username, password, **files)

    def opened(self) -> flight.FlightClient:
        """Raises ConfigError: a file cannot be read."""
        try:
            read = {name: Path(getattr(self, name)).read_bytes() for name in _files(self)}
        except OSError as error:
            raise ConfigError(f"tls: {error.filename}: {error.strerror}") from error
        return flight.FlightClient(
            self.location,
            tls_root_certs=read.get("ca"),
            cert_chain=read.get("cert"),
            private_key=read.get("key"),
            generic_options=list(_channel_options().items()),
        )


def _channel_options() -> dict[str, int]:
    has_proxy = os.environ.get("grpc_proxy")  # noqa: SIM112 - gRPC's own name
    return _KEEP_ALIVE if has_proxy else {**_KEEP_ALIVE, **_NO_HTTP_PROXY}


def _files(address: FlightAddress) -> list[str]:
    return [name for name in ("ca", "cert", "key") if getattr(address, name)]


class FlightTransport:
    """Calls from any thread; see Transport."""

    has_batches = True
    untracked = False

    def __init__(
        self, destination: str, address: FlightAddress, repeat_s: float = _REPEAT_S
    ) -> None:
        """Raises ConnectionLost, AuthenticationFailed; InstanceNotFound: there is no such
        destination that the user may read."""
        self.destination = destination
        self._address = address
        self._repeat_s = repeat_s
        self._holder = ""
        self._caller = uuid.uuid4().hex
        self._numbers = itertools.count(1)
        self._received: dict[int, tuple[int, int]] = {}  # client id: epoch, newest batch
        self._fetch_s = 0.0  # a chunk takes longer than an answer: the line is slow
        self._lock = threading.Lock()
        self._client: flight.FlightClient | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        # Not the loop's own threads, which are few: gets of others would wait for one.
        self._callers = ThreadPoolExecutor(_CALLS, "ray_canal flight calls")
        self._fetchers = ThreadPoolExecutor(_FETCHES, "ray_canal flight")
        known = json.loads(self._made(lambda: self._act("destinations", b"")))["destinations"]
        if destination not in known:
            raise InstanceNotFound(
                f"no destination {destination!r} at {address.location} that this user may read "
                f"(there: {', '.join(known) or 'none'})"
            )

    # --- what connectors call -------------------------------------------------------------------

    def call(self, method: Method[Q, R], request: Q, *, once: bool = False) -> R:
        """Call and wait; what is repeatable is made again, over a new connection, up to a minute.
        Raises InstanceRestarted: the connection broke during a call that may not be repeated."""
        repeat = is_repeatable(method) and not once
        return self._arrived(request, self._called(method, request, repeat, threading.Event()))

    async def call_async(self, method: Method[Q, R], request: Q) -> R:
        """The same, awaited. What a get that is cancelled brings comes again with the next one."""
        given_up, repeat = threading.Event(), is_repeatable(method)
        try:
            call = partial(self._called, method, request, repeat, given_up)
            answer = await asyncio.get_running_loop().run_in_executor(self._callers, call)
            return self._arrived(request, answer)
        finally:
            given_up.set()  # a repetition would be newer than the get that is made next

    def _called(
        self, method: Method[Q, R], request: Q, repeat: bool, given_up: threading.Event
    ) -> R:
        deadline, pause_s = time.monotonic() + self._repeat_s, _PAUSE_S
        while True:
            try:
                return self._exchange(method, self._prepared(request))
            except CanalError as error:
                in_time = time.monotonic() < deadline and not given_up.is_set()
                self._after(error, repeat, in_time, request)
            if given_up.wait(pause_s):
                raise ConnectionLost("the call was given up").at(destination=self.destination)
            pause_s = min(1.5 * pause_s, _PAUSE_S_MAX)

    def arrived_ids(self, client_id: int, batch_ids: list[int]) -> list[int]:
        """Return those of a client's outstanding batches that have arrived here."""
        _, received = self._received.get(client_id, (0, 0))
        return [each for each in batch_ids if each <= received]

    def not_received(self, client_id: int, batch_id: int) -> None:
        """Note that a batch and those after it have not arrived: the next get brings them again."""
        epoch, received = self._received.get(client_id, (0, 0))
        self._received[client_id] = (epoch, min(received, batch_id - 1))

    def message(self, head: MessageHead) -> Message:
        return Message(head, self._load)

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    # --- calls ----------------------------------------------------------------------------------

    def _prepared(self, request: Q) -> Q:
        self._holder = holder_for(request, self._holder, self.destination)
        if isinstance(request, GetRequest):
            received = self._received.get(request.client_id, (0, 0))
            caller = Caller(self._caller, next(self._numbers), *received)
            request = replace(request, caller=caller)
        return replace(request, holder=self._holder)

    def _exchange(self, method: Method[Q, R], request: Q) -> R:
        body = packed_call(self.destination, method, request)
        limit_s: float | None = _ANSWER_S
        if isinstance(request, GetRequest):  # a timeout of 0 waits for a full batch
            limit_s = None if request.timeout == 0 else _ANSWER_S + (request.timeout or 0.0)
        data = self._made(lambda: self._act("call", body, limit_s))
        answer: R = CallAnswer.model_validate_json(data).result()
        return answer

    def _arrived(self, request: ClientRequest, answer: R) -> R:
        if isinstance(answer, MessageHead) and answer.id != EMPTY_BATCH:
            self._received[request.client_id] = (answer.epoch, answer.id)
        return answer

    def _after(
        self, error: CanalError, repeat: bool, in_time: bool, request: ClientRequest
    ) -> None:
        """Return if the call should be repeated, else raise what the caller should see."""
        lost = isinstance(error, ConnectionLost | InstanceNotRunning | InstanceNotFound)
        undone = isinstance(error, MetaUnavailable)
        if in_time and (undone or (repeat and (lost or error.retryable))):
            return
        if not lost or undone:
            raise error
        if isinstance(request, BatchRequest):  # it may have been carried out
            self.not_received(request.client_id, request.batch_id or 0)
        raise InstanceRestarted(
            f"the call was not answered; what was not acked will be delivered again: {error}"
        ).at(destination=self.destination) from error

    def _load(self, names: list[Payload]) -> list[DecodedChunk]:
        """Fetch the chunks of a message. Raises InstanceRestarted: they are not there any more."""
        try:
            if len(names) == 1 or all(isinstance(each, DecodedChunk) for each in names):
                return [self._fetched(each) for each in names]
            return list(self._fetchers.map(self._fetched, names))
        except (AccessDenied, AuthenticationFailed, InstanceRestarted):
            raise
        except CanalError as error:
            raise InstanceRestarted(
                f"a chunk of this message cannot be fetched, and comes again: {error}"
            ).at(destination=self.destination) from error

    def _fetched(self, name: Payload) -> DecodedChunk:
        if isinstance(name, DecodedChunk):  # it came with the message
            return name
        ticket = flight.Ticket(b'{"chunk":' + json.dumps(name).encode() + b"}")
        pieces: list[pa.RecordBatch] = []

        def fetch() -> DecodedChunk:
            pieces.clear()
            client, options = self._connected(limit_s)
            reader = client.do_get(ticket, options)
            pieces.extend(each.data for each in reader)
            return chunk_of(reader.schema, iter(pieces))

        while True:
            limit_s = max(self._fetch_s, _ANSWER_S)
            try:
                return self._made(fetch)
            except ConnectionLost as error:
                # Some of it came: the line is slow, and the same limit would not do next time.
                is_late = isinstance(error.__cause__, flight.FlightTimedOutError)
                if not is_late or not pieces or limit_s > _FETCH_S_MAX:
                    raise
                self._fetch_s = max(self._fetch_s, 2 * limit_s)

    # --- the connection -------------------------------------------------------------------------

    def _act(self, name: str, body: bytes, limit_s: float | None = _ANSWER_S) -> bytes:
        client, options = self._connected(limit_s)
        (answer,) = client.do_action(flight.Action(name, body), options)
        data: bytes = answer.body.to_pybytes()
        return data

    def _connected(self, limit_s: float | None) -> tuple[flight.FlightClient, Any]:
        with self._lock:
            if self._client is None:
                client = self._address.opened()
                self._headers = []
                if self._address.password:
                    login = self._address.username, self._address.password
                    within = flight.FlightCallOptions(timeout=_ANSWER_S)
                    self._headers = [client.authenticate_basic_token(*login, within)]
                self._client = client
            options = flight.FlightCallOptions(timeout=limit_s, headers=self._headers)
            return self._client, options

    def _made(self, step: Callable[[], T]) -> T:
        """Return what a step over the connection gives; a login that has expired is made again.
        Raises CanalError kinds."""
        for attempt in (1, 2):
            try:
                return step()
            except flight.FlightUnauthenticatedError as error:
                self._drop()
                if attempt == 2 or not self._address.password:
                    raise AuthenticationFailed(_text(error)) from error
            except flight.FlightUnauthorizedError as error:
                raise AccessDenied(_text(error)) from error
            except (pa.ArrowException, OSError) as error:
                if isinstance(error, pa.ArrowInvalid) and not isinstance(error, flight.FlightError):
                    raise ConfigError(_text(error)) from error
                self._drop()
                raise ConnectionLost(
                    f"Arrow Flight at {self._address.location}: {_text(error)}"
                ) from error
        raise AssertionError("unreachable")

    def _drop(self) -> None:
        """The next call opens a new connection."""
        with self._lock:
            self._client = None


def _text(error: Exception) -> str:
    """Flight's text without the part for developers of gRPC."""
    lines = str(error).strip().splitlines()
    return lines[0].partition(". gRPC client debug context")[0] if lines else repr(error)
