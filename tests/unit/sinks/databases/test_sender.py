"""One connection of a mirror, over a database that notes what it is told."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from ray_canal.sinks.databases.sender import Sender, TableWrite
from ray_canal.sinks.port import Cursor, SinkError
from ray_canal.sinks.schema_follower import TableName

NAME = TableName("shop", "orders")
CURSOR = Cursor(timeline=7, journal_name="b.000003", position=4711, ordinal=2)
ONE, NONE = pa.table({"id": [1]}), pa.table({"id": pa.array([], pa.int64())})


class Told:
    """A target whose row has `epoch`, and is at `place`."""

    ddl_in_transaction = True

    def __init__(self, epoch: int = 4, place: str = "") -> None:
        self.epoch, self.place, self.calls = epoch, place, list[Any]()

    def take_over(self, row: str) -> tuple[int, str]:
        self.epoch += 1
        return self.epoch, self.place

    def place_of(self, row: str) -> str:
        return self.place

    def begin(self, row: str) -> int:
        self.calls.append("begin")
        return self.epoch

    def upsert(self, name: TableName, key: Any, rows: pa.Table) -> None:
        self.calls.append(("upsert", *key))

    def __getattr__(self, name: str) -> Any:
        return lambda *given: self.calls.append(name)


def sender_of(told: Told | None = None, destination: str = "orders") -> Sender:
    return Sender("lake", destination, told or Told())  # type: ignore[arg-type]


def opened(**given: Any) -> tuple[Sender, Told]:
    told = Told(**given)
    sender = sender_of(told)
    sender.open()
    told.calls.clear()
    return sender, told


def write(*key: str, deletes: pa.Table = ONE, upserts: pa.Table = ONE) -> TableWrite:
    return TableWrite(
        source=("shop", "orders"), name=NAME, key=key, deletes=deletes, upserts=upserts
    )


def test_it_goes_on_at_the_place_of_its_row() -> None:
    assert opened()[0].place is None
    sender, _ = opened(place=sender_of().text(CURSOR))
    assert sender.place == CURSOR
    assert opened(place=CURSOR.to_json())[0].place == CURSOR
    with pytest.raises(SinkError, match="cursor cannot be read"):
        opened(place="x")


def test_a_row_of_another_destination_is_left_to_it() -> None:
    told = Told(place=sender_of(destination="users").text(CURSOR))
    with pytest.raises(SinkError, match="destination users, and this one is of orders") as refused:
        sender_of(told).open()
    assert (refused.value.kind, told.epoch) == ("fatal", 4), "who writes there goes on"


def test_rows_and_place_are_one_transaction() -> None:
    sender, told = opened()
    sender.commit([write("id")], CURSOR)
    assert told.calls == ["begin", "find", "delete", ("upsert", "id"), "commit"]
    assert sender.place == CURSOR
    told.calls.clear()
    sender.commit([write("id", deletes=NONE)], CURSOR)
    assert told.calls == ["begin", ("upsert", "id"), "commit"], "a known table, nothing to delete"


def test_without_a_key_rows_come_before_those_that_go() -> None:
    sender, told = opened()
    sender.commit([write()], None)
    assert told.calls == ["begin", "find", ("upsert",), "delete_like", "commit"]


def test_whoever_was_shut_out_writes_nothing() -> None:
    sender, told = opened()
    told.epoch += 1
    with pytest.raises(SinkError, match="another runner has taken over") as refused:
        sender.commit([write("id")], CURSOR)
    assert refused.value.kind == "fenced"
    assert told.calls == ["begin", "rollback"]
    assert sender.place is None


def test_a_table_that_does_not_fit_is_named_and_the_place_stays() -> None:
    sender, told = opened()

    def refuse(*_: Any) -> None:
        raise SinkError("no such column", "schema")

    told.upsert = refuse  # type: ignore[method-assign]
    with pytest.raises(SinkError) as refused:
        sender.commit([write("id")], CURSOR)
    assert refused.value.source_table == ("shop", "orders")
    assert sender.place is None
    sender.abort()
    assert told.calls[-1] == "rollback"
    assert not sender.is_begun


def test_where_tables_change_outside_of_transactions_none_is_left_open() -> None:
    sender, told = opened()
    sender.begin_ddl()
    assert (told.calls, sender.is_begun) == (["begin"], True)
    sender, told = opened()
    told.ddl_in_transaction = False
    sender.begin_ddl()
    assert (told.calls, sender.is_begun) == (["begin", "rollback"], False)
