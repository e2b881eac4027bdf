"""The key of a table is the same, whatever its schema comes from: row metadata names a unique key
over columns that are NOT NULL as the primary one where a table has none."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterator

import pytest

from ray_canal.config import SourceConfig
from ray_canal.model.position import EntryPosition
from ray_canal.schema.event_parser import EventParser
from ray_canal.schema.keeper import LiveCatalog, SchemaKeeper
from ray_canal.schema.registry import SchemaRegistry
from ray_canal.source.catalog_tables import CatalogTables
from ray_canal.views.arrow import batches
from tests.integration.test_schema_history import chunks
from tests.servers import Server

TABLES = {
    "one": "(v INT, k INT NOT NULL, UNIQUE KEY (k))",
    "two": "(v INT, k INT NOT NULL UNIQUE, l INT NOT NULL, UNIQUE KEY a (l, k))",
    "real_one": "(v INT NOT NULL UNIQUE, k INT PRIMARY KEY)",
    "none": "(v INT, k INT, UNIQUE KEY (k))",
}
KEYS = {"one": [], "two": [], "real_one": ["k"], "none": []}
CHANGES = ("ADD COLUMN w INT", "DROP PRIMARY KEY", "ADD PRIMARY KEY (v)")


def keys_of_rows(
    keeper: SchemaKeeper | None, server: Server, file: str, start: int
) -> Iterator[tuple[str, list[str]]]:
    """Table and key of the rows of each chunk."""
    parser = EventParser(SchemaRegistry(), keeper)
    for chunk in chunks(server.datadir / file, start):
        info, decoded = parser.decode_chunk(chunk)
        assert info.failure is None, info.failure
        for batch in batches(decoded, 0, len(info.entries)):
            notes = batch.schema.metadata
            yield notes[b"canal.table"].decode(), json.loads(notes[b"canal.key"])


def insert(server: Server, schema: str) -> None:
    for table in TABLES:
        server.execute(f"INSERT INTO {schema}.{table} (v, k) VALUES ({uuid.uuid4().int >> 100}, 1)")


@pytest.mark.parametrize("known_by", ["statements", "catalog"])
def test_a_unique_key_is_none_with_row_metadata_and_without(
    known_by: str, server: Server, schema: str
) -> None:
    """It was one with row metadata alone, so `$pk$` and the key of a queue's messages changed with
    binlog_row_metadata, and rows of a snapshot had another one than the log's."""
    server.execute("FLUSH BINARY LOGS")
    file, start = server.position()
    catalog: LiveCatalog | None = None
    with contextlib.ExitStack() as stack:
        for table, columns in TABLES.items():
            server.execute(f"CREATE TABLE {schema}.{table} {columns}")
        server.execute(f"ALTER TABLE {schema}.two ALTER l SET DEFAULT 7")
        if known_by == "catalog":
            file, start = server.position()
            config = SourceConfig(address=server.address, username="root")
            catalog = stack.enter_context(contextlib.closing(CatalogTables(config)))
        keeper = SchemaKeeper(catalog)
        keeper.begin([], "server", EntryPosition(file, start))
        insert(server, schema)
        with server.without_row_metadata():
            for table in TABLES:
                server.execute(f"DELETE FROM {schema}.{table}")
        found = list(keys_of_rows(keeper, server, file, start))
    assert {name for name, _ in found} == set(KEYS)
    assert [each for each in found if each[1] != KEYS[each[0]]] == []


def test_a_primary_key_that_comes_or_goes_counts_from_there(server: Server, schema: str) -> None:
    server.execute("FLUSH BINARY LOGS")
    file, start = server.position()
    server.execute(f"CREATE TABLE {schema}.t (v INT NOT NULL UNIQUE, k INT PRIMARY KEY)")
    for number, change in enumerate(CHANGES):
        server.execute(f"INSERT INTO {schema}.t (v, k) VALUES ({number}, {number})",
                       f"ALTER TABLE {schema}.t {change}")  # fmt: skip
    server.execute(f"INSERT INTO {schema}.t (v, k) VALUES (9, 9)")
    keeper = SchemaKeeper(None)
    keeper.begin([], "server", EntryPosition(file, start))
    found = [key for _, key in keys_of_rows(keeper, server, file, start)]
    assert found == [["k"], ["k"], [], ["v"]]


@pytest.mark.parametrize("kind", ["mysql97", "mariadb"])
def test_without_a_schema_row_metadata_has_the_last_word(
    kind: str, request: pytest.FixtureRequest
) -> None:
    """Of files in which no CREATE is, it is not known which kind of key it is."""
    server, schema = request.getfixturevalue(kind), "keys_by_metadata"
    server.execute(f"CREATE DATABASE {schema}")
    server.execute(f"CREATE TABLE {schema}.one {TABLES['one']}", "FLUSH BINARY LOGS")
    file, start = server.position()
    server.execute(f"INSERT INTO {schema}.one (v, k) VALUES (1, 1)")
    server.execute(f"DROP DATABASE {schema}")
    assert [key for _, key in keys_of_rows(None, server, file, start)] == [["k"]]
