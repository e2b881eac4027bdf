"""Which records are of one log: clocks that step back, upstreams side by side, logs that begin
again, servers that compare names in another way since."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import pytest

from ray_canal.binlog.chunk import ChunkHead
from ray_canal.errors import ConfigError
from ray_canal.meta.schema_store import MemorySchemaStore
from ray_canal.model.position import EntryPosition
from ray_canal.model.schema_record import CatalogSnapshot, SchemaRecord
from ray_canal.schema import keeper as schema_keeper
from ray_canal.schema.history import place_of
from ray_canal.schema.keeper import SchemaKeeper
from ray_canal.schema.names import Names
from ray_canal.schema.records import compacted, log_number, numbered_log, of_log, present_log
from tests.unit.schema.test_keeper import FILE, SESSION, FakeServer, columns, head

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
    again = SchemaKeeper(server)
    records += again.begin(records, "uuid", at(150))
    again.applied(head(600, 700), 600, SWAP, SESSION)  # of the new log, at the old one's place
    records += again.take_records()
    assert [record.server for record in records] == ["uuid#1"] * 2 + ["uuid#2"] * 4
    assert (again.server, present_log(records, "uuid")) == ("uuid#2", "uuid#2")
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


@pytest.mark.parametrize(("now_s", "is_another"), [(1_700_000_000, False), (1_800_000_000, True),
                                                   (0, False)])  # fmt: skip
@pytest.mark.parametrize(
    "gtids", [("", ""), ("0-1-500", "0-1-900"), (f"{A_UUID}:1-5", f"{A_UUID}:1-9")]
)
def test_a_file_that_was_made_again_is_of_another_log(
    gtids: tuple[str, str], now_s: int, is_another: bool
) -> None:
    """A8, A1: a log that began again and has outgrown the old one is told by when the file of the
    newest snapshot was created."""
    server = FakeServer(AMOUNT_FEE, 500)
    server.gtid = gtids[0]
    server.created = {FILE: 1_700_000_000}
    records = SchemaKeeper(server).begin([], "uuid", at(500))
    server.at, server.sql, server.created = 9000, "create table db.t (z int)", {FILE: now_s}
    server.gtid = gtids[1]
    keeper = SchemaKeeper(server)
    keeper.begin(records, "uuid", at(600), continues=True)
    assert columns(keeper, "t", 9000) == ("z" if is_another else "amount fee")


@pytest.mark.parametrize(("old", "new"), [("mysql-bin", "binlog"), ("binlog", "mysql-bin")])
def test_files_that_were_given_another_base_name(old: str, new: str) -> None:
    """b14: log_bin was changed; files of the old name come first, whatever the names are."""
    server = FakeServer(AMOUNT_FEE, 500)
    server.file = f"{old}.000009"
    server.log_files = [server.file]
    keeper = SchemaKeeper(server)
    records = list(keeper.begin([], "uuid", EntryPosition(server.file, 500)))
    server.file, server.at = f"{new}.000001", 9000
    server.log_files.append(server.file)
    chunks = ((old, 9, "alter table t add x int"), (new, 1, SWAP))
    for base, number, sql in chunks:
        chunk = ChunkHead(0, f"{base}.{number:06}", 600, 700)
        assert [each.table for each in keeper.applied(chunk, 600, sql, SESSION)] == ["t"]
        records += keeper.take_records()
    places = {(f"{old}.000009", 550): "amount fee", (f"{old}.000009", 700): "amount fee x",
              (f"{new}.000001", 4): "amount fee x", (f"{new}.000001", 700): "fee amount x"}
    for start in places:
        again = SchemaKeeper(server)
        assert again.begin(records, "uuid", EntryPosition(*start), continues=True) == ()
        for place, expected in places.items():
            state = again.history.at("db", "t", place_of(*place))
            if list(places).index(place) >= list(places).index(start):
                assert state is not None
                assert " ".join(column.name for column in state.columns) == expected


@pytest.mark.parametrize(
    ("read_up_to", "start", "goes_on"),
    [("zz.000009", "aa.000001:4", True), ("zz.000009", "aa.000001:200", False),
     ("zz.000009", "aa.000002:4", False), ("zz.000008", "aa.000001:4", False),
     ("gone.000009", "aa.000001:4", False)],
)  # fmt: skip
def test_what_is_known_goes_on_in_files_of_another_name(
    read_up_to: str, start: str, goes_on: bool
) -> None:
    """b14: all files of the old name were read, so nothing lies between; else the catalog is."""
    server = FakeServer(AMOUNT_FEE, 500)
    server.file, server.log_files = "zz.000009", ["zz.000008", "zz.000009"]
    records = SchemaKeeper(server).begin([], "uuid", EntryPosition("zz.000009", 500))
    server.file, server.sql, server.at = "aa.000002", "create table db.t (z int)", 9000
    server.log_files += ["aa.000001", "aa.000002"]
    keeper = SchemaKeeper(server)
    name, _, position = start.partition(":")
    before = [EntryPosition(read_up_to, 900)]
    begins = EntryPosition(name, int(position))
    new = keeper.begin(records, "uuid", begins, before=before)
    assert (new == ()) == goes_on
    state = keeper.history.at("db", "t", place_of("aa.000002", 9500))
    assert state is not None
    assert [column.name for column in state.columns] == (["amount", "fee"] if goes_on else ["z"])


def test_a_catch_up_behind_a_reset_uses_what_was_learned_since() -> None:
    """A1: a subscriber whose cursor is of the old log comes by its own stream when the others read
    the new one already; what they go on to record counts."""
    server = FakeServer(AMOUNT_FEE, 500)
    server.created = {FILE: 1_700_000_000}
    old = SchemaKeeper(server).begin([], "uuid", at(500))
    server.created, server.sql, server.at = {FILE: 1_800_000_000}, AMOUNT_FEE, 700
    main = SchemaKeeper(server)
    records = [*old, *main.begin(old, "uuid", at(600), other_log=True)]
    assert main.server == "uuid#2"
    catch_up = SchemaKeeper(server)
    records += catch_up.begin(records, "uuid", at(650), other_log=True)
    assert catch_up.server == "uuid#2"
    main.applied(head(800, 900), 800, SWAP, SESSION)
    records += main.take_records()
    server.at = 9000
    again = SchemaKeeper(server)
    again.begin(records, "uuid", at(900), continues=True)
    assert columns(again, "t", 900) == "fee amount"


def test_files_of_two_names_that_no_index_lists() -> None:
    """b14: which of two older base names came first is not guessed: the catalog is read."""
    server = FakeServer(AMOUNT_FEE, 500)
    server.file, server.log_files = "zz.000009", ["zz.000009"]
    keeper = SchemaKeeper(server)
    records = list(keeper.begin([], "uuid", EntryPosition("zz.000009", 500)))
    assert keeper.applied(ChunkHead(0, "aa.000001", 600, 700), 600, SWAP, SESSION)
    records += keeper.take_records()
    server.file, server.sql, server.at = "mm.000001", "create table db.t (z int)", 9000
    server.log_files = [server.file]
    again = SchemaKeeper(server)
    again.begin(records, "uuid", EntryPosition("mm.000001", 9000), continues=True)
    state = again.history.at("db", "t", place_of("mm.000001", 9500))
    assert state is not None
    assert [column.name for column in state.columns] == ["z"]


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
