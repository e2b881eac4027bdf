"""The Flight server: what each of Flight's calls does. Without Ray; the caller gives connectors.

    ListFlights(destination)        a flight for each table that is being read there
    GetFlightInfo(request)          subscribe; the ticket to read with, the columns if known
    DoGet(ticket)                   the rows that follow (table_stream.py)
    DoAction(name, request)         subscribe, ack, rollback, unsubscribe, outstanding, destinations
    DoAction(call), DoGet(chunk)    what our own connectors ask for (remote_calls.py)
    DoAction(spark), DoGet(rows)    what Spark's format("ray_canal") asks for (spark_reads.py)

Requests, tickets and answers are JSON objects; a request's keys are those of `Request`.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import flight
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ray_canal.canal.session import Identity, Unsubscribe
from ray_canal.client.connector import Connector
from ray_canal.client.flight_wire import bytes_reader, chunk_reader
from ray_canal.config import FlightConfig
from ray_canal.config.section import explained
from ray_canal.errors import AccessDenied, CanalError, ConfigError, InstanceError, NotSubscribed
from ray_canal.flight.logins import MIDDLEWARE, FlightLogins, Handshake
from ray_canal.flight.remote_calls import RemoteCalls
from ray_canal.flight.spark_reads import SparkReads
from ray_canal.flight.table_stream import TableStream
from ray_canal.server.access import Access, User

_REQUEST_BYTES_MAX = 64 << 10
_SPARK_BYTES_MAX = 4 << 20  # it tells the columns of a table
_CHUNK, _ROWS = b'{"chunk":', b'{"rows":'
ACTIONS = {
    "subscribe": "become a subscriber of a table; batches that were not acked come again",
    "ack": "confirm everything up to `batch_id`: the cursor moves behind it",
    "rollback": "give back what is not acked",
    "unsubscribe": "forget the subscriber and its cursor",
    "outstanding": "ids of the batches that can be acked",
    "destinations": "names of the destinations that the user may read",
    "call": "a call of ray_canal's own connectors (canal.connect with address grpc://…)",
    "spark": "a request of Spark's format(\"ray_canal\") with the option `address`",
}


class Request(BaseModel):
    """Request of a call. `table`: "schema.name". `wait_s`: a stream ends when nothing new has
    come for so long. `rows_max`: it ends after the message with this row; 0: no limit."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    destination: str
    client_id: int = Field(ge=0, lt=1 << 30)
    table: str = ""
    wait_s: float = Field(default=1.0, ge=0, le=3600)
    rows_max: int = Field(default=0, ge=0)
    batch_id: int = 0


@dataclass(slots=True)
class _Subscriber:
    stream: TableStream
    table: str
    used: float = field(default_factory=time.monotonic)


class FlightServer(flight.FlightServerBase):  # type: ignore[misc]
    """Flight for every destination that `connect` knows."""

    def __init__(
        self,
        config: FlightConfig,
        connect: Callable[[str, int], Connector],
        destinations: Callable[[], list[str]],
        remote: RemoteCalls,
        spark: SparkReads,
    ) -> None:
        """`remote`: what our own connectors call. `spark`: what Spark's source asks for. Listens
        when this returns.

        Raises ConfigError: the port is taken, a file of TLS is not
        there, a secret cannot be read."""
        access = Access(config)
        self._config = config
        self._connect = connect
        self._destinations = destinations
        self._remote = remote
        self._spark = spark
        self._lock = threading.Lock()
        self._subscribers: dict[tuple[str, int], _Subscriber] = {}
        scheme = "grpc+tls" if config.tls.cert else "grpc"
        host = f"[{config.listens_on}]" if ":" in config.listens_on else config.listens_on
        logins = FlightLogins(access, config.idle_timeout_s, config.logins_max)
        try:
            super().__init__(
                f"{scheme}://{host}:{config.port}",
                auth_handler=Handshake(),
                middleware={MIDDLEWARE: logins},
                **_tls(config),
            )
        except (OSError, pa.ArrowException) as error:
            raise ConfigError(
                f"flight: cannot listen on {config.listens_on}:{config.port}: {error}; "
                "give another flight.port, or stop what has it"
            ) from error

    # --- Flight's calls -------------------------------------------------------------------------

    def list_flights(self, context: Any, criteria: bytes) -> Iterator[Any]:
        """Yield the tables that are being read; `criteria`: a destination's name, or empty."""
        user = _user(context)
        wanted = criteria.decode(errors="replace")
        with self._lock:
            known = dict(self._subscribers)
        for destination, client_id in sorted(known):
            if wanted in ("", destination) and _may_read(user, destination, client_id):
                each = known[destination, client_id]
                request = Request(
                    destination=destination, client_id=client_id, table=each.table
                )
                yield _info(each.stream, request)

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        """Subscribe, and return the ticket that reads. The columns are those of the rows that were
        read last; of a new subscriber they are told by the stream itself."""
        with _told():
            request = _parsed(descriptor.command or b"")
            return _info(self._subscribe(_user(context), request), request)

    def do_get(self, context: Any, ticket: Any) -> Any:
        """Stream the rows that follow. A subscriber that is unknown here (this server has started
        since) is subscribed first."""
        with _told():
            user = _user(context)
            if ticket.ticket.startswith(_CHUNK):
                chunk = self._remote.chunk(user, _named("chunk", ticket.ticket))
                return flight.RecordBatchStream(chunk_reader(chunk))
            if ticket.ticket.startswith(_ROWS):
                rows = self._spark.rows(_named("rows", ticket.ticket))
                return flight.RecordBatchStream(bytes_reader(rows, {}))
            request = _parsed(ticket.ticket)
            found = self._find(user, request) or self._subscribe(user, request)
            pieces = found.pieces(request.wait_s, request.rows_max)
            first = next(pieces, None)
        if first is None:
            return flight.RecordBatchStream(pa.table({}))

        def batches() -> Iterator[pa.RecordBatch]:
            with _told():
                yield first.batch
                for piece in pieces:
                    yield piece.batch

        # Not a GeneratorStream: that one cannot send a batch's own dictionaries.
        return flight.RecordBatchStream(
            pa.RecordBatchReader.from_batches(first.batch.schema, batches())
        )

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        """Return the actions with what they do."""
        return list(ACTIONS.items())

    def do_action(self, context: Any, action: Any) -> Iterator[bytes]:
        """Carry out an action; its answer is one JSON object."""
        with _told():
            if action.type not in ACTIONS:
                raise ConfigError(f"action {action.type!r}: there are {', '.join(ACTIONS)}")
            user = _user(context)
            if action.type == "destinations":
                names = [n for n in self._destinations() if _may_read(user, n, None)]
                return iter([_answer(destinations=names)])
            body = action.body.to_pybytes() if action.body is not None else b""
            if action.type == "call":
                return iter([self._remote.call(user, _bounded(body))])
            if action.type == "spark":
                return self._spark_answers(user, _bounded(body, _SPARK_BYTES_MAX))
            request = _parsed(body)
            return iter([getattr(self, "_do_" + action.type)(user, request)])

    def _spark_answers(self, user: User, body: bytes) -> Iterator[bytes]:
        with _told():
            yield from self._spark.answers(user, body)

    def _do_subscribe(self, user: User, request: Request) -> bytes:
        self._subscribe(user, request)
        return _answer(subscribed=True)

    def _do_ack(self, user: User, request: Request) -> bytes:
        user.refuse_without("ack", _identity(request))
        self._known(user, request).ack(request.batch_id)
        return _answer(acked=request.batch_id)

    def _do_rollback(self, user: User, request: Request) -> bytes:
        self._known(user, request).rollback()
        return _answer(rolled_back=True)

    def _do_outstanding(self, user: User, request: Request) -> bytes:
        return _answer(batch_ids=self._known(user, request).outstanding)

    def _do_unsubscribe(self, user: User, request: Request) -> bytes:
        user.refuse(Unsubscribe(_identity(request)))
        known = self._known(user, request)
        with self._lock:
            self._subscribers.pop((request.destination, request.client_id), None)
        known.unsubscribe()
        known.close()
        return _answer(unsubscribed=True)

    # --- subscribers ----------------------------------------------------------------------------

    def _subscribe(self, user: User, request: Request) -> TableStream:
        """Become a subscriber, in place of whoever has been it over this port."""
        user.refuse_without("read", _identity(request))
        user.refuse_without("subscribe", _identity(request))
        if request.table.count(".") != 1 or request.table.startswith("."):
            raise ConfigError(f'table {request.table!r}: expected "schema.name"')
        self._close_idle()
        key = request.destination, request.client_id
        with self._lock:  # before there is a subscription: the log would wait for it
            full = len(self._subscribers) >= self._config.subscribers_max
            if full and key not in self._subscribers:
                raise ConfigError(
                    f"{self._config.subscribers_max} subscribers read over Flight already "
                    "(flight.subscribers_max)"
                )
        connector = self._connect(*key)
        try:
            connector.subscribe(re.escape(request.table))
        except BaseException:
            connector.close()
            raise
        stream = TableStream(connector, self._config.batch_rows, self._config.batch_size)
        with self._lock:
            replaced = self._subscribers.pop(key, None)
            self._subscribers[key] = _Subscriber(stream, request.table)
        if replaced is not None:
            stream.schema = replaced.stream.schema if replaced.table == request.table else None
            replaced.stream.close()
        return stream

    def _find(self, user: User, request: Request) -> TableStream | None:
        user.refuse_without("read", _identity(request))
        with self._lock:
            known = self._subscribers.get((request.destination, request.client_id))
        if known is None or (request.table and request.table != known.table):
            return None
        known.used = time.monotonic()
        return known.stream

    def _known(self, user: User, request: Request) -> TableStream:
        found = self._find(user, request)
        if found is None:
            raise NotSubscribed(
                f"clientId:{request.client_id} should subscribe first (GetFlightInfo): this server "
                "does not know it, or has started since"
            ).at(destination=request.destination)
        return found

    def _close_idle(self) -> None:
        """Leave the subscribers that made no call for a long time; their cursors stay."""
        horizon = time.monotonic() - self._config.idle_timeout_s
        with self._lock:
            idle = [at for at, each in self._subscribers.items() if each.used < horizon]
            gone = [self._subscribers.pop(at) for at in idle]
        for each in gone:
            each.stream.close()

    def close(self) -> None:
        """End every stream and give the port back."""
        self.shutdown()
        with self._lock:
            gone = list(self._subscribers.values())
            self._subscribers.clear()
        for each in gone:
            each.stream.close()
        self._spark.close()


def _user(context: Any) -> User:
    user: User = context.get_middleware(MIDDLEWARE).user
    return user


def _identity(request: Request) -> Identity:
    return Identity(request.destination, request.client_id)


def _may_read(user: User, destination: str, client_id: int | None) -> bool:
    owned = user.client_ids
    if client_id is None:
        client_id = owned[0][0] if owned else 0
    try:
        user.refuse_without("read", Identity(destination, client_id))
    except AccessDenied:
        return False
    return True


def _info(stream: TableStream, request: Request) -> Any:
    command = request.model_dump_json().encode()
    endpoint = flight.FlightEndpoint(flight.Ticket(command), [])  # no location: this server
    schema = stream.schema if stream.schema is not None else pa.schema([])
    return flight.FlightInfo(schema, flight.FlightDescriptor.for_command(command), [endpoint])


def _parsed(data: bytes) -> Request:
    """Raises ConfigError: it is no request."""
    try:
        return Request.model_validate_json(_bounded(data))
    except ValidationError as error:
        raise ConfigError(f"the request: {explained(error, Request)}") from None


def _bounded(data: bytes, bytes_max: int = _REQUEST_BYTES_MAX) -> bytes:
    if len(data) > bytes_max:
        raise ConfigError(f"a request of {len(data)} bytes; at most {bytes_max}")
    return data


def _named(key: str, ticket: bytes) -> str:
    """Raises ConfigError: the ticket names nothing."""
    try:
        return str(json.loads(_bounded(ticket))[key])
    except (ValueError, KeyError, RecursionError):
        raise ConfigError(f"the ticket names no {key}") from None


def _answer(**values: Any) -> bytes:
    return json.dumps(values).encode()


@contextmanager
def _told() -> Iterator[None]:
    """Raise errors as Flight's own kinds, with their texts."""
    try:
        yield
    except AccessDenied as error:
        raise flight.FlightUnauthorizedError(str(error)) from error
    except ConfigError as error:
        raise pa.ArrowInvalid(str(error)) from error
    except InstanceError as error:
        raise flight.FlightUnavailableError(str(error)) from error
    except CanalError as error:
        raise flight.FlightServerError(f"{type(error).__name__}: {error}") from error


def _tls(config: FlightConfig) -> dict[str, Any]:
    """Arguments of Flight's server for [flight.tls]. Raises ConfigError."""
    tls = config.tls
    if not tls.cert:
        return {}
    try:
        cert, key = Path(tls.cert).read_bytes(), Path(tls.key or tls.cert).read_bytes()
        found: dict[str, Any] = {"tls_certificates": [(cert, key)]}
        if tls.ca:
            found.update(verify_client=True, root_certificates=Path(tls.ca).read_bytes())
    except OSError as error:
        raise ConfigError(f"flight.tls: {error.filename}: {error.strerror}") from error
    return found
