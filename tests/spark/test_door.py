"""The door over a real socket, with a subscription in this process; no Spark session."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from ray_canal.model.table_meta import ColumnMeta, TableMeta
from ray_canal.spark import door as module
from ray_canal.spark import requests
from ray_canal.spark.door import Door
from ray_canal.spark.ways import Way
from tests.spark.conftest import inserts
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
def door(subscriber: Subscriber) -> Iterator[Door]:
    spark: Any = None
    made = Door(spark)
    yield made
    made.close()


def ask(door: Door, what: str, first: str = "", second: str = "", token: str = "") -> str:
    host, _, port = door.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(f"{token or door.token} {what}\n{first}\n{second}\n".encode())
        with connection.makefile("rb") as answer:
            line: str = answer.read().decode()
            return line.rstrip("\n")


def opened(door: Door) -> str:
    options = json.dumps(OPTIONS)
    return ask(door, "OPEN", options, ask(door, "SCHEMA", options))


def test_a_query_from_its_schema_to_its_end(door: Door, subscriber: Subscriber) -> None:
    schema = json.loads(ask(door, "SCHEMA", json.dumps(OPTIONS)))
    assert "after" in [field["name"] for field in schema["fields"]]
    name = ask(door, "OPEN", json.dumps(OPTIONS), json.dumps(schema))
    assert ask(door, "AVAILABLE", name) == "done"
    start, ids = ask(door, "INITIAL", name), []
    while True:
        end = ask(door, "LATEST", name, start)
        if end == start:
            break
        places = ask(door, "PLAN", name, f"[{start},{end}]")
        for place in places.split(";"):
            ids += [row["after"]["id"] for part in read(place) for row in part.to_pylist()]
        assert ask(door, "COMMIT", name, end) == "done"
        start = end
    assert ids == list(range(40))
    assert subscriber.acked == 40
    assert ask(door, "CLOSE", name) == "closed"
    assert ask(door, "CLOSE", name) == "closed"
    assert ask(door, "LATEST", name, start).startswith("!this stream is closed")


def test_columns_of_a_table_that_does_not_change(door: Door, subscriber: Subscriber) -> None:
    subscriber.rows.clear()
    asked = {**OPTIONS, "table": "shop.quiet", "schematimeout": "30"}
    schema = json.loads(ask(door, "SCHEMA", json.dumps(asked)))
    (after,) = (field["type"]["fields"] for field in schema["fields"] if field["name"] == "after")
    assert [(each["name"], each["type"]) for each in after] == [("id", "integer"), ("n", "long")]
    assert {"timeline", "sql"} <= {field["name"] for field in schema["fields"]}
    unknown = {**OPTIONS, "table": "shop.nobody", "schematimeout": "1"}
    assert "shop does not know its columns" in ask(door, "SCHEMA", json.dumps(unknown))


def test_one_query_for_each_client(door: Door) -> None:
    name = opened(door)
    assert "is read by another query" in ask(door, "SCHEMA", json.dumps(OPTIONS))
    assert "is read by another query" in ask(door, "OPEN", json.dumps(OPTIONS), "{}")
    ask(door, "CLOSE", name)
    assert not opened(door).startswith("!")


def test_who_has_no_token_gets_nothing(door: Door) -> None:
    assert ask(door, "SCHEMA", json.dumps(OPTIONS), token="guess") == ""


def test_errors_are_one_line(door: Door, subscriber: Subscriber) -> None:
    assert ask(door, "SCHEMA", "{}").startswith('!give .option("table"')
    assert "does not know DANCE" in ask(door, "DANCE", opened(door))
    assert ask(door, "OPEN", "no json").startswith("!JSONDecodeError")


def test_closing_the_door_closes_its_streams(subscriber: Subscriber) -> None:
    spark: Any = None
    door = Door(spark)
    opened(door)
    before = subscriber.closed
    door.close()
    assert subscriber.closed == before + 1
