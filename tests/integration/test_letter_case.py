"""Real servers with lower_case_table_names=1: statements in random letters."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import pytest

from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.config import InstanceConfig, SourceConfig
from ray_canal.errors import TableMetaMismatch
from ray_canal.filter import TableFilter
from ray_canal.model.position import EntryPosition
from ray_canal.model.schema_record import SchemaChange
from ray_canal.offline import decode_files
from ray_canal.schema.event_parser import EventParser
from ray_canal.schema.keeper import SchemaKeeper
from ray_canal.schema.names import Names, lowered
from ray_canal.schema.registry import SchemaRegistry
from ray_canal.source.catalog_tables import CatalogTables
from ray_canal.source.open_source import open_source
from ray_canal.views.arrow import batches
from tests.ddl_maker import LetterCaseMaker, in_any_case
from tests.integration.test_schema_history import (
    check_every_step,
    check_restarts,
    check_snapshot,
    run_random,
)
from tests.servers import Server

Row = dict[str, Any]
STEPS = 60
_PLANE = [code for code in range(0x80, 0x10000) if not 0xD800 <= code <= 0xDFFF]


@pytest.mark.parametrize("seed", [2])
def test_after_each_ddl_the_history_is_the_catalog(lower_case_server: Server, seed: int) -> None:
    """A7, b1: what the log's DDL says of tables, whatever letters it is written in, is what the
    catalog says; a restart at any old place gives the same bytes."""
    server = lower_case_server
    with server.without_row_metadata():
        steps, file, _ = run_random(server, seed, STEPS, LetterCaseMaker)
    assert sum(sql != sql.lower() for *_, sql, _ in steps) > STEPS / 2
    history = check_every_step(server.datadir / file, steps, Names(1))
    check_snapshot(server, steps[-1][3], history)
    check_restarts(server.datadir / file, steps, seed, 1)


class Shop:
    """Tables of whole numbers whose columns are renamed, swapped and moved, in random letters."""

    def __init__(self, server: Server, cursor: Any, seed: int) -> None:
        self.random = random.Random(seed)
        self.cursor = cursor
        self.has_rename_column = server.kind != "mysql56"
        self.tables: dict[str, list[str]] = {}
        self.expected: list[tuple[str, Row]] = []

    def any_case(self, name: str) -> str:
        return in_any_case(self.random, name)

    def step(self) -> None:
        """One statement that changes a table, and a row of it."""
        if len(self.tables) < 3:
            self.create()
        self.random.choice([self.move, self.swap, self.rename, self.rename_table, self.drop])()
        if self.tables:
            self.insert(self.random.choice(sorted(self.tables)))

    def run(self, sql: str) -> None:
        self.cursor.execute(sql)

    def name(self, table: str) -> str:
        schema = self.any_case("shop")
        return self.random.choice([self.any_case(table), f"`{schema}`.`{self.any_case(table)}`"])

    def some(self) -> str:
        return self.random.choice(sorted(self.tables))

    def create(self) -> None:
        table = self.random.choice(["orders", "t_user", "ärger", "σοφοσ", "ёж"])
        if table not in self.tables:
            self.run(f"CREATE TABLE {self.name(table)} (id INT, a INT, b INT, c INT)")
            self.tables[table] = ["id", "a", "b", "c"]

    def move(self) -> None:
        table = self.some()
        column, other = self.random.sample(self.tables[table][1:], 2)
        self.run(f"ALTER TABLE {self.name(table)} MODIFY {self.any_case(column)} INT AFTER {other}")

    def swap(self) -> None:
        table = self.some()
        one, two = self.random.sample(self.tables[table][1:], 2)
        self.run(f"alter table {self.name(table)} change {one} {two} int, change {two} {one} int")

    def rename(self) -> None:
        table = self.some()
        column = self.random.choice(self.tables[table][1:])
        new = f"n{self.random.randrange(10**6)}"
        how = f"CHANGE {column} {new} INT"
        if self.has_rename_column and self.random.random() < 0.5:
            how = f"RENAME COLUMN {column} TO {new}"
        self.run(f"ALTER TABLE {self.name(table)} {how}")
        self.tables[table][self.tables[table].index(column)] = new

    def rename_table(self) -> None:
        table, new = self.some(), f"made_{self.random.randrange(3)}"
        if new not in self.tables:
            self.run(f"RENAME TABLE {self.name(table)} TO {self.name(new)}")
            self.tables[new] = self.tables.pop(table)

    def drop(self) -> None:
        table = self.some()
        self.run(f"DROP TABLE IF EXISTS {self.name('nothing')}, {self.name(table)}")
        del self.tables[table]

    def insert(self, table: str) -> None:
        values = ", ".join(str(self.random.randrange(10**9)) for _ in self.tables[table])
        number = len(self.expected) + 1
        self.run(f"INSERT INTO {self.name(table)} VALUES ({values})")
        self.run(f"UPDATE {self.name(table)} SET id = {number} ORDER BY id = {number} LIMIT 1")
        self.cursor.execute(f"SELECT * FROM {self.name(table)} WHERE id = {number}")
        (row,) = self.cursor.fetchall()
        names = [description[0] for description in self.cursor.description]
        self.expected.append((table, dict(zip(names, row, strict=True))))
        self.run(f"DELETE FROM {self.name(table)}")


@contextlib.contextmanager
def shop(server: Server, seed: int) -> Iterator[Shop]:
    with contextlib.closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("DROP DATABASE IF EXISTS SHOP")
        cursor.execute("CREATE DATABASE Shop")
        cursor.execute("USE sHOP")
        yield Shop(server, cursor, seed)


def updated(found: DecodedChunk, count: int) -> Iterator[tuple[str, Row]]:
    for batch in batches(found, 0, count):
        if batch.schema.metadata[b"canal.schema"] == b"shop":
            table = batch.schema.metadata[b"canal.table"].decode()
            for row in batch.to_pylist():
                if row["event_type"] == "UPDATE":
                    yield table, row["after"]


def number(found: tuple[str, Row]) -> int:
    """Batches hold a table's rows each, so those of two tables are not in the log's order."""
    return int(found[1]["id"])


def test_rows_are_what_select_shows(lower_case_server: Server) -> None:
    """A7, b1: read from the running server, by catalog and DDL, without row metadata; the second
    half by a history that was loaded from its records."""
    server = lower_case_server
    with server.without_row_metadata(), shop(server, 7) as made:
        for _ in range(STEPS // 3):
            made.step()
        server.execute("FLUSH BINARY LOGS")
        file, start = server.position()
        first = len(made.expected)
        config = SourceConfig(address=server.address, username="root")
        with contextlib.closing(CatalogTables(config)) as catalog:
            records = SchemaKeeper(catalog).begin([], "server", EntryPosition(file, start))
            for _ in range(STEPS):
                made.step()
            keeper = SchemaKeeper(catalog)
            parser = EventParser(SchemaRegistry(), keeper)
            parser.begin(records, "server", EntryPosition(file, start), continues=True)
        rows, changes = read(server, parser, file, start)
    assert keeper.names == Names(1)
    assert sorted(rows, key=number) == made.expected[first:]
    assert len(rows) > STEPS / 2
    names = {change.table for change in changes}
    assert names >= {"orders", "t_user"}
    assert names == {lowered(name) for name in names}


def read(
    server: Server, parser: EventParser, file: str, start: int
) -> tuple[list[tuple[str, Row]], list[SchemaChange]]:
    config = {"destination": "x", "source": {"files": [str(server.datadir / file)]}}
    source = open_source(InstanceConfig.model_validate(config))
    source.open(EntryPosition(file, start))
    rows: list[tuple[str, Row]] = []
    changes: list[SchemaChange] = []
    while (raw := source.read(0.0, 0.0)) is not None:
        info, decoded = parser.decode_chunk(raw)
        assert info.failure is None, info.failure
        changes += decoded.layout.changes
        rows += updated(decoded, len(info.entries))
        admitted = info.admitted(TableFilter(r"SHOP\..*").admits)
        shown = [b.num_rows for b in batches(decoded, 0, len(info.entries), admitted)]
        assert sum(shown) == sum(b.num_rows for b in batches(decoded, 0, len(info.entries)))
    source.close()
    return rows, changes


def test_binlog_files_alone_need_to_be_told(lower_case_server: Server) -> None:
    """A7: a file does not say how its server compares names; --lower-case-table-names does."""
    server = lower_case_server
    with server.without_row_metadata():
        server.execute("FLUSH BINARY LOGS")
        file, _ = server.position()
        with shop(server, 9) as made:
            for _ in range(STEPS // 3):
                made.step()
    path = server.datadir / file
    found = [
        (batch.schema.metadata[b"canal.table"].decode(), row["after"])
        for batch in decode_files([path], lower_case_table_names=1)
        for row in batch.to_pylist()
        if row["event_type"] == "UPDATE"
    ]
    assert sorted(found, key=number) == made.expected
    with pytest.raises(TableMetaMismatch, match="--lower-case-table-names"):
        list(decode_files([path]))


def test_lower_case_is_the_servers(lower_case_server: Server) -> None:
    """A7: each character of the basic plane, as the server's LOWER of identifiers has it; and names
    of tables of all those that it knows."""
    charset = "utf8" if lower_case_server.kind == "mysql56" else "utf8mb3"
    folded: dict[int, int] = {}
    with contextlib.closing(lower_case_server.connect()) as connection:
        cursor = connection.cursor()
        for at in range(0, len(_PLANE), 500):
            some = _PLANE[at : at + 500]
            asked = (
                f"HEX(CONVERT(LOWER(CONVERT(_utf16 X'{code:04X}' USING {charset})"
                f" COLLATE {charset}_general_ci) USING utf16))"
                for code in some
            )
            cursor.execute(f"SELECT {', '.join(asked)}")
            texts = cursor.fetchone()
            folded |= {code: int(text, 16) for code, text in zip(some, texts, strict=True)}
        assert folded == {code: ord(lowered(chr(code))) for code in _PLANE}
        upper = [chr(code) for code, low in folded.items() if code != low]
        cursor.execute("CREATE DATABASE IF NOT EXISTS letters")
        for at in range(0, len(upper), 16):
            name = "".join(upper[at : at + 16])
            cursor.execute(f"CREATE TABLE letters.`{name}` (a INT)")
            cursor.execute("SHOW TABLES IN letters")
            assert cursor.fetchall() == ((lowered(name),),)
            cursor.execute(f"DROP TABLE letters.`{name}`")
