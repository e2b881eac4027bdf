"""Which records are of one log: clocks that step back, upstreams side by side, logs that begin
anew, servers that compare names in another way since."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import pytest

from ray_canal.errors import ConfigError
from ray_canal.meta.schema_store import MemorySchemaStore
from ray_canal.parse import schema_keeper
from ray_canal.parse.names import Names
from ray_canal.parse.records import compacted, log_number, numbered_log, of_log, present_log
from ray_canal.parse.schema_keeper import SchemaKeeper
from ray_canal.protocol.position import EntryPosition
from ray_canal.protocol.schema_record import CatalogSnapshot, SchemaRecord
from tests.unit.parse.test_schema_keeper import FILE, SESSION, FakeServer, columns, head

AMOUNT_FEE = "create table db.t (amount int, fee int)"
SWAP = "alter table t change amount fee int, change fee amount int"
A_UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def at(position: int) -> EntryPosition:
    return EntryPosition(FILE, position)


@pytest.mark.parametrize("clock", [1001.0, 990.0, -5.0])
def test_a_clock_that_steps_back_loses_no_statement(clock: float) -> None:
    """A8: a statement that was recorded before the snapshot, by the clock, and lies behind it."""
    server = FakeServer(AMOUNT_FEE, 500)
    with mock.patch.object(schema_keeper.time, "time", return_value=1000.0):
        keeper = SchemaKeeper(server)
        records = list(keeper.begin([], "uuid", at(500)))
    with mock.patch.object(schema_keeper.time, "time", return_value=clock):
        keeper.applied(head(600, 700), 600, SWAP, SESSION)
        records += keeper.take_records()
        server.at = 9000
        again = SchemaKeeper(server)
        again.begin(records, "uuid", at(700), continues=True)
    assert columns(again, "t", 700) == "fee amount"


def test_a_snapshot_of_a_catch_up_drops_nothing() -> None:
    """A8: a subscriber with a start of its own takes a snapshot beside the running upstream, which
    has recorded a statement behind its place before the snapshot was stamped."""
    store = MemorySchemaStore()
    server = FakeServer(AMOUNT_FEE, 500)
    main = SchemaKeeper(server)
    store.append("d", main.begin([], "uuid", at(500)))
    server.at = 600
    aside = SchemaKeeper(server)
    known = store.records("d")
    real = server.snapshot

    def while_it_reads() -> CatalogSnapshot:
        found = real()
        main.applied(head(700, 800), 700, SWAP, SESSION)
        store.append("d", main.take_records())
        return found

    with mock.patch.object(server, "snapshot", while_it_reads):
        new = aside.begin(known, "uuid", at(600))
    assert [record.kind for record in new] == ["snapshot"]
    store.append("d", new)
    server.at = 9000
    for start, found in ((650, "amount fee"), (800, "fee amount")):
        again = SchemaKeeper(server)
        again.begin(store.records("d"), "uuid", at(start), continues=True)
        assert columns(again, "t", start) == found
        assert columns(again, "t", 900) == "fee amount"


def test_a_statement_that_begins_where_the_snapshot_was_taken() -> None:
    """A8: a server without GTIDs writes the next statement right there; it comes behind."""
    server = FakeServer(AMOUNT_FEE, 600)
    keeper = SchemaKeeper(server)
    records = list(keeper.begin([], "uuid", at(600)))
    changes = keeper.applied(head(600, 700), 600, SWAP, SESSION)
    assert [change.table for change in changes] == ["t"], "and not all tables of the snapshot"
    records += keeper.take_records()
    server.at = 9000
    again = SchemaKeeper(server)
    again.begin(records, "uuid", at(700), continues=True)
    assert columns(again, "t", 700) == columns(keeper, "t", 700) == "fee amount"


def test_a_log_that_began_anew_has_a_number_of_its_own() -> None:
    """A8: records of the old log stay what they were, also at the same places."""
    server = FakeServer(AMOUNT_FEE, 500)
    keeper = SchemaKeeper(server)
    records = list(keeper.begin([], "uuid", at(500)))
    keeper.applied(head(600, 700), 600, SWAP, SESSION)
    records += keeper.take_records()
    server.at, server.sql = 200, "create table db.t (z int)"
    anew = SchemaKeeper(server)
    records += anew.begin(records, "uuid", at(150))
    anew.applied(head(600, 700), 600, SWAP, SESSION)  # of the new log, at the old one's place
    records += anew.take_records()
    assert [record.server for record in records] == ["uuid#1"] * 2 + ["uuid#2"] * 4
    assert (anew.server, present_log(records, "uuid")) == ("uuid#2", "uuid#2")
    server.at = 9000
    later = SchemaKeeper(server)
    assert later.begin(records, "uuid", at(500), continues=True) == ()
    assert columns(later, "t", 500) == "z"


@pytest.mark.parametrize(
    ("before", "now", "is_another"),
    [
        (f"{A_UUID}:1-100", f"{A_UUID}:1-200", False),
        (f"{A_UUID}:1-100", f"{A_UUID}:1-99", True),
        (f"{A_UUID}:1-100", "", True),
        ("", f"{A_UUID}:1-99", False),
        ("0-1-100", "0-1-7", False),  # MariaDB: not told by this
    ],
)
def test_a_server_that_lost_transactions_has_another_log(
    before: str, now: str, is_another: bool
) -> None:
    """A8, A1: after a RESET or a restore the log may have grown beyond all that is known of it."""
    server = FakeServer(AMOUNT_FEE, 500)
    server.gtid = before
    records = SchemaKeeper(server).begin([], "uuid", at(500))
    server.at, server.sql, server.gtid = 9000, "create table db.t (z int)", now
    keeper = SchemaKeeper(server)
    new = keeper.begin(records, "uuid", at(600), continues=True)
    assert len(new) == 2 * is_another  # the catalog, and what it says of the log before it
    assert columns(keeper, "t", 9000) == ("z" if is_another else "amount fee")


def test_another_way_to_compare_names_begins_anew() -> None:
    """A7: lower_case_table_names was changed, or was not asked for by an older version."""
    server = FakeServer("create table db.T (a int)", 500)
    records = SchemaKeeper(server).begin([], "uuid", at(500))
    server.at, server.setting = 700, 1
    keeper = SchemaKeeper(server)
    records += keeper.begin(records, "uuid", at(600), continues=True)
    assert keeper.names == Names(1)
    assert columns(keeper, "t", 900) == columns(keeper, "T", 900) == "a"
    keeper.applied(head(800, 900), 800, "alter table T add b int", SESSION)
    assert columns(keeper, "t", 900) == "a b"
    server.at = 900
    again = SchemaKeeper(server)
    assert again.begin(records, "uuid", at(750), continues=True) == ()
    with pytest.raises(ConfigError, match="is 0, the server's is 1"):
        SchemaKeeper(server, names=Names(0)).begin(records, "uuid", at(750))


def test_records_from_before_logs_had_numbers_are_taken_over() -> None:
    """A8: by the clock once, as they were meant; a snapshot made of statements stood where the last
    of them begins."""
    server = FakeServer(AMOUNT_FEE, 500)
    keeper = SchemaKeeper(server)
    made = list(keeper.begin([], "uuid", at(500)))
    for place, sql in ((600, "alter table t add x int"), (700, "alter table t add y int")):
        keeper.applied(head(place, place + 100), place, sql, SESSION)
        made += keeper.take_records()
    compact = compacted(keeper.history, "uuid", 3.0, (FILE, 700))
    made = [replace(record, server="uuid", recorded_at=n) for n, record in enumerate(made, 1)]
    old_log = replace(made[1], position=650, recorded_at=0.5)
    legacy = [*made, replace(compact, position=700), old_log]
    server.at = 9000
    again = SchemaKeeper(server)
    new = again.begin(legacy, "uuid", at(700), continues=True)
    taken_over = of_log(new, "uuid#1")
    assert [(r.kind, r.position) for r in taken_over][:4] == [
        ("snapshot", 500), ("ddl", 600), ("ddl", 700), ("snapshot", 701),
    ]  # fmt: skip
    for start in (700, 9000):
        later = SchemaKeeper(server)
        assert later.begin([*legacy, *new], "uuid", at(start), continues=True) == ()
        assert columns(later, "t", 9000) == "amount fee x y"


def test_how_logs_are_numbered() -> None:
    assert [numbered_log("u", n) for n in (0, 1, 12)] == ["u", "u#1", "u#12"]
    assert [log_number("u", log) for log in ("u", "u#1", "u#12", "v#1", "u#", "u#0", "u#x")] == [
        0, 1, 12, -1, -1, -1, -1,
    ]  # fmt: skip
    records = [SchemaRecord(log, FILE, 4, "ddl", 1.0, b"") for log in ("u#2", "u", "v#9", "u#10")]
    assert present_log(records, "u") == "u#10"
    assert present_log([], "u") == "u"
