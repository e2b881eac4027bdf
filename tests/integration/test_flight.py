"""Arrow Flight of a cluster, read by pyarrow, DuckDB and Polars: clients without our code."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest
from pyarrow import flight

import ray_canal as canal
from ray_canal.demo import binlog_files
from ray_canal.errors import (
    AccessDenied,
    AuthenticationFailed,
    BatchNotFirst,
    ConfigError,
    ConnectionLost,
    InstanceNotFound,
    InstanceRestarted,
    NotSubscribed,
    SubscriberReplaced,
)
from tests.certificates import make_certificate

NAME, TABLE = "flight-shop", "shop.orders"
USERS = [
    {"username": "all", "password": "p", "rights": ["admin"]},
    {"username": "looker", "password": "q", "client_ids": "50-59", "rights": ["read"]},
]


class Port:
    """The server's address, and clients who have logged in."""

    def __init__(self, address: str, cert: Path, config: dict[str, Any]) -> None:
        self.location = f"grpc+tls://localhost:{address.rpartition(':')[2]}"
        self.cert = cert
        self.config = config

    def client(self, name: str = "all", password: str = "p") -> Client:
        return Client(self, name, password)


class Client:
    """pyarrow's client with the token of a login."""

    def __init__(self, port: Port, name: str, password: str) -> None:
        self.raw = flight.FlightClient(port.location, tls_root_certs=port.cert.read_bytes())
        token = self.raw.authenticate_basic_token(name, password)
        self.options = flight.FlightCallOptions(headers=[token], timeout=60)

    def read(self, client_id: int, **request: Any) -> flight.FlightStreamReader:
        command = {"destination": NAME, "client_id": client_id, "table": TABLE, **request}
        descriptor = flight.FlightDescriptor.for_command(json.dumps(command))
        info = self.raw.get_flight_info(descriptor, self.options)
        return self.raw.do_get(info.endpoints[0].ticket, self.options)

    def more(self, client_id: int, **request: Any) -> flight.FlightStreamReader:
        command = {"destination": NAME, "client_id": client_id, **request}
        return self.raw.do_get(flight.Ticket(json.dumps(command)), self.options)

    def do(self, action: str, client_id: int = 0, **request: Any) -> dict[str, Any]:
        body = json.dumps({"destination": NAME, "client_id": client_id, **request}).encode()
        (answer,) = self.raw.do_action(flight.Action(action, body), self.options)
        found: dict[str, Any] = json.loads(answer.body.to_pybytes())
        return found


def received(reader: flight.FlightStreamReader) -> tuple[list[pa.RecordBatch], list[int]]:
    """A stream's batches without the ids, and those: what can be acked after it."""
    table = reader.read_all()
    if not table.num_columns:
        return [], []
    ids = sorted(set(table["batch_id"].to_pylist()))
    return table.drop_columns(["batch_id"]).to_batches(), ids


def rows_of(batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.fixture(scope="module")
def port(local_ray: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Port]:
    folder = tmp_path_factory.mktemp("flight")
    cert, key = make_certificate(folder)
    config = {
        "meta": {"path": str(folder / "meta.db")},
        "instance": [
            {
                "destination": NAME,
                "source": {"files": [str(path) for path in binlog_files()]},
                "decoders": 0,
            }
        ],
        "flight": {
            "host": "127.0.0.1",
            "port": 0,
            "user": USERS,
            "batch_rows": 64,
            "tls": {"cert": str(cert), "key": str(key)},
        },
    }
    canal.start(config)
    for client_id in (40, 41, 42):  # the log keeps what one of them has not acked
        with canal.connect(NAME, client_id) as connector:
            connector.subscribe(r"shop\.orders")
    yield Port(canal.serve_flight(config), cert, config)
    canal.stop_flight()
    canal.stop(NAME)


@pytest.fixture(scope="module")
def expected(port: Port) -> list[dict[str, Any]]:
    """The table's rows as a client in the cluster gets them."""
    found: list[pa.RecordBatch] = []
    with canal.connect(NAME, 40) as connector:
        connector.subscribe(r"shop\.orders")
        for message in connector.messages():
            found += message.batches
    return rows_of(found)


def test_the_rows_are_those_of_the_cluster_and_an_ack_is_kept(
    port: Port, expected: list[dict[str, Any]]
) -> None:
    client = port.client()
    found, ids = received(client.read(41, rows_max=1))
    assert 0 < found[0].num_rows <= 64
    assert client.do("outstanding", 41)["batch_ids"] == ids
    # The table gets another column within the message: the stream ends, and the rest follows.
    with pytest.raises(flight.FlightServerError, match="rows that were not read yet"):
        client.do("ack", 41, batch_id=ids[-1])
    client.do("rollback", 41)
    again, ids = received(client.more(41, rows_max=1))
    assert rows_of(again) == rows_of(found)
    rest, more_ids = received(client.more(41, rows_max=1))
    assert more_ids == ids
    assert rest[0].schema != again[0].schema
    found += rest
    client.do("ack", 41, batch_id=ids[-1])
    with pytest.raises(flight.FlightServerError, match="is not outstanding"):
        client.do("ack", 41, batch_id=ids[-1])
    last = 0
    while True:
        batches, ids = received(client.more(41))
        if not ids:
            break
        found, last = found + batches, ids[-1]
    if last:
        client.do("ack", 41, batch_id=last)
    assert rows_of(found) == expected
    names = [info.descriptor.command for info in client.raw.list_flights(b"", client.options)]
    assert any(json.loads(name)["client_id"] == 41 for name in names)
    assert client.do("unsubscribe", 41) == {"unsubscribed": True}
    with pytest.raises(flight.FlightServerError, match="should subscribe first"):
        client.do("ack", 41, batch_id=1)


def test_duckdb_and_polars_read_it_without_our_code(
    port: Port, expected: list[dict[str, Any]]
) -> None:
    client = port.client()
    first = client.read(42).read_all()
    orders = pa.concat_tables([first, client.more(42).read_all()], promote_options="permissive")
    query = "SELECT count(*), max(position), any_value(after) FROM orders"
    ((count, position, after),) = duckdb.sql(query).fetchall()
    assert count == orders.num_rows == len(expected)
    assert position == max(row["position"] for row in expected)
    assert "order_id" in after or "id" in after
    frame = polars.from_arrow(client.read(42).read_all())  # nothing was acked: all comes again
    assert isinstance(frame, polars.DataFrame)
    assert frame.height == first.num_rows
    assert frame["row"].to_list() == [row["row"] for row in expected[: first.num_rows]]


def test_who_may_not_come_in_or_do_that_is_refused(port: Port) -> None:
    with pytest.raises(flight.FlightUnauthenticatedError, match="log in with"):
        port.client("all", "wrong")
    naked = flight.FlightClient(port.location, tls_root_certs=port.cert.read_bytes())
    with pytest.raises(flight.FlightUnauthenticatedError):
        list(naked.list_flights())
    bearer = (b"authorization", b"Bearer made-up")
    with pytest.raises(flight.FlightUnauthenticatedError, match="has expired"):
        list(naked.list_flights(b"", flight.FlightCallOptions(headers=[bearer])))
    looker = port.client("looker", "q")
    with pytest.raises(flight.FlightUnauthorizedError, match="may not be client 41"):
        looker.read(41)
    with pytest.raises(flight.FlightUnauthorizedError, match="make a client id"):
        looker.read(50)
    assert looker.do("destinations")["destinations"] == [NAME]


def test_requests_that_are_none_are_told(port: Port) -> None:
    client = port.client()
    for wrong, text in (
        ({"table": "orders"}, 'expected "schema.name"'),
        ({"tables": TABLE}, "tables"),
        ({"destination": "nobody"}, "nobody"),
    ):
        with pytest.raises((pa.ArrowInvalid, flight.FlightError), match=text):
            client.read(43, **wrong)
    with pytest.raises(pa.ArrowInvalid, match="there are subscribe, ack"):
        client.do("format_disk")
    with pytest.raises(pa.ArrowInvalid, match="request of"):
        client.do("ack", 43, table="x" * 70_000)


def test_a_port_that_is_open_is_left_or_opened_again_when_it_changed(port: Port) -> None:
    before = port.location.rpartition(":")[2]
    assert canal.serve_flight(port.config).endswith(f":{before}")
    with pytest.raises(ConfigError, match=r"\[flight\]"):
        canal.serve_flight({**port.config, "flight": None})


def connected(port: Port, client_id: int | None, name: str = "all", password: str = "p") -> Any:
    return canal.connect(
        NAME,
        client_id,
        address=port.location,
        username=name,
        password=password,
        tls={"ca": str(port.cert)},
    )


def everything(connector: canal.Connector) -> dict[str, Any]:
    """All that messages tell, in each of their views."""
    found: dict[str, Any] = {"rows": [], "entries": [], "transactions": [], "changes": []}
    with connector:
        connector.subscribe(r"shop\..*")
        for message in connector.messages(200):
            found["rows"] += [(b.schema, b.to_pylist()) for b in message.batches]
            found["entries"] += [entry.SerializeToString() for entry in message.entries]
            found["transactions"] += message.transactions.to_pylist()
            found["changes"] += message.schema_changes
    return found


def test_our_connector_has_over_flight_what_it_has_over_ray(port: Port) -> None:
    over_ray = everything(canal.connect(NAME, 61))
    over_flight = everything(connected(port, 62))
    assert len(over_ray["entries"]) > 1000
    assert over_ray["changes"]
    for view, seen in over_ray.items():
        assert over_flight[view] == seen, view
    assert everything(connected(port, 62))["rows"] == []  # acked, durably


def test_get_ack_and_rollback_over_flight(port: Port, expected: list[dict[str, Any]]) -> None:
    with connected(port, 63) as connector:
        with pytest.raises(NotSubscribed):
            connector.get_without_ack()
        connector.subscribe(r"shop\.orders")
        first, second = (connector.get_without_ack(16, timeout=5.0) for _ in range(2))
        assert connector.list_batch_ids() == [first.id, second.id]
        with pytest.raises(BatchNotFirst):
            connector.ack(second.id)
        rows = rows_of(first.batches)
        connector.rollback()
        with pytest.raises(InstanceRestarted):
            assert second.batches
        again = connector.get_without_ack(16, timeout=5.0)
        assert rows_of(again.batches) == rows == expected[: len(rows)]
        connector.ack(again.id)
        acked = connector.get(16, timeout=5.0)
        assert rows_of(acked.batches)[0] == expected[len(rows)]
        assert connector.list_batch_ids() == []
    with connected(port, 63) as connector:
        connector.subscribe(r"shop\.orders", where="after.id > 0", columns=["id"])
        message = connector.get_without_ack(16, timeout=5.0)
        row = rows_of(message.batches)[0]
        assert row["position"] > acked.start.position
        assert set(row["after"]) == {"id"}
        taken_over = connected(port, 63)
        with taken_over:
            taken_over.subscribe(r"shop\.orders")
            with pytest.raises(SubscriberReplaced):
                connector.ack(message.id)
            taken_over.unsubscribe()


def test_a_connector_over_flight_is_awaited_and_may_be_ephemeral(port: Port) -> None:
    async def read() -> int:
        login = {"username": "all", "password": "p", "tls": {"ca": str(port.cert)}}
        address = port.location
        async with canal.connect_async(NAME, client_id=None, address=address, **login) as connector:
            await connector.subscribe(r"shop\.orders", start="head")
            message = await connector.get(timeout=5.0)
            return sum(batch.num_rows for batch in message.batches)

    assert asyncio.run(read()) > 0


def test_rights_hold_for_our_connector(port: Port) -> None:
    with pytest.raises(AuthenticationFailed, match="log in with"):
        connected(port, 64, "all", "wrong")
    with connected(port, 64, "looker", "q") as connector, pytest.raises(AccessDenied):
        connector.subscribe(r"shop\.orders")
    with pytest.raises(InstanceNotFound, match="nothing-here"):
        canal.connect(
            "nothing-here", address=port.location, username="all", password="p",
            tls={"ca": str(port.cert)},
        )  # fmt: skip
    with pytest.raises(ConnectionLost, match=r"127\.0\.0\.1:1"):
        canal.connect(NAME, address="grpc://127.0.0.1:1")
    with pytest.raises(ConfigError, match=r"grpc\+tls"):
        canal.connect(NAME, address="grpc://127.0.0.1:1", tls={"ca": "x"})
