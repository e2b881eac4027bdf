"""SchemaKeeper: snapshots, records that give the same history, tables that are read again."""

from __future__ import annotations

import gc
import time
import tracemalloc

import pytest

from ray_canal.binlog.chunk import ChunkHead, RawChunk
from ray_canal.binlog.table_map import TableMap
from ray_canal.model.position import EntryPosition
from ray_canal.model.schema_record import CatalogSnapshot, SchemaRecord, TableState
from ray_canal.schema.ddl.create_table import parse_tables
from ray_canal.schema.history import place_of
from ray_canal.schema.keeper import SchemaKeeper
from ray_canal.schema.table_state import StatementSession
from ray_canal.types import mysql

FILE = "bin.000003"
SESSION = StatementSession("db")


class FakeServer:
    """A catalog that says what it is told to say, at the end of its log."""

    def __init__(self, sql: str, position: int) -> None:
        self.sql = sql
        self.at = position
        self.snapshots = 0
        self.gtid = ""
        self.log_files = [FILE]
        self.file = FILE
        self.created: dict[str, int] = {}
        self.row_metadata = False
        self.setting = 0
        self.log: list[RawChunk] = []
        self.read: list[tuple[str, str]] = []

    def lower_case_table_names(self) -> int:
        return self.setting

    def files(self) -> list[str]:
        return self.log_files

    def created_s(self, journal_name: str) -> int:
        return self.created.get(journal_name, 0)

    def has_row_metadata(self) -> bool:
        return self.row_metadata

    def chunks(self, first: str, last: str) -> list[RawChunk]:
        self.read.append((first, last))
        return self.log

    def position(self) -> EntryPosition:
        return EntryPosition(self.file, self.at, gtid=self.gtid)

    def snapshot(self) -> CatalogSnapshot:
        self.snapshots += 1
        states = tuple(TableState(meta, "latin1") for meta in parse_tables(self.sql))
        created_s = self.created_s(self.file)
        return CatalogSnapshot(self.file, self.at, states, {"db": "latin1"}, self.gtid, created_s)

    def table_now(self, schema: str, table: str) -> CatalogSnapshot:
        found = [
            TableState(meta, "latin1")
            for meta in parse_tables(self.sql)
            if (meta.schema, meta.table) == (schema, table)
        ]
        return CatalogSnapshot(FILE, self.at, tuple(found))


def head(position: int, end: int) -> ChunkHead:
    return ChunkHead(0, FILE, position, end)


def columns(keeper: SchemaKeeper, table: str, at: int) -> str | None:
    state = keeper.history.at("db", table, place_of(FILE, at))
    if state is None:
        return None
    return "?" if state.problem else " ".join(c.name for c in state.columns)


def test_a_snapshot_is_taken_once_and_its_record_gives_the_same_history() -> None:
    server = FakeServer("create table db.t (a int, e enum('x','y'))", 500)
    keeper = SchemaKeeper(server)
    records = list(keeper.begin([], "uuid", EntryPosition(FILE, 500)))
    assert [r.kind for r in records] == ["snapshot"]
    keeper.applied(head(600, 700), 600, "alter table t add b varchar(9)", SESSION)
    keeper.applied(head(700, 800), 700, "rename table t to u", SESSION)
    records += keeper.take_records()
    assert [r.kind for r in records] == ["snapshot", "ddl", "ddl"]
    server.at = 9000
    for start in (100, 500, 650, 9000):
        again = SchemaKeeper(server)
        new = again.begin(records, "uuid", EntryPosition(FILE, start), True)
        assert [r.kind for r in new] == ["snapshot"] * (start < 500)
        for at, t, u in ((500, "a e", None), (650, "a e b", None), (700, None, "a e b")):
            if at >= start:
                assert (columns(again, "t", at), columns(again, "u", at)) == (t, u)
        assert (columns(again, "t", 9000), columns(again, "u", 9000)) == (None, "a e b")
        state = again.history.at("db", "u", place_of(FILE, 800))
        assert state == keeper.history.at("db", "u", place_of(FILE, 800))
        assert state is not None
        assert [c.charset for c in state.columns] == ["", "utf8mb4", "latin1"]
    assert server.snapshots == 1


def test_statements_that_come_again_give_the_same_changes_and_no_records() -> None:
    keeper = SchemaKeeper(None)
    sql = "rename table a to b, c to d"
    keeper.applied(head(1, 2), 1, "create table a (x int)", SESSION)
    first = keeper.applied(head(10, 20), 10, sql, SESSION)
    keeper.take_records()
    assert keeper.applied(head(10, 20), 10, sql, SESSION) == first
    assert keeper.take_records() == ()
    assert {(c.table, c.meta is not None, bool(c.problem)) for c in first} == {
        ("a", False, False), ("b", True, False), ("c", False, False), ("d", False, True),
    }  # fmt: skip


def test_tables_that_are_made_and_columns_of_another_type_are_named() -> None:
    """IF NOT EXISTS is in the log whether the table was there or not."""
    keeper = SchemaKeeper(FakeServer("create table db.t (a int, b int)", 500))
    keeper.begin([], "uuid", EntryPosition(FILE, 500))
    found = []
    for number, sql in enumerate(
        ("create table if not exists t (a int)", "create table u (a int)", "drop table t",
         "create table if not exists t (a int, c int)", "alter table t modify a double, add d int",
         "create or replace table u (a date)", "create table v like t", "rename table v to w",
         "create index i on t (a)", "create temporary table x (a int)")
    ):  # fmt: skip
        at = 600 + 100 * number
        for _ in range(2):  # a chunk may come again
            changes = keeper.applied(head(at, at + 100), at, sql, SESSION)
        found.append(" ".join(f"{c.table}{'*' * c.is_new}{','.join(c.retyped)}" for c in changes))
    assert found == ["", "u*", "t", "t*", "ta", "u*a", "v*", "v w", "", ""]
    unknown = SchemaKeeper(None)  # of files: what was there before is not known
    sql = "create table if not exists t (a int)"
    assert [c.is_new for c in unknown.applied(head(1, 2), 1, sql, SESSION)] == [False]
    sql = "create table v (a int)"
    assert [c.is_new for c in unknown.applied(head(3, 4), 3, sql, SESSION)] == [True]


def test_another_server_or_a_log_that_began_anew_gets_a_snapshot_of_its_own() -> None:
    server = FakeServer("create table db.t (a int)", 500)
    keeper = SchemaKeeper(server)
    records = list(keeper.begin([], "one", EntryPosition(FILE, 500)))
    keeper.applied(head(600, 700), 600, "alter table t add b int", SESSION)
    records += keeper.take_records()
    assert len(SchemaKeeper(server).begin(records, "two", EntryPosition(FILE, 500))) == 1
    server.at, server.sql = 200, "create table db.t (z int)"  # RESET BINARY LOGS
    again = SchemaKeeper(server)
    records += again.begin(records, "one", EntryPosition(FILE, 150))
    assert columns(again, "t", 150) == columns(again, "t", 9000) == "z"
    later = SchemaKeeper(server)
    assert later.begin(records, "one", EntryPosition(FILE, 150)) == ()
    assert columns(later, "t", 9000) == "z", "records of the old log are passed over"


@pytest.mark.parametrize(
    ("policy", "log_end", "found"),
    [("catalog", 700, True), ("quarantine", 700, True), ("stop", 700, False),
     ("catalog", 701, False)],
)  # fmt: skip
def test_a_lost_table_is_read_anew_where_that_is_provable(
    policy: str, log_end: int, found: bool
) -> None:
    server = FakeServer("create table db.t (a int)", 500)
    keeper = SchemaKeeper(server, policy)  # type: ignore[arg-type]
    records = list(keeper.begin([], "uuid", EntryPosition(FILE, 500)))
    server.sql, server.at = "create table db.t (a int, weird int)", log_end
    keeper.applied(head(600, 700), 600, "alter table t frobnicate", SESSION)
    records += keeper.take_records()
    assert columns(keeper, "t", 600) == ("a weird" if found else "?")
    again = SchemaKeeper(server)
    again.begin(records, "uuid", EntryPosition(FILE, 500))
    assert columns(again, "t", 600) == columns(keeper, "t", 600)


def test_rows_that_do_not_fit_make_it_ask_again() -> None:
    server = FakeServer("create table db.t (a int)", 700)
    keeper = SchemaKeeper(server)
    keeper.begin([], "uuid", EntryPosition(FILE, 500))
    two = TableMap(1, "db", "t", (mysql.LONG, mysql.LONG), (0, 0), (True, True))
    assert not keeper.found_again(two, head(600, 700), 650), "the catalog does not fit either"
    server.sql = "create table db.t (a int, b int)"
    assert keeper.found_again(two, head(600, 700), 650)
    assert columns(keeper, "t", 650) == "a b"


@pytest.mark.parametrize(("continues", "columns_there"), [(True, "a"), (False, "renamed")])
def test_what_was_not_read_is_not_trusted(continues: bool, columns_there: str) -> None:
    """Nobody read from 500 to 800, where a column was renamed: the history cannot go on."""
    server = FakeServer("create table db.t (a int)", 500)
    records = list(SchemaKeeper(server).begin([], "uuid", EntryPosition(FILE, 500)))
    server.sql, server.at = "create table db.t (renamed int)", 800
    keeper = SchemaKeeper(server)
    new = keeper.begin(records, "uuid", EntryPosition(FILE, 800), continues)
    assert len(new) == (not continues)
    assert columns(keeper, "t", 800) == columns_there
    again = SchemaKeeper(server)
    assert again.begin([*records, *new], "uuid", EntryPosition(FILE, 800), True) == ()
    assert columns(again, "t", 800) == columns_there
    assert keeper.begin([*records, *new], "uuid", EntryPosition(FILE, 500)) == (), "known place"


def test_an_old_history_is_compacted_at_a_start() -> None:
    server = FakeServer("create table db.t (a int)", 500)
    keeper = SchemaKeeper(server)
    records = list(keeper.begin([], "uuid", EntryPosition(FILE, 500)))
    keeper.applied(head(600, 700), 600, "alter table t add b int", SESSION)
    records += keeper.take_records()
    old = [SchemaRecord(r.server, r.journal_name, r.position, r.kind, time.time() - 1e5, r.body)
           for r in records]  # fmt: skip
    server.at = 900
    again = SchemaKeeper(server)
    (compact,) = again.begin(old, "uuid", EntryPosition(FILE, 800), True)
    assert (compact.kind, compact.position) == ("snapshot", 601), "right behind the statement"
    alone = SchemaKeeper(server)
    alone.begin([compact], "uuid", EntryPosition(FILE, 800), True)
    assert columns(alone, "t", 800) == "a b"
    both = SchemaKeeper(server)
    assert both.begin([*old, compact], "uuid", EntryPosition(FILE, 550)) == ()
    assert [columns(both, "t", at) for at in (550, 650)] == ["a", "a b"]


def test_tables_that_were_made_and_dropped_leave_nothing_behind() -> None:
    """B9: neither memory nor time grows with every table that ever was."""
    keeper = SchemaKeeper(FakeServer("create table db.t (a int)", 500))
    keeper.begin([], "uuid", EntryPosition(FILE, 500))
    at, kept = 600, []
    tracemalloc.start()
    for number in range(1_500):
        name = f"tmp_{number}"
        for sql in (f"create table {name} (id int primary key, a varchar(20))",
                    f"alter table {name} add b datetime", f"drop table {name}",
                    "create database made charset gbk", "drop database made"):  # fmt: skip
            keeper.applied(head(at, at + 100), at, sql, SESSION)
            at += 100
        keeper.take_records()
        if number % 500 == 499:
            gc.collect()
            kept.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert len(keeper.history.known_names()) <= 3
    assert kept[-1] - kept[0] < 50_000, kept
    assert columns(keeper, "t", at) == "a"
