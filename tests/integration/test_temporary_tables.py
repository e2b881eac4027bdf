"""Temporary tables that hide real ones of the same name: what is done to them is in the log of real
servers as if it was done to those, and changes nothing that is known of those."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from ray_canal.schema.event_parser import EventParser
from ray_canal.schema.history import place_of
from ray_canal.schema.keeper import SchemaKeeper
from ray_canal.schema.names import Names
from ray_canal.schema.records import load_history
from ray_canal.schema.registry import SchemaRegistry
from tests.ddl_maker import SCHEMAS
from tests.integration.test_schema_history import (
    Step,
    check_every_step,
    chunks,
    described,
)
from tests.servers import Server, start

DB = SCHEMAS[0]
REAL = ("CREATE TABLE t (id INT, v INT)", "CREATE TABLE r (id INT)", "CREATE TABLE i (a INT)",
        "CREATE TABLE moved (x INT)")  # fmt: skip
PROCEDURE = """CREATE PROCEDURE p() BEGIN
    CREATE TEMPORARY TABLE IF NOT EXISTS scratch (a INT); INSERT INTO scratch VALUES (1);
    ALTER TABLE r ADD COLUMN x INT; CREATE UNIQUE INDEX u ON r (x); DROP TEMPORARY TABLE scratch;
    ALTER TABLE r ADD COLUMN y INT; END"""
STATEMENTS = (
    # What hides t, and all that can be done to it.
    "CREATE TEMPORARY TABLE t (k VARCHAR(9), w INT)",
    "ALTER TABLE t ADD COLUMN more INT", "INSERT INTO t VALUES ('a', 1, 2)",
    "ALTER TABLE t DROP COLUMN w, ADD PRIMARY KEY (k)", "CREATE INDEX ix ON t (more)",
    "DROP INDEX ix ON t", "ALTER TABLE t DROP PRIMARY KEY", "TRUNCATE TABLE t",
    "CREATE TABLE IF NOT EXISTS t (never INT)", "INSERT INTO r VALUES (1)",
    # A new name hides another one.
    "ALTER TABLE t RENAME TO moved", "ALTER TABLE t ADD COLUMN w INT",
    "ALTER TABLE moved ADD COLUMN y INT", "DROP TABLE moved", "ALTER TABLE moved ADD COLUMN z INT",
    "CREATE TEMPORARY TABLE i LIKE t", "ALTER TABLE i CHANGE id other INT",
    "DROP TEMPORARY TABLE i", "ALTER TABLE i ADD COLUMN b INT",
    # Events of a procedure are marked once a temporary table was used, whatever they are about.
    "CALL p()", "ALTER TABLE r DROP COLUMN y",
    # RENAME is of the real table on MySQL, of the temporary one on MariaDB.
    "CREATE TEMPORARY TABLE i (c INT)", "RENAME TABLE i TO j",
    "DROP TEMPORARY TABLE IF EXISTS i, j",
    # Both are dropped, and one is made again. Ends with the session: of moved.
    "CREATE TEMPORARY TABLE t (k INT)", "CREATE TEMPORARY TABLE moved (k INT)", "DROP TABLE t",
    "DROP TABLE t", "CREATE TABLE t (again INT)",
)  # fmt: skip


def run(server: Server, cursor: Any, other: Any, statements: tuple[str, ...]) -> list[Step]:
    steps = []
    for sql in statements:
        cursor.execute(sql)
        if not sql.startswith("CALL"):  # its statements are several
            steps.append((*server.position(), sql, described(other)))
    return steps


@contextlib.contextmanager
def sessions(server: Server, binlog_format: str) -> Any:
    """Two sessions of an empty database, and where the log has reached."""
    with (
        contextlib.closing(server.connect()) as one,
        contextlib.closing(server.connect()) as two,
        one.cursor() as cursor,
        two.cursor() as other,
    ):
        cursor.execute("FLUSH BINARY LOGS")
        for schema in SCHEMAS:
            cursor.execute(f"DROP DATABASE IF EXISTS {schema}")
        cursor.execute(f"CREATE DATABASE {DB} CHARACTER SET utf8mb4")
        cursor.execute(f"USE {DB}")
        cursor.execute(f"SET SESSION binlog_format = '{binlog_format}'")
        yield cursor, other


@pytest.mark.parametrize("binlog_format", ["MIXED", "STATEMENT", "ROW"])
def test_the_history_is_the_catalog(server: Server, binlog_format: str) -> None:
    """ALTER, indexes and DROP of a temporary table changed the real one of its name."""
    with server.without_row_metadata(), sessions(server, binlog_format) as (cursor, other):
        file, _ = server.position()
        statements = STATEMENTS
        if server.is_mariadb and binlog_format == "ROW":  # which has RENAME alone, unmarked
            statements = tuple(sql for sql in statements if not sql.startswith("RENAME"))
        steps = run(server, cursor, other, (*REAL, PROCEDURE, *statements))
    server.execute("CREATE DATABASE IF NOT EXISTS after_it")
    history = check_every_step(server.datadir / file, steps, Names(0))
    assert history.states_at(place_of(server.position()[0], server.position()[1]))


def test_what_was_made_like_a_temporary_table_is_not_known(server: Server) -> None:
    """It was taken for one like the real table that the temporary one hid."""
    with server.without_row_metadata(), sessions(server, "STATEMENT") as (cursor, other):
        file, _ = server.position()
        run(server, cursor, other, (*REAL, "CREATE TEMPORARY TABLE t (k INT)"))
        cursor.execute("CREATE TABLE copy LIKE t")
        place = place_of(*server.position())
    keeper = SchemaKeeper(None, names=Names(0))
    parser = EventParser(SchemaRegistry(), keeper)
    records = []
    for chunk in chunks(server.datadir / file):
        records += parser.decode_chunk(chunk)[0].records
    for history in (keeper.history, load_history(records, "", place, Names(0))):
        state = history.tracked((DB, "copy"), place)
        assert state is not None
        assert "temporary table" in state.problem


def test_a_server_that_starts_has_none(tmp_path: Path) -> None:
    """A killed server logs no DROP of its sessions' tables, and numbers sessions from 1 again: a
    RENAME of a later one's real table was taken for one of a temporary table."""
    with start("mariadb", tmp_path) as server:
        with sessions(server, "MIXED") as (cursor, _):
            file, _ = server.position()
            cursor.execute("CREATE TABLE t (id INT, v INT)")
            cursor.execute("CREATE TEMPORARY TABLE t (k INT)")
            thread = cursor.connection.thread_id()
            server.kill()
        server.start()
        again = 0
        while again < thread:
            with contextlib.closing(server.connect()) as later, later.cursor() as cursor:
                again = later.thread_id()
                if again == thread:
                    cursor.execute(f"RENAME TABLE {DB}.t TO {DB}.renamed")
        assert again == thread
        place = place_of(*server.position())
        keeper = SchemaKeeper(None, names=Names(0))
        parser = EventParser(SchemaRegistry(), keeper)
        for log in server.binlogs():
            for chunk in chunks(log) if log.name >= file else ():
                parser.decode_chunk(chunk)
    assert keeper.history.tracked((DB, "t"), place) is None
    assert keeper.history.tracked((DB, "renamed"), place) is not None
