"""The door by which `format("ray_canal")` asks the driver's Python for changes.

Spark's source (java/ChangesStream.java) is in the driver's JVM, the connector in the driver's
Python. A request is a connection over loopback with three lines: the session's token and a word,
a stream's name or options, an argument. The answer is one line; "!" begins an error.
"""

from __future__ import annotations

import hmac
import json
import logging
import secrets
import socketserver
import threading
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import types as spark_types
from pyspark.sql.pandas.types import to_arrow_schema

import ray_canal
from ray_canal.errors import CanalError, ConfigError
from ray_canal.spark.batch_read import BatchReads, log_batches, log_schema
from ray_canal.spark.log_stream import LogStream, Sizes, Table, peeked_schema, table_filter
from ray_canal.spark.read_options import ReadOptions
from ray_canal.spark.schema import readable_schema, schema_json
from ray_canal.spark.stream_options import StreamOptions
from ray_canal.spark.ways import chosen_way, cores_of

_log = logging.getLogger(__name__)
_PREFIX = "spark.datasource.ray_canal"
_ENDING_S = 5.0
_doors: dict[str, Door] = {}


def open_door(spark: SparkSession) -> None:
    """Let this session's `readStream.format("ray_canal")` read; `session()` has done it."""
    key = spark.sparkContext.applicationId
    if key not in _doors:
        _doors[key] = Door(spark)
    door = _doors[key]
    spark.conf.set(f"{_PREFIX}.door", door.address)
    spark.conf.set(f"{_PREFIX}.token", door.token)


def close_doors() -> None:
    """Close what `open_door` has opened; streams that are open end."""
    while _doors:
        _doors.popitem()[1].close()


class Door:
    """Serves one session's streams on a loopback port."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._streams: dict[str, _Open] = {}
        self._reads = BatchReads(
            lambda: chosen_way(spark),
            lambda: cores_of(spark),
            lambda: spark.sparkContext.master.startswith("ray"),
        )
        self._lock = threading.Lock()
        self.token = secrets.token_hex(16)
        self._server = _Server(self)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(
            target=self._server.serve_forever, name="ray_canal door", daemon=True
        ).start()

    def close(self) -> None:
        """Close the port and all streams."""
        self._server.shutdown()
        self._server.server_close()
        for name in list(self._streams):
            self._close_stream(name)
        self._reads.close()

    def answer(self, what: str, first: str, second: str) -> str:
        """The answer to a request. Raises CanalError kinds."""
        if what == "SCHEMA":
            return self._schema(json.loads(first))
        if what == "READ":
            return self._read(ReadOptions.of(json.loads(first)), second)
        if what == "RELEASE":
            self._reads.release(first)
            return "released"
        if what == "OPEN":
            return self._open(StreamOptions.of(json.loads(first)), second)
        if what == "CLOSE":
            self._close_stream(first)
            return "closed"
        opened = self._streams.get(first)
        if opened is None:
            raise ConfigError("this stream is closed: another query reads with its client_id")
        return opened.answer(what, second)

    def _schema(self, given: dict[str, str]) -> str:
        """Of a stream, whose options have a client id, or of a batch read."""
        if "client_id" not in given and "clientid" not in given:
            read = ReadOptions.of(given)
            if read.paths:
                return schema_json(self._reads.schema(read))
            return schema_json(log_schema(_log_of(read), read))
        options = StreamOptions.of(given)
        self._await_free(options)
        connector = _connected(options)
        try:
            return schema_json(
                peeked_schema(
                    connector,
                    options.table,
                    options.batch_size,
                    options.schema_timeout_s,
                    options.statements,
                )
            )
        finally:
            connector.close()

    def _read(self, options: ReadOptions, schema: str) -> str:
        """The read's name, and the places of its partitions."""
        if options.paths:
            name, places = self._reads.open(options, _readable(schema))
        else:
            name, places = self._reads.open_log(options, _readable(schema), _log_of(options))
        return ";".join([name, *places])

    def _await_free(self, options: StreamOptions) -> None:
        """Raises ConfigError: another query of this session has the cursor. One that ends may take
        a moment to say so."""
        deadline = time.monotonic() + _ENDING_S
        while any(opened.options.reader == options.reader for opened in self._opened()):
            if time.monotonic() > deadline:
                raise ConfigError(
                    f"client {options.client_id} of {options.destination} is read by another query "
                    "of this session: stop it, or give each query a client_id of its own"
                )
            time.sleep(0.05)

    def _opened(self) -> list[_Open]:
        with self._lock:
            return list(self._streams.values())

    def _open(self, options: StreamOptions, schema: str) -> str:
        self._await_free(options)
        table = Table(options.table, _readable(schema), options.statements)
        sizes = Sizes(
            chosen_way(self._spark),
            cores_of(self._spark),
            options.batch_size,
            options.bytes_max,
        )
        name = secrets.token_hex(8)
        connector = _connected(options)
        stream = LogStream(connector, table, sizes, _caught_up(options.destination))
        with self._lock:
            self._streams[name] = _Open(options, connector, stream)
        return name

    def _close_stream(self, name: str) -> None:
        with self._lock:
            opened = self._streams.pop(name, None)
        if opened is not None:
            opened.close()


class _Open:
    """A stream with its connector."""

    def __init__(self, options: StreamOptions, connector: Any, stream: LogStream) -> None:
        self.options = options
        self._connector = connector
        self._stream = stream

    def answer(self, what: str, argument: str) -> str:
        stream = self._stream
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
            raise ConfigError(f"the door does not know {what}")
        return "done"

    def close(self) -> None:
        self._stream.close()
        self._connector.close()


def _log_of(options: ReadOptions) -> list[pa.RecordBatch]:
    """What the log holds, read from aside: no cursor moves."""
    with ray_canal.connect(options.destination, client_id=None) as connector:
        connector.subscribe(table_filter(options.table), start="head")
        return log_batches(connector, options, _caught_up(options.destination))


def _readable(schema: str) -> pa.Schema:
    columns = spark_types.StructType.fromJson(json.loads(schema))
    return readable_schema(to_arrow_schema(columns))


def _connected(options: StreamOptions) -> Any:
    connector = ray_canal.connect(options.destination, client_id=options.client_id)
    try:
        connector.subscribe(table_filter(options.table), start=options.start)
    except BaseException:
        connector.close()
        raise
    return connector


def _caught_up(destination: str) -> Callable[[], bool]:
    """Whether a destination has fetched all that its source has."""

    def ask() -> bool:
        state = ray_canal.status(destination)[destination]
        return bool(state.get("connected")) and state.get("lag_bytes") == 0

    return ask


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self, door: Door) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.door = door


class _Request(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        server = self.server
        assert isinstance(server, _Server)
        lines = [self.rfile.readline().decode().rstrip("\n") for _ in range(3)]
        token, _, what = lines[0].partition(" ")
        if not hmac.compare_digest(token.encode(), server.door.token.encode()):
            return
        try:
            answer = server.door.answer(what, lines[1], lines[2])
        except CanalError as error:
            answer = f"!{error}"
        except Exception as error:
            _log.exception("the door could not answer %s", what)
            answer = f"!{type(error).__name__}: {error}"
        self.wfile.write((answer.replace("\n", " ") + "\n").encode())
