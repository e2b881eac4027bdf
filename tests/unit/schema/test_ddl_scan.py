"""What a snapshot says of the log before it, over logs made of statements."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from ray_canal.binlog.chunk import ChunkHead, RawChunk
from ray_canal.binlog.table_map import TableMap
from ray_canal.errors import TableMetaMismatch
from ray_canal.model.position import EntryPosition
from ray_canal.model.schema_record import SchemaRecord
from ray_canal.schema.ddl_scan import touched
from ray_canal.schema.history import place_of
from ray_canal.schema.keeper import SchemaKeeper
from ray_canal.schema.names import Names
from ray_canal.schema.registry import SchemaRegistry
from ray_canal.schema.table_state import StatementSession
from ray_canal.types import mysql
from tests.unit.schema.test_keeper import FILE, SESSION, FakeServer, columns

START = 100


def log_of(*statements: str) -> tuple[RawChunk, list[int]]:
    """A chunk of QUERY events from START on, and where each begins; then the end."""
    data, places = b"", []
    for sql in statements:
        body = struct.pack("<IIBHH", 1, 0, 2, 0, 0) + b"db\0" + sql.encode()
        places.append(START + len(data))
        size = 19 + len(body)
        data += struct.pack("<IBIIIH", 1, 2, 1, size, places[-1] + size, 0) + body
    places.append(START + len(data))
    head = ChunkHead(0, FILE, START, places[-1], has_checksum=False)
    return RawChunk(head, np.frombuffer(data, np.uint8)), places


def started(
    server: FakeServer, *statements: str
) -> tuple[SchemaKeeper, list[int], list[SchemaRecord]]:
    """A keeper that begins at START of a log whose end has the server's catalog."""
    chunk, places = log_of(*statements)
    server.log, server.at = [chunk], places[-1]
    keeper = SchemaKeeper(server)
    records = list(keeper.begin([], "uuid", EntryPosition(FILE, START)))
    return keeper, places, records


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("alter table t add column b int", ["t"]),
        ("alter table t add index (b), engine = InnoDB, comment 'c'", []),
        ("alter table t add primary key (a)", ["t"]),
        ("create table if not exists t (a int)", ["t"]),
        ("create table u like t", ["u"]),
        ("rename table t to u, v to t", ["t", "u", "v"]),
        ("alter table t rename to u", ["t", "u"]),
        ("drop table if exists t, u", ["t", "u"]),
        ("drop database db", ["t"]),
        ("truncate table t", []),
        ("alter table t frobnicate", ["t"]),
        ("drop index `PRIMARY` on T", ["t"]),
        ("create temporary table t (a int)", []),
        ("create view v as select 1", []),
        ("insert into t values ('alter table t')", []),
    ],
)
def test_what_a_statement_touches(sql: str, names: list[str]) -> None:
    chunk, (place, end) = log_of(sql)
    places = place_of(FILE, START), place_of(FILE, end)
    found = touched([chunk], *places, [("db", "t")], Names(1))
    assert found.tables == {("db", name): (FILE, place) for name in names}


def test_only_what_lies_in_between_counts() -> None:
    chunk, places = log_of(*["alter table t add b int"] * 3)
    for start, end, last in ((0, 3, 2), (0, 1, 0), (1, 2, 1), (2, 2, None)):
        found = touched(
            [chunk], place_of(FILE, places[start]), place_of(FILE, places[end]), [], Names(0)
        )
        assert found.tables.get(("db", "t")) == (None if last is None else (FILE, places[last]))


def test_before_the_snapshot_only_what_nothing_changed_is_known() -> None:
    server = FakeServer("create table db.t (now int); create table db.same (a int)", 0)
    statements = (
        "alter table t rename column was to now",
        "create table made (x int)", "alter table made add y int", "drop table made",
        "alter table same add index (a)",
    )  # fmt: skip
    keeper, at, records = started(server, *statements)
    assert server.read == [(FILE, FILE)]
    again = SchemaKeeper(server)
    made = [None, "x", "x y", None, None, None, None]
    for n, (position, sql) in enumerate(zip(at, statements, strict=False)):
        keeper.applied(ChunkHead(0, FILE, position, position + 1), position, sql, SESSION)
        assert columns(keeper, "made", position) == made[n]
    records += keeper.take_records()
    assert again.begin(records, "uuid", EntryPosition(FILE, START), True) == ()
    assert columns(again, "t", START - 1) is None
    for history, places in ((keeper, [*at[-2:], 9999]), (again, [*at, 9999])):
        assert {columns(history, "t", p) for p in places} == {"now"}
        assert {columns(history, "same", p) for p in places} == {"a"}
        assert [columns(history, "made", p) for p in places] == made[-len(places) :]
    assert server.snapshots == 1


def test_two_changes_leave_what_lies_between_them_unknown() -> None:
    server = FakeServer("create table db.t (a int, b int, c int)", 0)
    keeper, at, _ = started(
        server, "insert into t values (1)", "alter table t add b int", "alter table t add c int"
    )
    assert [columns(keeper, "t", p) for p in at] == [None, None, "a b c", "a b c"]
    three = TableMap(1, "db", "t", (mysql.LONG,) * 3, (0,) * 3, (True,) * 3)
    schemas = SchemaRegistry()
    schemas.use(keeper.history)
    assert len(schemas.resolve(three, FILE, at[2]).columns) == 3
    with pytest.raises(TableMetaMismatch, match=r"db\.t: .*need not hold here"):
        schemas.resolve(three, FILE, at[1])  # though it would fit


def test_a_start_before_a_known_snapshot_reaches_back_from_it() -> None:
    server = FakeServer("create table db.t (a int); create table db.u (a int)", 0)
    chunk, at = log_of("alter table u add a int", "create table x (a int)")
    server.log, server.at = [chunk], at[-1]
    first = SchemaKeeper(server)
    records = list(first.begin([], "uuid", EntryPosition(FILE, at[-1])))
    assert server.read == []
    first.applied(
        ChunkHead(0, FILE, 900, 999), 900, "alter table t add later int", StatementSession("db")
    )
    records += first.take_records()
    server.at = 2000
    earlier = SchemaKeeper(server)
    new = earlier.begin(records, "uuid", EntryPosition(FILE, START))
    assert sorted(record.kind for record in new) == ["snapshot", "table"]
    for place in (START, 800):
        loaded = SchemaKeeper(server)
        assert loaded.begin([*records, *new], "uuid", EntryPosition(FILE, place), True) == ()
        assert columns(loaded, "t", 901) == "a later"
        if place == START:
            assert columns(loaded, "t", START) == "a"
            assert columns(loaded, "u", START) == "a"
            assert columns(loaded, "u", START - 1) is None
    assert server.snapshots == 1


def test_with_row_metadata_nothing_is_read_and_nothing_is_known_before() -> None:
    server = FakeServer("create table db.t (a int)", 500)
    server.row_metadata = True
    keeper = SchemaKeeper(server)
    keeper.begin([], "uuid", EntryPosition(FILE, START))
    assert server.read == []
    assert columns(keeper, "t", START) is None
    bare = TableMap(1, "db", "t", (mysql.LONG,), (0,), (True,))
    schemas = SchemaRegistry()
    schemas.use(keeper.history)
    with pytest.raises(TableMetaMismatch, match="no column names"):
        schemas.resolve(bare, FILE, START)


SWAP = "alter table t change amount fee int, change fee amount int"


@pytest.mark.parametrize("continues", [True, False])
def test_a_part_of_the_log_that_nobody_read(continues: bool) -> None:
    """A8: source.start = "latest" left a statement unread, one behind it was applied. A start in
    that part reads and applies both, and takes nothing from behind it."""
    server = FakeServer("create table db.t (amount int, fee int)", START)
    chunk, places = log_of("alter table t add x int", SWAP, "alter table t add y int")
    server.log = [chunk]
    records: list[SchemaRecord] = []

    def read(keeper: SchemaKeeper, number: int, sql: str) -> None:
        here = ChunkHead(0, FILE, places[number], places[number + 1])
        keeper.applied(here, places[number], sql, SESSION)
        records.extend(keeper.take_records())

    keeper = SchemaKeeper(server)
    records += keeper.begin([], "uuid", EntryPosition(FILE, START))
    read(keeper, 0, "alter table t add x int")
    server.at, server.sql = places[2], "create table db.t (fee int, amount int, x int)"
    latest = SchemaKeeper(server)
    records += latest.begin(records, "uuid", EntryPosition(FILE, places[2]))
    read(latest, 2, "alter table t add y int")
    server.at, server.sql = places[3], "create table db.t (fee int, amount int, x int, y int)"
    again = SchemaKeeper(server)
    again.begin(records, "uuid", EntryPosition(FILE, places[1]), continues=continues)
    known = ("amount fee x", "fee amount x") if continues else (None, None)  # no guess
    assert columns(again, "t", places[1] - 1) == known[0]
    read(again, 1, SWAP)
    assert columns(again, "t", places[1]) == known[1]
    read(again, 2, "alter table t add y int")
    assert columns(again, "t", places[2]) == "fee amount x y"
