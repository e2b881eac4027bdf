"""CREATE TABLE IF NOT EXISTS in binlog files without a catalog: the table may have been there
before with other columns, and then the statement says nothing of it."""

from __future__ import annotations

import pytest

from ray_canal.model.position import EntryPosition
from ray_canal.schema.event_parser import EventParser
from ray_canal.schema.history import place_of
from ray_canal.schema.keeper import SchemaKeeper
from ray_canal.schema.names import Names
from ray_canal.schema.records import load_history
from ray_canal.schema.registry import SchemaRegistry
from ray_canal.views.arrow import batches
from tests.integration.test_schema_history import chunks
from tests.servers import Server

LIES = "(wrong INT PRIMARY KEY, names INT)"


def columns_of_rows(server: Server, file: str, start: int) -> tuple[dict[str, list[str]], str]:
    """The columns of each table's rows, and what was held aside with its reason. What is known is
    the same from its records."""
    keeper = SchemaKeeper(None, "quarantine", names=Names(0))
    keeper.begin([], "server", EntryPosition(file, start))
    parser = EventParser(SchemaRegistry(), keeper)
    found, held, records = {}, "", []
    for chunk in chunks(server.datadir / file, start):
        info, decoded = parser.decode_chunk(chunk)
        assert info.failure is None, info.failure
        records += info.records
        held += "".join(each.reason for each in info.quarantined)
        for batch in batches(decoded, 0, len(info.entries)):
            for row in batch.to_pylist():
                found[batch.schema.metadata[b"canal.table"].decode()] = [*row["after"]]
    end = place_of(*server.position())
    again = load_history(records, keeper.server, end, Names(0))
    states = {(s.meta.table, s.meta, bool(s.problem)) for s in keeper.history.states_at(end)}
    assert {(s.meta.table, s.meta, bool(s.problem)) for s in again.states_at(end)} == states
    return found, held


@pytest.mark.parametrize("engine", ["InnoDB", "MyISAM"])
def test_what_a_skipped_statement_says_is_not_believed(server: Server, engine: str) -> None:
    """Its names were given to the rows of a table that was there before, as the types fit."""
    server.execute("DROP DATABASE IF EXISTS maybe", "CREATE DATABASE maybe",
                   f"CREATE TABLE maybe.old (a INT PRIMARY KEY, b INT) ENGINE={engine}",
                   "FLUSH BINARY LOGS")  # fmt: skip
    file, start = server.position()
    with server.without_row_metadata():
        server.execute(
            f"CREATE TABLE IF NOT EXISTS maybe.old {LIES} ENGINE={engine}",
            f"CREATE TABLE IF NOT EXISTS maybe.made (x INT PRIMARY KEY) ENGINE={engine}",
            "INSERT INTO maybe.old VALUES (1, 2)",
            "INSERT INTO maybe.made VALUES (1)",
        )
    found, held = columns_of_rows(server, file, start)
    assert "old" not in found, found
    assert "maybe.old" in held
    # MySQL 8.0 marks what has changed its dictionary, and MariaDB logs nothing else.
    told = server.is_mariadb or (server.kind == "mysql97" and engine == "InnoDB")
    assert found == ({"made": ["x"]} if told else {})
    if not told:
        assert "IF NOT EXISTS" in held
        assert "schema_sql" in held


def test_it_is_believed_where_the_log_shows_that_the_table_was_not_there(server: Server) -> None:
    server.execute("DROP DATABASE IF EXISTS maybe", "CREATE DATABASE maybe",
                   "CREATE TABLE maybe.old (a INT PRIMARY KEY, b INT) ENGINE=MyISAM",
                   "FLUSH BINARY LOGS")  # fmt: skip
    file, start = server.position()
    with server.without_row_metadata():
        server.execute(
            "DROP TABLE maybe.old",
            "CREATE TABLE IF NOT EXISTS maybe.old (x INT PRIMARY KEY) ENGINE=MyISAM",
            "INSERT INTO maybe.old VALUES (1)",
            f"CREATE TABLE IF NOT EXISTS maybe.old {LIES} ENGINE=MyISAM",
            "INSERT INTO maybe.old VALUES (2)",
            "DROP DATABASE maybe",
            "CREATE DATABASE IF NOT EXISTS maybe",
            "CREATE TABLE IF NOT EXISTS maybe.made (y INT PRIMARY KEY) ENGINE=MyISAM",
            f"CREATE TABLE IF NOT EXISTS maybe.made {LIES} ENGINE=MyISAM",
            "INSERT INTO maybe.made VALUES (1)",
        )
    found, held = columns_of_rows(server, file, start)
    assert (found, held) == ({"old": ["x"], "made": ["y"]}, "")
