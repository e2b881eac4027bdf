"""Calls of Spark's `format("ray_canal")` to a Flight server: rows for clusters without Ray.

The same requests as in a session on Ray (spark/requests.py): three lines of text, one as an
answer. Rows are written as Arrow streams here, and executors fetch them by name. pyspark, a part of
`ray-canal[spark]`, has to be installed where this runs; Spark itself does not run here.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ray_canal.canal.session import Identity
from ray_canal.client.connector import Connector
from ray_canal.client.log_end import Reach
from ray_canal.config import Right
from ray_canal.errors import ConfigError
from ray_canal.model.table_meta import TableMeta
from ray_canal.server.access import User

if TYPE_CHECKING:
    from ray_canal.spark.requests import Requests
    from ray_canal.spark.served_chunks import ServedChunks

STILL_WORKING = b"~"
_SILENT_S = 120.0
"""A request that takes longer, such as the columns of a long log, says so this often."""
_PARTITIONS = 8
"""So many chunks are made of a micro-batch for a Spark that does not say how many cores it has."""
_LEFT_S = 600.0
"""A batch read of which nothing was fetched for so long gives way to others: its application may
have been killed."""
_OF_STREAMS: tuple[Right, ...] = ("read", "subscribe", "ack")
_OF_READS: tuple[Right, ...] = ("read", "subscribe")


class SparkReads:
    """Reads of all clients. pyspark is imported with the first."""

    def __init__(
        self,
        connect: Callable[[str, int | None], Connector],
        reach: Callable[[str, int], Reach | None],
        table_meta: Callable[[str, str], TableMeta | None],
        mark: Callable[[str, int], str],
        streams_max: int,
        idle_timeout_s: float,
        read_bytes_max: int = 2 << 30,
    ) -> None:
        """`connect`: by destination and client id; `reach`: of a destination to a client;
        `table_meta`: the columns of a destination's table, if it knows them; `mark`: of a
        destination's client (spark/requests.py); `streams_max`: so many streams and reads are open
        at once; `read_bytes_max`: so much is held for reads."""
        self._connect = connect
        self._reach = reach
        self._table_meta = table_meta
        self._mark = mark
        self._streams_max = streams_max
        self._idle_timeout_s = idle_timeout_s
        self._read_bytes_max = read_bytes_max
        self._lock = threading.Lock()
        self._made: tuple[Requests, ServedChunks] | None = None

    def answers(self, user: User, body: bytes) -> Iterator[bytes]:
        """Yield the answer to a request, and before it `STILL_WORKING` whenever a while has passed:
        who asks takes a call that is silent for three minutes for lost. Raises what `answer`
        raises."""
        found: Future[bytes] = Future()

        def work() -> None:
            try:
                found.set_result(self.answer(user, body))
            except BaseException as error:
                found.set_exception(error)

        threading.Thread(target=work, name="spark request", daemon=True).start()
        while not wait([found], _SILENT_S).done:
            yield STILL_WORKING
        yield found.result()

    def answer(self, user: User, body: bytes) -> bytes:
        """The answer to a request, one line; "!" begins an error. Raises AccessDenied; ConfigError:
        it is no request, or pyspark is not installed."""
        lines = body.decode(errors="replace").split("\n")
        if len(lines) != 3:
            raise ConfigError("a request of Spark's has three lines")
        what, first, second = lines
        from ray_canal.spark.request_server import answer_line

        requests, chunks = self._opened()
        if what in ("SCHEMA", "OPEN", "READ"):
            _refuse(user, first)
            requests.close_idle(self._idle_timeout_s)
        if what == "READ" and chunks.is_half_full:
            requests.close_idle_reads(min(_LEFT_S, self._idle_timeout_s))
        if what in ("OPEN", "READ") and len(requests) >= self._streams_max:
            raise ConfigError(
                f"{self._streams_max} streams and reads are open already (flight.subscribers_max)"
            )
        return answer_line(requests, what, first, second).encode()

    def rows(self, name: str) -> pa.Buffer:
        """A partition's Arrow streams. Raises InstanceRestarted: they are not held any more."""
        _, chunks = self._opened()
        return chunks.get(name)

    def close(self) -> None:
        """End all streams and free all rows."""
        with self._lock:
            made, self._made = self._made, None
        if made is not None:
            made[0].close()

    def _opened(self) -> tuple[Requests, ServedChunks]:
        with self._lock:
            if self._made is None:
                self._made = self._new()
            return self._made

    def _new(self) -> tuple[Requests, ServedChunks]:
        try:
            from ray_canal.spark.requests import Ground, Requests
            from ray_canal.spark.served_chunks import ServedChunks
        except ImportError as error:
            raise ConfigError(
                f"this Flight server cannot answer Spark: {error}; install it where the server's "
                "Ray node runs"
            ) from error
        chunks = ServedChunks(self._read_bytes_max)
        ground = Ground(
            chunks.carrier,
            lambda: _PARTITIONS,
            self._connect,
            self._reach,
            self._table_meta,
            self._mark,
            takes_over=True,
            reads_files=False,
        )
        return Requests(ground), chunks


def _refuse(user: User, options: str) -> None:
    """Raises AccessDenied: the user may not read so; ConfigError: these are no options."""
    try:
        given: Any = json.loads(options)
        destination = str(given["destination"])
        numbers = {int(given[name]) for name in ("client_id", "clientid") if name in given}
    except (ValueError, KeyError, TypeError):
        raise ConfigError(
            'give .option("destination", "NAME"), and for a stream .option("client_id", NUMBER)'
        ) from None
    if len(numbers) > 1:
        raise ConfigError("client_id and clientid are one option, and have two values")
    if numbers:
        identity, rights = Identity(destination, numbers.pop()), _OF_STREAMS
    else:  # a read makes a client id for as long as it takes
        owned = user.client_ids
        identity, rights = Identity(destination, owned[0][0] if owned else 0), _OF_READS
    for right in rights:
        user.refuse_without(right, identity)
