"""Requests of `format("ray_canal")`: the columns of a table, batch reads, streams.

A request is a word and two texts, the answer a line. They come from the driver's own process
(spark/request_server.py), or over Arrow Flight from a Spark that has nothing else of ours
(flight/spark_reads.py).
"""

from __future__ import annotations

import contextlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import types as spark_types
from pyspark.sql.pandas.types import to_arrow_schema

from ray_canal.client.log_end import LogEnd, Reach
from ray_canal.errors import ConfigError
from ray_canal.model.table_meta import TableMeta
from ray_canal.spark.batch_read import BatchReads, log_batches, log_schema
from ray_canal.spark.chunks import Carrier, ChunkOwner
from ray_canal.spark.log_stream import LogStream, Sizes, Table
from ray_canal.spark.read_options import ReadOptions
from ray_canal.spark.schema import readable_schema, schema_json
from ray_canal.spark.stream_options import StreamOptions
from ray_canal.spark.stream_schema import (
    has_columns,
    peeked_schema,
    table_filter,
    with_note_columns,
    with_presence_columns,
)
from ray_canal.views.arrow import arrow_schema

UNKNOWN = "?"
"""The answer about a stream that is not known here: it is to be opened again."""
_ENDING_S = 5.0
_NEWS_S = 2.0
"""A table without a change for so long has the columns that the destination knows of it."""


@dataclass(frozen=True, slots=True)
class Ground:
    """Where requests are answered. `new_carrier`: of chunks that the asking Spark can read;
    `connect`: a connector by destination and client id (None: ephemeral); `reach`: of a
    destination to a client; `table_meta`: the columns of a destination's table, if it knows them;
    `mark`: the offset up to which a subscriber has acked;
    `takes_over`: a new query has the cursor, and whoever had it is told so, else it is refused;
    `reads_files`: binlog files may be named; `on_ray`: they are decoded by Ray tasks."""

    new_carrier: Callable[[ChunkOwner], Carrier]
    cores: Callable[[], int]
    connect: Callable[[str, int | None], Any]
    reach: Callable[[str, int], Reach | None]
    table_meta: Callable[[str, str], TableMeta | None]
    mark: Callable[[str, int], str] = lambda destination, client_id: ""
    takes_over: bool = False
    reads_files: bool = True
    on_ray: Callable[[], bool] = lambda: False


class Requests:
    """Answers to the queries of one session, or of a Flight server's clients."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._streams: dict[str, _Open] = {}
        self._replaced: set[str] = set()
        self._reads = BatchReads(ground.new_carrier, ground.cores, ground.on_ray)
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close all streams and free all reads."""
        for name in list(self._streams):
            self._close_stream(name)
        self._reads.close()

    def close_idle(self, seconds: float) -> None:
        """Close what nobody has asked about for so long. Cursors stay."""
        horizon = time.monotonic() - seconds
        for name, opened in list(self._streams.items()):
            if opened.owner.used_s < horizon:
                self._close_stream(name)
        self.close_idle_reads(seconds)

    def close_idle_reads(self, seconds: float) -> None:
        """Free the batch reads of which nothing was fetched for so long."""
        self._reads.close_idle(time.monotonic() - seconds)

    def __len__(self) -> int:
        """Return how many streams and batch reads are open."""
        return len(self._streams) + len(self._reads)

    def answer(self, what: str, first: str, second: str) -> str:
        """The answer to a request. Raises CanalError kinds."""
        if what == "SCHEMA":
            return self._schema(json.loads(first))
        if what == "READ":
            return self._read(self._read_options(json.loads(first)), second)
        if what == "RELEASE":
            self._reads.release(first)
            return "released"
        if what == "OPEN":
            return self._open(StreamOptions.of(json.loads(first)), second)
        if what == "CLOSE":
            self._close_stream(first)
            return "closed"
        opened = self._streams.get(first)
        if opened is not None:
            return opened.answer(what, second)
        if self._ground.takes_over and first not in self._replaced:
            return UNKNOWN
        raise ConfigError("this stream is closed: another query reads with its client_id")

    def forget(self, what: str, answer: str) -> None:
        """Close what an answer that reached nobody has opened."""
        if what == "OPEN":
            self._close_stream(answer)
        elif what == "READ":
            self._reads.release(answer.partition(";")[0])

    def _read_options(self, given: dict[str, str]) -> ReadOptions:
        read = ReadOptions.of(given)
        if read.paths and not self._ground.reads_files:
            raise ConfigError(
                "over an address a destination is read, no files: give .option(\"destination\", …)"
            )
        return read

    def _schema(self, given: dict[str, str]) -> str:
        """Return the columns of a stream, whose options have a client id, or of a batch read."""
        if "client_id" not in given and "clientid" not in given:
            read = self._read_options(given)
            if read.paths:
                return schema_json(self._reads.schema(read))
            with contextlib.closing(self._log_of(read)) as batches:
                return schema_json(log_schema(batches, read))
        options = StreamOptions.of(given)
        self._await_free(options)
        connector = self._connected(options)
        try:
            found = self._stream_schema(connector, options)
            is_partial = options.images == "partial"
            return schema_json(with_presence_columns(found) if is_partial else found)
        finally:
            connector.close()

    def _stream_schema(self, connector: Any, options: StreamOptions) -> pa.Schema:
        """Return the columns of the table's first changes that the subscriber gets; of a table that
        does not change now, those of its newest version. Raises ConfigError: nothing is known of
        it."""

        def peeked(wait_s: float) -> pa.Schema | None:
            return peeked_schema(
                connector, options.table, options.batch_size, wait_s, options.statements
            )

        wait_s = options.schema_timeout_s
        found = peeked(min(wait_s, _NEWS_S))
        if found is None or not has_columns(found):
            meta = self._ground.table_meta(options.destination, options.table)
            if meta is not None:
                return with_note_columns(readable_schema(arrow_schema(meta)))
            found = found or peeked(wait_s - _NEWS_S)
        if found is None:
            raise ConfigError(
                f"{options.table} has no change within {wait_s:g} s, and "
                f"{options.destination} does not know its columns: name a table that changes, wait "
                "longer (option schemaTimeout, in seconds), or give .schema(...), the schema of an "
                "earlier load()"
            )
        return found

    def _read(self, options: ReadOptions, schema: str) -> str:
        """The read's name, and the places of its partitions."""
        if options.paths:
            name, places = self._reads.open(options, _readable(schema))
        else:
            with contextlib.closing(self._log_of(options)) as batches:
                name, places = self._reads.open_log(options, _readable(schema), batches)
        return ";".join([name, *places])

    def _log_of(self, options: ReadOptions) -> Generator[list[pa.RecordBatch], None, None]:
        """Yield the batches that the log holds to an ephemeral subscriber: no cursor moves. A log
        that is full waits until this has ended; a stream of its own would have other rows."""
        name, reach = options.destination, self._ground.reach
        with self._ground.connect(name, None) as connector:
            connector.subscribe(table_filter(options.table), start="head", policy="block")
            end = LogEnd(lambda: reach(name, connector.client_id))
            yield from log_batches(connector, options, end)

    def _await_free(self, options: StreamOptions) -> None:
        """Have the cursor free of other queries. Raises ConfigError: another one of this session
        has it. One that ends may take a moment to say so."""
        deadline = time.monotonic() + _ENDING_S
        while names := [n for n, each in self._opened() if each.options.reader == options.reader]:
            if self._ground.takes_over:
                for name in names:
                    self._replaced.add(name)
                    self._close_stream(name)
            elif time.monotonic() > deadline:
                raise ConfigError(
                    f"client {options.client_id} of {options.destination} is read by another query "
                    "of this session: stop it, or give each query a client_id of its own"
                )
            else:
                time.sleep(0.05)

    def _opened(self) -> list[tuple[str, _Open]]:
        with self._lock:
            return list(self._streams.items())

    def _open(self, options: StreamOptions, schema: str) -> str:
        self._await_free(options)
        ground = self._ground
        table = Table(options.table, _readable(schema), options.statements, _key_of(schema))
        owner = ChunkOwner()
        sizes = Sizes(
            lambda: ground.new_carrier(owner),
            options.partitions or ground.cores(),
            options.batch_size,
            options.bytes_max,
        )
        name = secrets.token_hex(16)
        connector = self._connected(options)
        stream = LogStream(
            connector,
            table,
            sizes,
            lambda: ground.reach(options.destination, options.client_id),
            lambda: ground.mark(options.destination, options.client_id),
        )
        with self._lock:
            self._streams[name] = _Open(options, connector, stream, owner)
        return name

    def _connected(self, options: StreamOptions) -> Any:
        connector = self._ground.connect(options.destination, options.client_id)
        try:
            connector.subscribe(table_filter(options.table), start=options.start)
        except BaseException:
            connector.close()
            raise
        return connector

    def _close_stream(self, name: str) -> None:
        with self._lock:
            opened = self._streams.pop(name, None)
        if opened is not None:
            opened.close()


@dataclass
class _Open:
    """A stream with its connector."""

    options: StreamOptions
    connector: Any
    stream: LogStream
    owner: ChunkOwner

    def answer(self, what: str, argument: str) -> str:
        stream = self.stream
        self.owner.use()
        if what == "INITIAL":
            return stream.initial()
        if what == "LATEST":
            return stream.latest(argument)
        if what == "PLAN":
            start, end = json.loads(argument)
            return ";".join(stream.plan(json.dumps(start), json.dumps(end)))
        if what == "AVAILABLE":
            stream.only_available()
        elif what == "COMMIT":
            stream.commit(argument)
        else:
            raise ConfigError(f"the server does not know {what}")
        return "done"

    def close(self) -> None:
        self.stream.close()
        self.connector.close()


def _readable(schema: str) -> pa.Schema:
    columns = spark_types.StructType.fromJson(json.loads(schema))
    return readable_schema(to_arrow_schema(columns))


def _key_of(schema: str) -> tuple[str, ...] | None:
    """Return the key that the columns carry; None: they carry none, as a schema given by hand."""
    for field in json.loads(schema)["fields"]:
        key = (field.get("metadata") or {}).get("canal.key")
        if key is not None:
            return tuple(json.loads(key))
    return None
