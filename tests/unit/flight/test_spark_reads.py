"""What Spark's source asks a Flight server for, over a real port; the client is pyarrow's."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import flight

from ray_canal.config import FlightConfig
from ray_canal.errors import InstanceRestarted
from ray_canal.flight import spark_reads
from ray_canal.flight.remote_calls import RemoteCalls
from ray_canal.flight.server import FlightServer
from ray_canal.flight.spark_reads import SparkReads
from ray_canal.spark.chunks import ChunkOwner
from ray_canal.spark.requests import UNKNOWN
from ray_canal.spark.served_chunks import ServedChunks
from tests.spark.conftest import inserts
from tests.spark.test_request_server import Subscriber

OPTIONS = {"destination": "shop", "table": "shop.item", "client_id": "7", "partitions": "2"}
SCHEMA = '{"type":"struct","fields":[]}'


class Log(Subscriber):
    client_id = 7

    def subscribe(self, tables: str, start: str | None = None, policy: str = "") -> None:
        self.rollback()

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Port:
    def __init__(self, **settings: Any) -> None:
        batches = [inserts(0, 30), inserts(30, 10, position=2000)]
        self.log = Log(batches)

        def connect(_destination: str, client_id: int | None) -> Log:
            return Log(batches) if client_id is None else self.log

        nothing = lambda *_: None  # noqa: E731
        self.reads = SparkReads(
            connect, nothing, nothing, lambda *_: "", 2, 60.0, 1 << 20  # type: ignore[arg-type]
        )
        remote = RemoteCalls(lambda *_: None, lambda _: [], 1)
        config = FlightConfig(host="127.0.0.1", port=0, **settings)
        self.server = FlightServer(config, lambda *_: self.log, list, remote, self.reads)  # type: ignore[arg-type, return-value]
        self.client = flight.FlightClient(f"grpc://127.0.0.1:{self.server.port}")

    def ask(self, what: str, first: str = "", second: str = "", **headers: str) -> str:
        options = flight.FlightCallOptions(
            timeout=30, headers=[(k.encode(), v.encode()) for k, v in headers.items()]
        )
        action = flight.Action("spark", f"{what}\n{first}\n{second}".encode())
        (answer,) = self.client.do_action(action, options)
        return str(answer.body.to_pybytes().decode())

    def rows(self, place: str) -> list[dict[str, Any]]:
        kind, name, size = place.split(":")
        assert kind == "flight"
        reader = self.client.do_get(flight.Ticket(json.dumps({"rows": name}).replace(" ", "")))
        data = reader.read_all().column("bytes").combine_chunks()
        assert len(data) == int(size)
        stream = pa.BufferReader(np.asarray(data).tobytes())
        found: list[dict[str, Any]] = []
        while stream.tell() < len(data):
            found += pa.ipc.open_stream(stream).read_all().to_pylist()
        return found

    def opened(self) -> str:
        return self.ask("OPEN", json.dumps(OPTIONS), self.ask("SCHEMA", json.dumps(OPTIONS)))


@pytest.fixture
def port() -> Iterator[Port]:
    made = Port()
    with made.server:
        yield made


def drained(port: Port, name: str, start: str) -> list[int]:
    ids: list[int] = []
    while (end := port.ask("LATEST", name, start)) != start:
        for place in port.ask("PLAN", name, f"[{start},{end}]").split(";"):
            ids += [row["after"]["id"] for row in port.rows(place)]
        assert port.ask("COMMIT", name, end) == "done"
        start = end
    return ids


def test_a_stream_from_its_schema_to_its_end(port: Port) -> None:
    name = port.opened()
    assert drained(port, name, port.ask("INITIAL", name)) == list(range(40))
    assert port.log.acked == 40
    assert port.ask("CLOSE", name) == "closed"
    assert port.ask("LATEST", name, "{}") == UNKNOWN


def test_what_the_log_holds(port: Port) -> None:
    options = json.dumps({"destination": "shop", "table": "shop.item"})
    schema = port.ask("SCHEMA", options)
    name, *places = port.ask("READ", options, schema).split(";")
    assert sorted(r["after"]["id"] for p in places for r in port.rows(p)) == list(range(40))
    assert port.log.acked == 0
    assert port.ask("RELEASE", name) == "released"
    with pytest.raises(flight.FlightUnavailableError, match="not held any more"):
        port.rows(places[0])


def test_a_newer_query_takes_the_cursor_over(port: Port) -> None:
    first, second = port.opened(), port.opened()
    assert "another query reads" in port.ask("LATEST", first, "{}")
    assert port.ask("INITIAL", second).startswith('{"timeline":-1')


def test_a_long_request_is_not_silent(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_reads, "_SILENT_S", 0.01)
    answers, go_on = [], threading.Event()
    answer = port.reads.answer

    def late(user: Any, body: bytes) -> bytes:
        assert go_on.wait(60)
        return answer(user, body)

    monkeypatch.setattr(port.reads, "answer", late)
    action = flight.Action("spark", f"OPEN\n{json.dumps(OPTIONS)}\n{SCHEMA}".encode())
    for result in port.client.do_action(action):
        answers.append(result.body.to_pybytes())
        if len(answers) == 2:
            go_on.set()
    assert answers[:2] == [b"~", b"~"]
    assert len(answers[-1]) == 32


def test_what_is_no_request_is_told(port: Port) -> None:
    with pytest.raises(pa.ArrowInvalid, match="three lines"):
        next(iter(port.client.do_action(flight.Action("spark", b"OPEN"))))
    with pytest.raises(pa.ArrowInvalid, match=r"give .option\(.destination"):
        port.ask("SCHEMA", json.dumps({"path": "/etc"}))
    files = {"destination": "d", "path": "/etc", "table": "a.b"}
    assert port.ask("SCHEMA", json.dumps(files)).startswith("!")
    with pytest.raises(pa.ArrowInvalid, match="names no rows"):
        port.client.do_get(flight.Ticket(b'{"rows":')).read_all()


def test_who_may_not_read_is_refused() -> None:
    user = {"username": "u", "password": "p", "client_ids": "1-5", "rights": ["read"]}
    port = Port(user=[user])
    with port.server:
        token, value = port.client.authenticate_basic_token("u", "p")
        with pytest.raises(flight.FlightUnauthorizedError, match="may not"):
            port.ask("SCHEMA", json.dumps(OPTIONS), **{token.decode(): value.decode()})
        with pytest.raises(flight.FlightUnauthenticatedError):
            port.ask("SCHEMA", json.dumps(OPTIONS))


@pytest.mark.parametrize(
    "options",
    [
        {**OPTIONS, "client_id": "1", "clientid": "7"},
        {**OPTIONS, "client_id": None, "clientid": "7"},
        {"clientid": "7", **OPTIONS, "client_id": "1"},
    ],
)
def test_an_option_given_twice_lets_nobody_be_another_client(options: dict[str, Any]) -> None:
    rights = ["read", "subscribe", "ack"]
    user = {"username": "u", "password": "p", "client_ids": "1-5", "rights": rights}
    port = Port(user=[user])
    with port.server:
        token, value = port.client.authenticate_basic_token("u", "p")
        with pytest.raises((flight.FlightUnauthorizedError, pa.ArrowInvalid)):
            port.ask("OPEN", json.dumps(options), SCHEMA, **{token.decode(): value.decode()})


def test_a_read_of_the_log_needs_the_right_to_subscribe() -> None:
    """Else a user could see tables that none of the user's client ids shows."""
    port = Port(user=[{"username": "u", "password": "p", "rights": ["read"]}])
    options = json.dumps({"destination": "shop", "table": "shop.item"})
    with port.server:
        token, value = port.client.authenticate_basic_token("u", "p")
        for what in ("SCHEMA", "READ"):
            with pytest.raises(flight.FlightUnauthorizedError, match="make a client id"):
                port.ask(what, options, SCHEMA, **{token.decode(): value.decode()})


def test_streams_are_limited_and_end_when_idle(port: Port) -> None:
    port.opened()
    read = {"destination": "shop", "table": "shop.item"}
    port.ask("READ", json.dumps(read), SCHEMA)
    with pytest.raises(pa.ArrowInvalid, match="2 streams and reads are open"):
        port.ask("OPEN", json.dumps({**OPTIONS, "client_id": "9"}), SCHEMA)
    port.reads._idle_timeout_s = -1.0
    assert not port.ask("OPEN", json.dumps({**OPTIONS, "client_id": "9"}), SCHEMA).startswith("!")


def test_a_read_whose_rows_are_fetched_is_not_idle(port: Port) -> None:
    read = {"destination": "shop", "table": "shop.item"}
    name, place, *_ = port.ask("READ", json.dumps(read), SCHEMA).split(";")
    stream = port.opened()
    end = port.ask("LATEST", stream, port.ask("INITIAL", stream))
    part = port.ask("PLAN", stream, f'[{port.ask("INITIAL", stream)},{end}]').split(";")[0]
    requests, _ = port.reads._opened()
    held = [requests._reads._reads[name].owner, requests._streams[stream].owner]
    for each in held:
        each.used_s -= 100.0
    for fetched in (place, part):
        port.rows(fetched)
    requests.close_idle(50.0)
    assert len(requests) == 2
    for each in held:
        each.used_s -= 100.0
    requests.close_idle(50.0)
    assert len(requests) == 0


def test_batch_reads_hold_no_more_than_their_limit(port: Port) -> None:
    read = {"destination": "shop", "table": "shop.item"}
    schema = port.ask("SCHEMA", json.dumps(read))
    name = port.ask("READ", json.dumps(read), schema).partition(";")[0]
    _, chunks = port.reads._opened()
    chunks._read_bytes_max = chunks._read_bytes * 3 // 2
    requests, _ = port.reads._opened()
    assert "flight.read_bytes_max" in port.ask("READ", json.dumps(read), schema)
    assert port.ask("RELEASE", name) == "released"
    left = port.ask("READ", json.dumps(read), schema).partition(";")[0]
    assert "flight.read_bytes_max" in port.ask("READ", json.dumps(read), schema)
    requests._reads._reads[left].owner.used_s -= 700.0  # its application may be gone
    port.reads._idle_timeout_s = 3600.0
    assert not port.ask("READ", json.dumps(read), schema).startswith("!")
    assert len(requests) == 1


def test_served_chunks_go_with_their_carrier() -> None:
    chunks = ServedChunks(1 << 20)
    carrier = chunks.carrier(ChunkOwner())
    name = carrier.put([[inserts(1, 2)]]).split(":")[1]
    assert pa.ipc.open_stream(chunks.get(name)).read_all().num_rows == 2
    carrier.release()
    with pytest.raises(InstanceRestarted):
        chunks.get(name)
