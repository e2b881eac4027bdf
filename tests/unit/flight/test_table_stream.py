"""A table's stream, over a real port and a real log: what its client did not get comes again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from ray_canal.client.connector import Connector
from ray_canal.client.transport import RayTransport
from ray_canal.config import FlightConfig
from ray_canal.demo import binlog_files
from ray_canal.destination.api import ClientRequest, DestinationApi
from ray_canal.flight.remote_calls import RemoteCalls
from ray_canal.flight.server import FlightServer
from ray_canal.flight.spark_reads import SparkReads
from ray_canal.flight.table_stream import TableStream
from tests.in_process_sink import destination, until

Row = tuple[str, int, int]
NAMES = ("journal_name", "position", "row")
SOURCE = {"files": [str(path) for path in binlog_files()]}


@pytest.fixture(scope="module", autouse=True)
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The bundled files as destination `x`."""
    with destination(tmp_path_factory.mktemp("log"), held=True, source=SOURCE):
        yield


def connected(destination: str, client_id: int | None) -> Connector:
    return Connector(RayTransport(destination), client_id or 0)


def stream(client_id: int) -> TableStream:
    connector = connected("x", client_id)
    connector.subscribe(r"shop\.orders")
    return TableStream(connector, batch_rows=10, batch_size=64)


def rows_of(found: TableStream) -> list[Row]:
    """All that follows: a stream ends where the table's columns change."""
    rows: list[Row] = []
    while pieces := list(found.pieces(30)):
        for piece in pieces:
            rows += zip(*(piece.batch[name].to_pylist() for name in NAMES), strict=True)
    return rows


@pytest.fixture(scope="module")
def expected(log: None) -> list[Row]:
    found = rows_of(stream(1))
    assert len(found) == len(set(found)) > 1000
    return found


def test_a_stream_that_is_left_comes_again_from_the_last_ack(expected: list[Row]) -> None:
    found = stream(2)
    pieces = found.pieces(30)
    first = next(pieces)
    while not first.is_last:
        first = next(pieces)
    found.ack(first.batch_id)
    assert next(pieces).batch_id != first.batch_id
    pieces.close()
    again = rows_of(found)
    assert again == expected[-len(again) :] != expected


def test_who_finds_no_place_leaves_no_subscription(expected: list[Row]) -> None:
    """The log would wait for it."""
    transport = RayTransport("x")
    Connector(transport, 5).subscribe()
    config = FlightConfig(host="127.0.0.1", port=0, subscribers_max=1)
    remote = RemoteCalls(lambda *_: None, lambda _: [], 1)
    spark = SparkReads(connected, lambda *_: None, lambda *_: None, lambda *_: "", 1, 60.0)
    with (
        FlightServer(config, connected, lambda: ["x"], remote, spark) as server,
        flight.connect(f"grpc://127.0.0.1:{server.port}") as client,
    ):
        for client_id in (6, 7, 6):
            command = {"destination": "x", "client_id": client_id, "table": "shop.orders"}
            descriptor = flight.FlightDescriptor.for_command(json.dumps(command))
            if client_id == 6:
                client.get_flight_info(descriptor)
            else:
                with pytest.raises(pa.ArrowInvalid, match="subscribers_max"):
                    client.get_flight_info(descriptor)
    found = [
        transport.call(DestinationApi.filter_of, ClientRequest(client_id=client_id))
        for client_id in (6, 7)
    ]
    assert found == [r"shop\.orders", None]


def test_a_client_that_goes_away_misses_nothing(expected: list[Row]) -> None:
    config = FlightConfig(host="127.0.0.1", port=0, batch_rows=50, batch_size=64)
    remote = RemoteCalls(lambda *_: None, lambda _: [], 1)
    spark = SparkReads(connected, lambda *_: None, lambda *_: None, lambda *_: "", 1, 60.0)
    with FlightServer(config, connected, lambda: ["x"], remote, spark) as server:
        location = f"grpc://127.0.0.1:{server.port}"
        command = {"destination": "x", "client_id": 3, "table": "shop.orders", "wait_s": 30}
        with flight.connect(location) as client:
            descriptor = flight.FlightDescriptor.for_command(json.dumps(command))
            ticket = client.get_flight_info(descriptor).endpoints[0].ticket
            reader = client.do_get(ticket)
            reader.read_chunk()
            del reader
        tables: list[pa.Table] = []

        def read(client: Any) -> bool:
            try:
                tables.append(client.do_get(ticket).read_all())
            except pa.ArrowException as error:  # that the other one has left is on its way
                if "is being read" not in str(error):
                    raise
                return False
            return True

        with flight.connect(location) as client:
            for _ in range(2):
                until(lambda: read(client))
    found: list[Row] = []
    for table in tables:  # its columns change once
        found += zip(*(table[name].to_pylist() for name in NAMES), strict=True)
    assert found == expected
