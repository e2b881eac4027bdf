"""The schema history against real servers: after each of many random DDL statements, what the log's
DDL says of every table is what information_schema says."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from ray_canal.canal.generated import EntryProtocol_pb2 as pb
from ray_canal.config import InstanceConfig, SourceConfig
from ray_canal.model.position import EntryPosition
from ray_canal.model.schema_record import SchemaRecord
from ray_canal.model.table_meta import ColumnMeta
from ray_canal.offline import decode_files
from ray_canal.schema.ddl.column_type import column_meta
from ray_canal.schema.event_parser import EventParser
from ray_canal.schema.fit import same_type
from ray_canal.schema.history import SchemaHistory, place_of
from ray_canal.schema.keeper import SchemaKeeper
from ray_canal.schema.names import Names
from ray_canal.schema.records import load_history, snapshot_record
from ray_canal.schema.registry import SchemaRegistry
from ray_canal.source.catalog_tables import CatalogTables
from ray_canal.source.open_source import open_source
from ray_canal.views.arrow import batches
from ray_canal.views.entries import iter_entries
from tests.ddl_maker import SCHEMAS, TYPES_OF_BUILD, DdlMaker, quoted
from tests.newer_ddl import NewerDdlMaker
from tests.servers import Server, start

STATEMENTS = 60
Step = tuple[str, int, str, "Described"]
Described = dict[tuple[str, str], list[ColumnMeta]]

_COLUMNS = (
    "SELECT c.TABLE_SCHEMA, c.TABLE_NAME, c.COLUMN_NAME, c.COLUMN_TYPE, c.CHARACTER_SET_NAME,"
    " c.IS_NULLABLE, c.EXTRA, k.COLUMN_NAME IS NOT NULL, c.DATA_TYPE"
    " FROM information_schema.COLUMNS c JOIN information_schema.TABLES t USING"
    " (TABLE_SCHEMA, TABLE_NAME) LEFT JOIN information_schema.KEY_COLUMN_USAGE k ON"
    " k.CONSTRAINT_NAME = 'PRIMARY' AND k.TABLE_SCHEMA = c.TABLE_SCHEMA AND"
    " k.TABLE_NAME = c.TABLE_NAME AND k.COLUMN_NAME = c.COLUMN_NAME"
    f" WHERE c.TABLE_SCHEMA IN {SCHEMAS} AND t.TABLE_TYPE <> 'VIEW'"
    " ORDER BY 1, 2, c.ORDINAL_POSITION"
)


def described(cursor: Any) -> Described:
    """Every table of the test's schemas, as the server describes it."""
    cursor.execute(_COLUMNS)
    found: Described = {}
    for schema, table, name, kind, charset, nullable, extra, is_key, _ in cursor.fetchall():
        text = kind.decode() if isinstance(kind, bytes) else kind
        column = column_meta(
            name,
            text,
            charset=charset or "",
            nullable=nullable == "YES",
            is_key=bool(is_key),
            visible="INVISIBLE" not in extra.upper(),
        )
        found.setdefault((schema, table), []).append(column)
    return found


def run_random(
    server: Server, seed: int, count: int, made_by: type[DdlMaker] = DdlMaker
) -> tuple[list[Step], str, int]:
    """Run random DDL; after each statement (file, position, sql, the server's description)."""
    maker = made_by(server.kind, seed, TYPES_OF_BUILD.get(server.build, ()))
    steps = []
    with contextlib.closing(server.connect()) as connection, connection.cursor() as cursor:
        for sql in ("SET SESSION sql_mode=''", "SET SESSION foreign_key_checks=0"):
            cursor.execute(sql)
        if server.is_mariadb:
            cursor.execute("SET SESSION system_versioning_alter_history=KEEP")
        cursor.execute("FLUSH BINARY LOGS")
        file, start = server.position()
        for schema in SCHEMAS:
            cursor.execute(f"DROP DATABASE IF EXISTS {schema}")
            cursor.execute(f"CREATE DATABASE {schema} CHARACTER SET utf8mb4")
        cursor.execute(f"USE {SCHEMAS[0]}")
        accepted = 0
        while accepted < count:
            sql = maker.statement()
            with contextlib.suppress(pymysql.err.MySQLError):
                cursor.execute(sql)
                accepted += 1
                now = described(cursor)
                maker.tables = {name: [c.name for c in columns] for name, columns in now.items()}
                steps.append((*server.position(), sql, now))
                insert_defaults(cursor, maker)
    return steps, file, start


def insert_defaults(cursor: Any, maker: DdlMaker) -> None:
    """A row in one table, so that the log has its TABLE_MAP."""
    name, _ = maker.some_table()
    with contextlib.suppress(pymysql.err.MySQLError):
        cursor.execute(f"INSERT INTO {name} VALUES ()")


def chunks(path: Path, position: int = 4) -> Iterator[Any]:
    config = {"destination": "x", "source": {"files": [str(path)]}, "chunk_bytes": 1 << 16}
    source = open_source(InstanceConfig.model_validate(config))
    source.open(EntryPosition(path.name, position))
    try:
        while (chunk := source.read(0.0, 0.0)) is not None:
            yield chunk
    finally:
        source.close()


def differences(mine: list[ColumnMeta], theirs: list[ColumnMeta]) -> str:
    """What differs between two tables' columns; empty if nothing does."""
    if [c.name for c in mine] != [c.name for c in theirs]:
        return f"names {[c.name for c in mine]}, server {[c.name for c in theirs]}"
    for one, other in zip(mine, theirs, strict=True):
        facts = ["visible", "nullable", "is_key"]
        if not (one.labels and one.charset in ("binary", "")):  # MySQL 9.7 has its own idea there
            facts.append("charset")
        if not same_type(one, other) or any(getattr(one, f) != getattr(other, f) for f in facts):
            return f"column {one}, server {other}"
    return ""


@pytest.mark.parametrize(
    ("made_by", "seed"),
    [
        pytest.param(DdlMaker, 1, marks=pytest.mark.soak),  # NewerDdlMaker makes these, too
        (NewerDdlMaker, 2),
        *(pytest.param(NewerDdlMaker, seed, marks=pytest.mark.soak) for seed in range(3, 11)),
    ],
)
def test_after_each_ddl_the_history_is_the_catalog(
    server: Server, made_by: type[DdlMaker], seed: int
) -> None:
    with server.without_row_metadata():
        steps, file, _ = run_random(server, seed, STATEMENTS, made_by)
    history = check_every_step(server.datadir / file, steps, Names(0))
    check_snapshot(server, steps[-1][3], history)
    check_restarts(server.datadir / file, steps, seed)


def check_every_step(path: Path, steps: list[Step], names: Names) -> SchemaHistory:
    """Read the log; at each step the history is what the server said. Returns the last one."""
    keeper = SchemaKeeper(None, names=names)
    parser = EventParser(SchemaRegistry(), keeper)
    left = list(reversed(steps))
    compared = 0
    for chunk in chunks(path):
        info, _ = parser.decode_chunk(chunk)
        assert info.failure is None, info.failure
        while left and left[-1][1] <= chunk.head.end_position:
            compared += check_step(left.pop(), keeper.history)
    assert not left
    assert compared > len(steps)
    return keeper.history


def check_step(step: Step, history: SchemaHistory) -> int:
    """How many tables were compared."""
    journal_name, position, sql, expected = step
    known = {
        (s.meta.schema, s.meta.table): s
        for s in history.states_at(place_of(journal_name, position - 1))
        if s.meta.schema in SCHEMAS
    }
    problems = [s.problem for s in known.values() if s.problem]
    assert not problems, f"{problems} after {sql}"
    assert known.keys() == expected.keys(), f"{known.keys() ^ expected.keys()} after {sql}"
    for name, state in known.items():
        columns = list(state.columns)
        mine = columns[:-2] if state.hidden_period else columns
        problem = differences(mine, expected[name])
        assert not problem, f"{quoted(name[1])} after {sql}: {problem}"
    return len(known)


def check_snapshot(server: Server, expected: Described, history: SchemaHistory) -> None:
    """The catalog's snapshot says what information_schema said, and hides what the history hides
    (MariaDB: a column for each of its keys that is a hash)."""
    config = SourceConfig(address=server.address, username="root")
    catalog = CatalogTables(config)
    snapshot = catalog.snapshot()
    found = {(s.meta.schema, s.meta.table): s for s in snapshot.tables}
    assert {name for name in found if name[0] in SCHEMAS} == expected.keys()
    for name, columns in expected.items():
        problem = differences(list(found[name].columns), columns)
        assert not problem, f"{quoted(name[1])}: {problem}"
        tracked = history.tracked(name, place_of(snapshot.journal_name, snapshot.position))
        assert tracked is not None
        assert found[name].meta.hidden == tracked.meta.hidden, (found[name].keys, tracked.keys)
        (state,) = catalog.table_now(*name).tables
        assert state == found[name]
    assert snapshot.charsets.keys() >= {schema for schema, _ in expected}
    assert (snapshot.journal_name, snapshot.position) == server.position()
    catalog.close()


def check_restarts(path: Path, steps: list[Step], seed: int, setting: int = 0) -> None:
    """From the records of the first run, a run from any old place gives the same bytes."""
    keeper = SchemaKeeper(None, names=Names(setting))
    keeper.begin([], "server", EntryPosition(path.name, 4))
    whole, records = entries_from(path, keeper, 4)
    assert len(whole) > 100
    rows = sum(1 for entry in whole if entry[1])
    assert rows > 20
    chooser = random.Random(seed)
    for _, position, *_ in chooser.sample(steps, 5):
        again = SchemaKeeper(None, names=Names(setting))
        assert again.begin(records, "server", EntryPosition(path.name, position)) == ()
        part, new = entries_from(path, again, position)
        assert part == [entry for entry in whole if entry[0] >= position]
        assert new == []


def entries_from(
    path: Path, keeper: SchemaKeeper, position: int
) -> tuple[list[tuple[int, bool, bytes]], list[SchemaRecord]]:
    """(offset, whether it has rows, bytes) of each entry, and the schema records."""
    parser = EventParser(SchemaRegistry(), keeper)
    entries, records = [], []
    for chunk in chunks(path, position):
        info, decoded = parser.decode_chunk(chunk)
        assert info.failure is None, info.failure
        records += info.records
        for entry in iter_entries(decoded, 0, len(info.entries)):
            change = pb.RowChange.FromString(entry.storeValue) if entry.entryType == 2 else None
            has_rows = change is not None and bool(change.rowDatas)
            offset = entry.header.logfileOffset
            entries.append((offset, has_rows, entry.SerializeToString(deterministic=True)))
    return entries, records


def test_ddl_between_a_start_in_the_past_and_the_catalogs_snapshot(server: Server) -> None:
    """A table that was altered in between is not known before that, however well the columns that
    it has now would fit; all others are, from the start on."""
    server.execute("DROP DATABASE IF EXISTS past", "CREATE DATABASE past")
    server.execute(
        "CREATE TABLE past.calm (n INT)", "CREATE TABLE past.altered (a INT, b INT)",
        "CREATE TABLE past.gone (x INT)",
    )  # fmt: skip
    server.execute("FLUSH BINARY LOGS")
    file, start = server.position()
    with server.without_row_metadata():
        server.execute(
            "INSERT INTO past.calm VALUES (1)",
            "INSERT INTO past.altered VALUES (1, 2)",
            "INSERT INTO past.gone VALUES (1)",
            "ALTER TABLE past.calm ADD INDEX (n)",
            "ALTER TABLE past.altered CHANGE b c INT",
            "INSERT INTO past.altered VALUES (3, 4)",
            "DROP TABLE past.gone",
            "INSERT INTO past.calm VALUES (2)",
        )
        catalog = CatalogTables(SourceConfig(address=server.address, username="root"))
        keeper = SchemaKeeper(catalog, "quarantine")
        records = list(keeper.begin([], "server", EntryPosition(file, start)))
        catalog.close()
    whole = past_rows(server.datadir / file, keeper, start)
    assert whole == (
        [("calm", ["n"]), ("altered", ["a", "c"]), ("calm", ["n"])],
        {("past", "altered"), ("past", "gone")},
    )
    again = SchemaKeeper(None, "quarantine")
    again.begin(records, keeper.server, EntryPosition(file, start))
    assert past_rows(server.datadir / file, again, start) == whole


def past_rows(
    path: Path, keeper: SchemaKeeper, start: int
) -> tuple[list[tuple[str, list[str]]], set[tuple[str, str]]]:
    """(table, its columns) of each row that is decoded, and the tables in quarantine."""
    parser = EventParser(SchemaRegistry(), keeper)
    rows, held = [], set()
    for chunk in chunks(path, start):
        info, decoded = parser.decode_chunk(chunk)
        assert info.failure is None, info.failure
        held |= {name for each in info.quarantined for name in each.tables}
        for entry in iter_entries(decoded, 0, len(info.entries)):
            if entry.entryType == pb.ROWDATA and entry.header.schemaName == "past":
                change = pb.RowChange.FromString(entry.storeValue)
                for row in change.rowDatas:
                    names = [column.name for column in row.afterColumns]
                    rows.append((entry.header.tableName, names))
    return rows, held


@pytest.mark.parametrize(("old", "new"), [("zz-old", "aa-new"), ("aa-old", "zz-new")])
def test_ddl_over_a_change_of_the_files_base_name(tmp_path: Path, old: str, new: str) -> None:
    """b14: log_bin was changed, one index has both names; the log's order is the index's."""
    options = {"log-bin": old, "log-bin-index": "all"}
    with start("mysql56", tmp_path / "server", options) as server:
        server.execute("CREATE DATABASE moved", "CREATE TABLE moved.t (a INT, b INT)",
                       "CREATE TABLE moved.calm (x INT)")  # fmt: skip
        server.execute("FLUSH BINARY LOGS")
        file, position = server.position()
        server.execute("INSERT INTO moved.calm VALUES (1)", "INSERT INTO moved.t VALUES (1, 2)")
        server.restart(log_bin=new)
        server.execute("ALTER TABLE moved.t CHANGE a b INT, CHANGE b a INT",
                       "INSERT INTO moved.t VALUES (3, 4)",
                       "INSERT INTO moved.calm VALUES (2)")  # fmt: skip
        last, _ = server.position()
        assert (file.partition(".")[0], last.partition(".")[0]) == (old, new)
        catalog = CatalogTables(SourceConfig(address=server.address, username="root"))
        keeper = SchemaKeeper(catalog, "quarantine")
        records = keeper.begin([], "server", EntryPosition(file, position))
        again = SchemaKeeper(catalog, "quarantine")
        again.begin(records, "server", EntryPosition(file, position), continues=True)
        for each in (keeper, again):
            parser = EventParser(SchemaRegistry(), each)
            found, held = [], set()
            for chunk in catalog.chunks(file, last):
                info, decoded = parser.decode_chunk(chunk)
                assert info.failure is None, info.failure
                held |= {name for each in info.quarantined for name in each.tables}
                found += [
                    (batch.schema.metadata[b"canal.table"].decode(), row["after"])
                    for batch in batches(decoded, 0, len(info.entries))
                    for row in batch.to_pylist()
                ]
            assert sorted(found, key=str) == [
                ("calm", {"x": 1}), ("calm", {"x": 2}), ("t", {"b": 3, "a": 4}),
            ]  # fmt: skip
            assert held == {("moved", "t")}, "before the statement its columns are not known"
        catalog.close()


def test_a_part_of_the_log_that_nobody_read(tmp_path: Path) -> None:
    """A8: reading went on at the log's end, past a statement, and applied one behind it. Whoever
    begins before that part has the columns of the time."""
    with start("mysql56", tmp_path / "server") as server:
        server.execute("CREATE DATABASE gap", "CREATE TABLE gap.t (a INT, b INT)")
        server.execute("FLUSH BINARY LOGS")
        first = EntryPosition(*server.position())
        catalog = CatalogTables(SourceConfig(address=server.address, username="root"))
        records = [*SchemaKeeper(catalog).begin([], "server", first)]
        server.execute("ALTER TABLE gap.t CHANGE a b INT, CHANGE b a INT",
                       "INSERT INTO gap.t VALUES (1, 2)", "FLUSH BINARY LOGS")  # fmt: skip
        latest, behind = SchemaKeeper(catalog), EntryPosition(*server.position())
        records += latest.begin(records, "server", behind)
        server.execute("ALTER TABLE gap.t ADD c INT", "INSERT INTO gap.t VALUES (3, 4, 5)")
        parser = EventParser(SchemaRegistry(), latest)
        for chunk in catalog.chunks(behind.journal_name, behind.journal_name):
            records += parser.decode_chunk(chunk)[0].records
        again = SchemaKeeper(catalog)
        again.begin(records, "server", first, continues=True)
        parser, found = EventParser(SchemaRegistry(), again), []
        for chunk in catalog.chunks(first.journal_name, behind.journal_name):
            info, decoded = parser.decode_chunk(chunk)
            assert info.failure is None, info.failure
            for batch in batches(decoded, 0, len(info.entries)):
                found += [row["after"] for row in batch.to_pylist()]
        assert found == [{"b": 1, "a": 2}, {"b": 3, "a": 4, "c": 5}]
        catalog.close()


def test_a_generated_invisible_key_stays_the_first_column(mysql97: Server) -> None:
    """Whatever ALTER TABLE says, with the setting on or off, where the log tells no names."""
    mysql97.execute("CREATE DATABASE IF NOT EXISTS gipk", "FLUSH BINARY LOGS")
    path = mysql97.binlogs()[-1]
    with mysql97.without_row_metadata():
        for mode in (1, 0):
            mysql97.execute(
                "DROP TABLE IF EXISTS gipk.t",
                "SET sql_generate_invisible_primary_key=1",
                "CREATE TABLE gipk.t (v INT)",
                f"SET sql_generate_invisible_primary_key={mode}",
                "ALTER TABLE gipk.t ADD w BIGINT UNSIGNED FIRST, MODIFY v INT FIRST",
                "INSERT INTO gipk.t (w, v) VALUES (60, 7)",
            )
    mysql97.execute("FLUSH BINARY LOGS")
    found = decode_files([path], tables=r"gipk\.t")
    rows = [row for batch in found for row in batch["after"].to_pylist() if row is not None]
    assert rows == [{"my_row_id": 1, "v": 7, "w": 60}] * 2
    assert mysql97.execute("SELECT my_row_id, w, v FROM gipk.t") == ((1, 60, 7),)


def test_tables_that_are_alike_share_their_columns(server: Server) -> None:
    """A server of many tenants has the same tables thousands of times; so has a history that is
    loaded again."""
    server.execute(
        *(f"DROP DATABASE IF EXISTS {name}" for name in ("tenant1", "tenant2")),
        *(f"CREATE DATABASE {name}" for name in ("tenant1", "tenant2")),
        *(f"CREATE TABLE {name}.t (id INT PRIMARY KEY, e ENUM('a'), d DECIMAL(5, 2) NOT NULL)"
          for name in ("tenant1", "tenant2")),
    )  # fmt: skip
    catalog = CatalogTables(SourceConfig(address=server.address, username="root"))
    snapshot = catalog.snapshot()
    catalog.close()
    server.execute("DROP DATABASE tenant1", "DROP DATABASE tenant2")
    record = snapshot_record("server#1", 1.0, snapshot, 0)
    place = place_of(snapshot.journal_name, snapshot.position)
    history = load_history([record], "server#1", place)
    for tables in (snapshot.tables, tuple(history.states_at(place))):
        one, other = (each.meta for each in tables if each.meta.schema.startswith("tenant"))
        assert [column.name for column in one.columns] == ["id", "e", "d"]
        assert one.columns is other.columns
