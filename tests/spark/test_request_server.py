"""The server over a real socket, with a subscription in this process; no Spark session."""

from __future__ import annotations

import dataclasses
import json
import re
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ray_canal.model.table_meta import ColumnMeta, TableMeta
from ray_canal.spark import request_server as module
from ray_canal.spark import requests
from ray_canal.spark.request_server import RequestServer
from ray_canal.spark.row_transfer import Way
from tests.spark.conftest import inserts
from tests.spark.test_ahead import wait_until
from tests.spark.test_chunks import read
from tests.spark.test_log_stream import Subscription

OPTIONS = {"destination": "shop", "table": "shop.item", "client_id": "7"}


QUIET = TableMeta("shop", "quiet", (ColumnMeta("id", 3, "int"), ColumnMeta("n", 8, "bigint")))
KNOWN = {"shop.quiet": QUIET}


class Subscriber(Subscription):
    closed = 0

    def subscribe(self, tables: str, start: str | None = None) -> None:
        assert re.match(r"shop\\\.\w+", tables)
        assert start is None

    def close(self) -> None:
        self.closed += 1
        self.rollback()


@pytest.fixture
def subscriber(monkeypatch: pytest.MonkeyPatch) -> Subscriber:
    made = Subscriber([inserts(0, 30), inserts(30, 10, position=2000)])
    monkeypatch.setattr(module, "_connected", lambda destination, client_id: made)
    monkeypatch.setattr(module, "_reach", lambda destination, client_id: None)
    monkeypatch.setattr(module, "table_meta", lambda destination, table: KNOWN.get(table))
    monkeypatch.setattr(requests, "_ENDING_S", 0.1)
    monkeypatch.setattr(requests, "_NEWS_S", 0.3)

    def way(_spark: Any) -> Way:
        return "memory"

    monkeypatch.setattr(module, "chosen_way", way)
    monkeypatch.setattr(module, "cores_of", lambda spark: 2)
    return made


@pytest.fixture
def server(subscriber: Subscriber) -> Iterator[RequestServer]:
    spark: Any = None
    made = RequestServer(spark)
    yield made
    made.close()


def ask(
    server: RequestServer, what: str, first: str = "", second: str = "", token: str = ""
) -> str:
    host, _, port = server.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(f"{token or server.token} {what}\n{first}\n{second}\n".encode())
        with connection.makefile("rb") as answer:
            line: str = answer.read().decode()
            return line.rstrip("\n")


def opened(server: RequestServer) -> str:
    options = json.dumps(OPTIONS)
    return ask(server, "OPEN", options, ask(server, "SCHEMA", options))


def test_a_query_from_its_schema_to_its_end(server: RequestServer, subscriber: Subscriber) -> None:
    schema = json.loads(ask(server, "SCHEMA", json.dumps(OPTIONS)))
    assert "after" in [field["name"] for field in schema["fields"]]
    name = ask(server, "OPEN", json.dumps(OPTIONS), json.dumps(schema))
    assert ask(server, "AVAILABLE", name) == "done"
    start, ids = ask(server, "INITIAL", name), []
    while True:
        end = ask(server, "LATEST", name, start)
        if end == start:
            break
        places = ask(server, "PLAN", name, f"[{start},{end}]")
        for place in places.split(";"):
            ids += [row["after"]["id"] for part in read(place) for row in part.to_pylist()]
        assert ask(server, "COMMIT", name, end) == "done"
        start = end
    assert ids == list(range(40))
    assert subscriber.acked == 40
    assert ask(server, "CLOSE", name) == "closed"
    assert ask(server, "CLOSE", name) == "closed"
    assert ask(server, "LATEST", name, start).startswith("!this stream is closed")


def test_columns_of_a_table_that_does_not_change(
    server: RequestServer, subscriber: Subscriber
) -> None:
    subscriber.rows.clear()
    asked = {**OPTIONS, "table": "shop.quiet", "schematimeout": "30"}
    schema = json.loads(ask(server, "SCHEMA", json.dumps(asked)))
    (after,) = (field["type"]["fields"] for field in schema["fields"] if field["name"] == "after")
    assert [(each["name"], each["type"]) for each in after] == [("id", "integer"), ("n", "long")]
    assert {"timeline", "sql"} <= {field["name"] for field in schema["fields"]}
    unknown = {**OPTIONS, "table": "shop.nobody", "schematimeout": "1"}
    assert "shop does not know its columns" in ask(server, "SCHEMA", json.dumps(unknown))


def test_one_query_for_each_client(server: RequestServer) -> None:
    name = opened(server)
    assert "is read by another query" in ask(server, "SCHEMA", json.dumps(OPTIONS))
    assert "is read by another query" in ask(server, "OPEN", json.dumps(OPTIONS), "{}")
    ask(server, "CLOSE", name)
    assert not opened(server).startswith("!")


def test_who_has_no_token_gets_nothing(server: RequestServer) -> None:
    assert ask(server, "SCHEMA", json.dumps(OPTIONS), token="guess") == ""


def test_errors_are_one_line(server: RequestServer, subscriber: Subscriber) -> None:
    assert ask(server, "SCHEMA", "{}").startswith('!give .option("table"')
    assert "does not know DANCE" in ask(server, "DANCE", opened(server))
    assert ask(server, "OPEN", "no json").startswith("!JSONDecodeError")


def test_closing_the_server_closes_its_streams(subscriber: Subscriber) -> None:
    spark: Any = None
    server = RequestServer(spark)
    opened(server)
    before = subscriber.closed
    server.close()
    assert subscriber.closed == before + 1


def test_a_stream_whose_query_was_stopped_while_it_was_opened_is_closed(
    server: RequestServer, subscriber: Subscriber
) -> None:
    """Its name reaches nobody, so nobody would close it: the client id would stay taken."""
    begun, stopped = threading.Event(), threading.Event()

    def connected(destination: str, client_id: int | None) -> Subscriber:
        begun.set()
        assert stopped.wait(30)
        return subscriber

    schema = ask(server, "SCHEMA", json.dumps(OPTIONS))
    closed = subscriber.closed
    server.requests._ground = dataclasses.replace(server.requests._ground, connect=connected)
    host, _, port = server.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        request = f"{server.token} OPEN\n{json.dumps(OPTIONS)}\n{schema}\n"
        connection.sendall(request.encode())
        assert begun.wait(30)
    stopped.set()
    wait_until(lambda: subscriber.closed > closed)
    assert len(server.requests) == 0
    assert not ask(server, "OPEN", json.dumps(OPTIONS), schema).startswith("!")
