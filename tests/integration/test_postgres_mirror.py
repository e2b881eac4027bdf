"""A mirror in PostgreSQL: from a real MySQL into a real PostgreSQL, equal to SELECT."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from ray_canal.config import MirrorConfig, load
from ray_canal.sinks.column_specs import ColumnSpec
from ray_canal.sinks.databases.postgres import PostgresDatabase
from ray_canal.sinks.port import SinkError
from ray_canal.sinks.runner import Runner
from ray_canal.sinks.schema_follower import TableName
from tests.in_process_sink import destination, runner_of, running, sink_config, until
from tests.servers import Server
from tests.servers.postgres import PostgresServer

numbers = itertools.count(1)


class Shop:
    """A source database of its own in MySQL, and a schema of its own that follows it."""

    def __init__(self, server: Server, postgres: PostgresServer, folder: Path) -> None:
        self.server, self.postgres, self.folder = server, postgres, folder
        number = next(numbers)
        self.source = f"pg_src{number}"
        self.copy, self.cursors = f"copy{number}", f"canal{number}"
        server.execute(f"CREATE DATABASE {self.source}")
        self.start = server.position()

    def run(self, *statements: str) -> None:
        self.server.execute(f"USE {self.source}", *statements)

    def mirror(self, tables: str = ".*", **mirror: Any) -> Runner:
        """`tables`: which of the source database's, as a pattern."""
        settings = {
            "address": self.postgres.address,
            "username": "postgres",
            "database": self.copy,
            "cursor_database": self.cursors,
            **mirror,
        }
        tables = rf"{self.source}\.{tables}"
        return runner_of(sink_config("postgres", mirror=settings, tables=tables))

    def destination(self, *, held: bool = False) -> Any:
        source = {
            "address": self.server.address,
            "username": "root",
            "start": "position",
            "journal_name": self.start[0],
            "position": self.start[1],
        }
        filters = {"tables": rf"{self.source}\..*"}
        return destination(self.folder, held=held, source=source, filter=filters, tsdb={})

    def source_rows(self, table: str) -> Any:
        return sorted(self.server.execute(f"SELECT * FROM {self.source}.{table}"), key=repr)

    def rows(self, table: str) -> Any:
        return sorted(self.postgres.execute(f'SELECT * FROM {self.copy}."{table}"'), key=repr)

    def is_mirrored(self, *tables: str) -> bool:
        try:
            return all(self.source_rows(table) == self.rows(table) for table in tables)
        except psycopg.Error:  # the copy is not there yet
            return False

    def columns(self, table: str) -> dict[str, str]:
        rows = self.postgres.execute(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
            f" WHERE attrelid = '{self.copy}.{table}'::regclass AND attnum > 0"
            " AND NOT attisdropped ORDER BY attnum"
        )
        return dict(rows)


def shop_of(server: Server, postgres: PostgresServer, folder: Path) -> Iterator[Shop]:
    shop = Shop(server, postgres, folder)
    yield shop
    server.execute(f"DROP DATABASE {shop.source}")
    postgres.execute(
        *(f"DROP SCHEMA IF EXISTS {each} CASCADE" for each in (shop.copy, shop.cursors))
    )


@pytest.fixture
def shop(mysql97: Server, postgres: PostgresServer, tmp_path: Path) -> Iterator[Shop]:
    yield from shop_of(mysql97, postgres, tmp_path)


ALL_TYPES = """
CREATE TABLE kinds (id BIGINT UNSIGNED PRIMARY KEY, t TINYINT, u INT UNSIGNED, d DECIMAL(30,10),
 f FLOAT, g DOUBLE, s VARCHAR(200), c CHAR(3), e ENUM('a','it''s'), st SET('x','y'), b VARBINARY(9),
 bl BLOB, tx TEXT, dt DATE, ts TIMESTAMP(6) NULL, dm DATETIME(3), ti TIME(2), y YEAR, bi BIT(12),
 j JSON, po POINT, v VECTOR(3))"""
VALUES = [
    "(1,-5,4000000000,'-12345678901234567890.0123456789',1.5,-2.25e-200,'it''s \\\\ \"x\"','é€',"
    "'it''s','x,y',x'00FF27',x'00',' \n\\\\.\n\t\\\\N','2026-01-31','2026-03-01 02:03:04.000005',"
    "'1999-12-31 23:59:59.123','-838:59:59',2026,b'101','{\"a\": [1, \"ü\"]}',POINT(1,2),"
    "TO_VECTOR('[1,-0.1,3e10]'))",
    "(18446744073709551615,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,"
    "NULL,NULL,NULL,NULL,NULL,NULL,NULL)",
    "(0,0,0,0.0000000001,0,0,'\\\\N','','a','','','','','1000-01-01','1970-01-01 00:00:01',"
    "'1000-01-01','00:00:00.01',1901,0,'null',POINT(0,0),NULL)",
]
AS_POSTGRES = (
    "SELECT id, t, u, d, f, g, s, c, e, st, b, bl, tx, dt, UNIX_TIMESTAMP(ts), dm, ti, y, bi+0,"
    " CAST(j AS CHAR), po, VECTOR_TO_STRING(v) FROM {}.kinds ORDER BY id"
)


def test_rows_of_all_types_are_those_of_the_source(shop: Shop) -> None:
    shop.run(
        "SET SESSION time_zone='+00:00', sql_mode='NO_AUTO_VALUE_ON_ZERO'",
        ALL_TYPES,
        *(f"INSERT INTO kinds VALUES {row}" for row in VALUES),
        "CREATE TABLE pairs (a VARCHAR(20), b INT, v INT, PRIMARY KEY (a, b))",
        "INSERT INTO pairs VALUES ('x',1,1),('X ',2,2),('y',1,3)",
        "UPDATE pairs SET b = b + 1 ORDER BY b DESC",
        "UPDATE pairs SET a = 'X' WHERE a = 'x'",
        "DELETE FROM pairs WHERE a = 'y'",
        "INSERT INTO pairs VALUES ('y',2,4)",
    )
    with shop.destination(), running(shop.mirror()):
        until(lambda: shop.is_mirrored("pairs"))
    theirs, ours = shop.server.execute(AS_POSTGRES.format(shop.source)), []
    for row in shop.rows("kinds"):
        values = dict(zip(shop.columns("kinds"), row, strict=True))
        values["ts"] = values["ts"] and values["ts"].timestamp()
        ours.append(values)
    ours.sort(key=lambda values: int(values["id"]))
    assert len(ours) == len(theirs) == 3
    for mine, their in zip(ours, theirs, strict=True):
        expected = dict(zip(mine, their, strict=True))
        expected["ts"] = None if expected["ts"] is None else float(expected["ts"])
        for name in ("j", "v"):
            expected[name] = None if expected[name] is None else json.loads(expected[name])
        if mine["v"] is not None:
            mine["v"] = [float(f"{value:.6g}") for value in mine["v"]]
            expected["v"] = [float(f"{value:.6g}") for value in expected["v"]]
        assert mine == expected
    assert shop.columns("kinds") == {
        "id": "numeric(20,0)", "t": "smallint", "u": "bigint", "d": "numeric(30,10)", "f": "real",
        "g": "double precision", "s": "text", "c": "text", "e": "text", "st": "text", "b": "bytea",
        "bl": "bytea", "tx": "text", "dt": "date", "ts": "timestamp with time zone",
        "dm": "timestamp without time zone", "ti": "interval", "y": "integer", "bi": "bigint",
        "j": "jsonb", "po": "bytea", "v": "real[]",
    }  # fmt: skip


def test_json_of_mariadb_is_the_text_that_it_was(
    mariadb: Server, postgres: PostgresServer, tmp_path: Path
) -> None:
    """As jsonb, what its own CHECK lets in was refused, and keys came in another order."""
    shop = Shop(mariadb, postgres, tmp_path)
    with shop.destination(), running(shop.mirror()):
        shop.run(
            "CREATE TABLE t (id INT PRIMARY KEY, j JSON, k JSON CHECK (TRUE))",
            """INSERT INTO t VALUES (1,'{"b": 1, "a":"\\\\u0000"}','not JSON'),(2,NULL,'')""",
            "ALTER TABLE t ADD l JSON DEFAULT '[]'",
        )
        until(lambda: shop.is_mirrored("t"))
    assert shop.columns("t") == {"id": "integer", "j": "text", "k": "text", "l": "text"}


def test_tables_follow_the_source(shop: Shop) -> None:
    runner = shop.mirror(schema_change="evolve", without_key="rows")
    with shop.destination(), running(runner):
        shop.run(
            "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
            "INSERT INTO t VALUES (1,1),(2,2)",
            "CREATE TABLE keyless (v INT, w FLOAT, x TEXT)",
            "INSERT INTO keyless VALUES (1,0.1,'a'),(1,0.1,'a'),(1,0.1,'a'),(NULL,2,NULL)",
            "DELETE FROM keyless WHERE v = 1 LIMIT 2",
            "UPDATE keyless SET w = 3 WHERE v IS NULL",
        )
        until(lambda: shop.is_mirrored("t", "keyless"))
        shop.run("ALTER TABLE t ADD c VARCHAR(9)", "UPDATE t SET c = 'new'")
        until(lambda: shop.is_mirrored("t"))
        shop.run("ALTER TABLE t MODIFY v BIGINT", f"UPDATE t SET v = {1 << 40}")
        until(lambda: shop.is_mirrored("t"))
        shop.run("ALTER TABLE t ADD b BLOB", "UPDATE t SET b = x'C3A95C785C5C'")
        for kind in ("TEXT CHARACTER SET utf8mb4", "BLOB"):  # the rows that are there, too
            shop.run(f"ALTER TABLE t MODIFY b {kind}")
            until(lambda: shop.is_mirrored("t"))
        shop.run("ALTER TABLE t DROP COLUMN b, CHANGE id ID INT, CHANGE v V BIGINT")
        shop.run("UPDATE t SET ID = 9, V = 9 LIMIT 1")
        until(lambda: shop.is_mirrored("t"))  # under the names that the columns have there
        shop.run("TRUNCATE TABLE t", "INSERT INTO t VALUES (5,5,'five')")
        until(lambda: shop.is_mirrored("t"))
        shop.run("RENAME TABLE t TO moved", "UPDATE moved SET v = 6")
        until(lambda: shop.is_mirrored("moved"))
        shop.run("ALTER TABLE moved DROP COLUMN c", "INSERT INTO moved VALUES (7,7)")
        until(lambda: shop.is_mirrored("moved"))
        assert shop.columns("moved") == {"id": "integer", "v": "bigint"}
        shop.run("DROP TABLE moved")
        find = f"SELECT to_regclass('{shop.copy}.moved') IS NULL"
        until(lambda: shop.postgres.execute(find) == [(True,)])
    assert runner.status.retries == 0


def test_policies(shop: Shop) -> None:
    """add: never drops; ignore: writes what columns there are; stop: ends at a change."""
    shop.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1,1)")
    with shop.destination():
        with running(shop.mirror()):
            until(lambda: shop.is_mirrored("t"))
            shop.run("ALTER TABLE t DROP COLUMN v", "INSERT INTO t VALUES (2)")
            until(lambda: shop.rows("t") == [(1, 1), (2, None)])
        shop.run("ALTER TABLE t ADD w INT", "INSERT INTO t VALUES (3, 3)")
        with running(shop.mirror(schema_change="ignore")):
            until(lambda: len(shop.rows("t")) == 3)
        assert list(shop.columns("t")) == ["id", "v"]
        shop.run("ALTER TABLE t ADD x INT")
        runner = shop.mirror(schema_change="stop")
        with pytest.raises(SinkError, match="is \"stop\""), running(runner):
            until(lambda: runner.status.state == "failed")
        shop.run("CREATE TABLE bare (v INT)", "INSERT INTO bare VALUES (1)", "DROP TABLE bare")
        shop.run("INSERT INTO t VALUES (4, 4, 4)")
        runner = shop.mirror(schema_change="ignore")
        with pytest.raises(SinkError, match="no primary key"), running(runner):
            until(lambda: runner.status.state == "failed")
        with running(shop.mirror(schema_change="ignore", without_key="ignore")):
            until(lambda: len(shop.rows("t")) == 4)


def test_a_replaced_runner_changes_no_table_and_no_row(shop: Shop) -> None:
    """Changes of tables are in the transaction that asks who may write."""
    shop.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1,1)")
    with shop.destination():
        with running(shop.mirror()):
            until(lambda: shop.is_mirrored("t"))
        first = shop.mirror()
        sink = first._sink
        open_, calls = sink.open, []

        def opened() -> Any:
            place = open_()
            calls.append(place)
            other = shop.mirror()._sink
            other.open()  # somebody else takes over now
            other.close()
            return place

        sink.open = opened  # type: ignore[method-assign]
        shop.run("TRUNCATE TABLE t")
        with pytest.raises(SinkError, match="taken over") as caught, running(first):
            until(lambda: first.status.state == "failed")
        assert caught.value.kind == "fenced"
        assert calls
        assert shop.rows("t") == [(1, 1)]


def test_another_session_for_a_transaction_ends_it(shop: Shop) -> None:
    """A pooler may give one: settings and temporary tables are another client's there."""
    config = MirrorConfig(
        address=shop.postgres.address, username="postgres", cursor_database=shop.cursors
    )
    with contextlib.closing(PostgresDatabase(config)) as database:
        database.connect()
        epoch, _ = database.take_over("s")
        assert database.begin("s") == epoch
        database.rollback()
        first = database._connection
        assert first is not None
        with first, shop.postgres.connect() as other:
            database._connection = other
            with pytest.raises(SinkError, match="pool_mode") as caught:
                database.begin("s")
        assert caught.value.kind == "fatal"


def test_values_of_other_unique_keys_may_be_swapped(shop: Shop) -> None:
    shop.postgres.execute(
        f"CREATE SCHEMA {shop.copy}",
        f"CREATE TABLE {shop.copy}.t (id int PRIMARY KEY, u int NOT NULL UNIQUE)",
    )
    shop.run("CREATE TABLE t (id INT PRIMARY KEY, u INT NOT NULL UNIQUE)",
             "INSERT INTO t VALUES (1,1),(2,2)")  # fmt: skip
    with shop.server.connect(database=shop.source, autocommit=False) as connection:
        for row in ("u=9 WHERE id=1", "u=1 WHERE id=2", "u=2 WHERE id=1"):
            connection.cursor().execute(f"UPDATE t SET {row}")
        connection.commit()
    with shop.destination(), running(shop.mirror()):
        until(lambda: shop.is_mirrored("t") and shop.rows("t") == [(1, 2), (2, 1)])


def test_what_postgres_cannot_hold_is_set_aside(shop: Shop, tmp_path: Path) -> None:
    """A zero byte in text, which MySQL has: the dead letters have it, the rest arrives."""
    runner = shop.mirror()
    config = runner._config.model_copy(update={"dead_letters": str(tmp_path / "dead.jsonl")})
    runner = runner_of(config)
    shop.run("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)", "INSERT INTO t VALUES (1,'a')",
             "INSERT INTO t VALUES (2, 'x\\0y')", "INSERT INTO t VALUES (3,'c')")  # fmt: skip
    with shop.destination(), running(runner):
        until(lambda: shop.rows("t") == [(1, "a"), (3, "c")] if runner.status.commits else False)
    (line,) = (tmp_path / "dead.jsonl").read_text().splitlines()
    assert "0x00" in json.loads(line)["error"]
    assert json.loads(line)["rows"][0]["after"] == {"id": 2, "v": "x\0y"}


def test_a_server_that_dies_and_comes_again(shop: Shop) -> None:
    shop.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1,1)")
    runner = shop.mirror()
    with shop.destination(), running(runner):
        until(lambda: shop.is_mirrored("t"))
        shop.postgres.kill()
        shop.run("INSERT INTO t VALUES (2,2)", "UPDATE t SET v = 3")
        until(lambda: runner.status.retries > 0)
        shop.postgres.start()
        until(lambda: shop.is_mirrored("t"))


def test_a_wrong_password_or_database_ends_the_sink(shop: Shop) -> None:
    with pytest.raises(SinkError, match="does not exist") as caught:
        shop.mirror(dbname="nowhere")._sink.open()  # nothing to close
    assert not caught.value.retryable


def test_the_configuration_names_it(tmp_path: Path) -> None:
    path = tmp_path / "canal.toml"
    path.write_text(
        '[[instance]]\ndestination = "x"\nsource.address = "h:1"\n[[sink]]\nname = "s"\n'
        'destination = "x"\ntype = "postgres"\nclient_id = 1\nmirror.address = "h"\n'
    )
    (sink,) = load(path).sink
    assert sink.whole_transactions
    assert sink.mirror.dbname == "postgres"


def test_a_table_named_as_what_an_upsert_replaces(shop: Shop) -> None:
    """`excluded` is PostgreSQL's word for the rows that an upsert would have inserted."""
    shop.run("CREATE TABLE excluded (id INT PRIMARY KEY, v INT)")
    shop.run("INSERT INTO excluded VALUES (1,1)")
    with shop.destination(), running(shop.mirror()):
        until(lambda: shop.is_mirrored("excluded"))
        shop.run("UPDATE excluded SET v = 2", "INSERT INTO excluded VALUES (2,2)")
        until(lambda: shop.is_mirrored("excluded"))


def test_a_table_of_parts_loses_no_row_of_another_part(shop: Shop) -> None:
    """Each part has a row of the same ctid: all went with one of them."""
    parts = (f"CREATE TABLE {shop.copy}.t{n} PARTITION OF {shop.copy}.t FOR VALUES IN ({n})"
             for n in (1, 2, 3))  # fmt: skip
    table = f"CREATE TABLE {shop.copy}.t (k INT, v TEXT) PARTITION BY LIST (k)"
    shop.postgres.execute(f"CREATE SCHEMA {shop.copy}", table, *parts)
    shop.run("CREATE TABLE t (k INT, v TEXT)", "INSERT INTO t VALUES (1,'a'),(2,'b'),(3,'c')")
    with shop.destination(), running(shop.mirror(without_key="rows")):
        until(lambda: shop.is_mirrored("t"))
        shop.run("DELETE FROM t WHERE k = 2")
        until(lambda: shop.is_mirrored("t"))


@pytest.mark.parametrize(
    ("made", "kind", "said"),
    [
        # rows that are hidden would not go
        ("ALTER TABLE {0}.t ENABLE ROW LEVEL SECURITY", "fatal", "query would be affected"),
        (
            "CREATE FUNCTION {0}.no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION"
            " 'not here'; END $$; CREATE TRIGGER no BEFORE INSERT ON {0}.t FOR EACH ROW EXECUTE"
            " FUNCTION {0}.no()",
            "poison",
            "not here",
        ),
        ("SELECT 1", "schema", "keys that differ at the source"),
        (  # it had been tried again and again
            "ALTER TABLE {0}.t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id) DEFERRABLE",
            "schema",
            "does not support deferrable",
        ),
    ],
)
def test_what_a_table_of_ones_own_refuses(made: str, kind: str, said: str, shop: Shop) -> None:
    name = shop.copy
    shop.postgres.execute(
        f"CREATE SCHEMA {name}; CREATE TABLE {name}.t (id INT PRIMARY KEY, v INT UNIQUE)",
        f"CREATE ROLE {name} LOGIN; GRANT ALL ON SCHEMA {name} TO {name};"
        f"GRANT ALL ON {name}.t TO {name}",
        made.format(name),
    )
    database = PostgresDatabase(MirrorConfig(address=shop.postgres.address, username=name))
    rows = pa.table({"id": [1, 1], "v": [1, 2]})
    with contextlib.closing(database):
        database.connect()
        database._run("BEGIN")
        with pytest.raises(SinkError, match=said) as caught:
            database.upsert(TableName(name, "t"), ["id"], rows)
    shop.postgres.execute(f"DROP OWNED BY {name}", f"DROP ROLE {name}")
    assert caught.value.kind == kind


def test_rows_that_another_table_goes_with_are_added_and_not_changed(shop: Shop) -> None:
    """With another unique key each UPDATE is a removal, which had taken the rows of the other
    table; a table whose rows only come was refused, too."""
    name = TableName(shop.copy, "t")
    shop.postgres.execute(
        f"CREATE SCHEMA {shop.copy}; CREATE TABLE {shop.copy}.t (id INT PRIMARY KEY, v INT UNIQUE)",
        f"CREATE TABLE {shop.copy}.c (of_t INT REFERENCES {shop.copy}.t ON DELETE CASCADE)",
    )
    database = PostgresDatabase(MirrorConfig(address=shop.postgres.address, username="postgres"))
    with contextlib.closing(database):
        database.connect()
        assert database.find(name) is not None
        database._run("BEGIN")
        for row in (1, 2):
            database.upsert(name, ["id"], pa.table({"id": [row], "v": [row]}))
        database._run(f"INSERT INTO {shop.copy}.c VALUES (1); COMMIT; BEGIN")
        said = "foreign key c_of_t_fkey would change those of .*c each time"
        with pytest.raises(SinkError, match=said) as caught:
            database.upsert(name, ["id"], pa.table({"id": [1], "v": [3]}))
        assert caught.value.kind == "schema"
        database.rollback()
    assert shop.postgres.execute(f"SELECT of_t FROM {shop.copy}.c") == [(1,)]


def test_names_of_types_are_read_as_they_are_written(shop: Shop) -> None:
    """A server may quote all names that it shows: a table's own types were others than they are."""
    name = TableName(shop.copy, "t")
    kinds = pa.date32(), pa.string(), pa.binary()
    columns = [ColumnSpec(str(kind), kind) for kind in kinds]
    database = PostgresDatabase(MirrorConfig(address=shop.postgres.address, username=shop.copy))
    shop.postgres.execute(
        f"CREATE ROLE {shop.copy} LOGIN", f"ALTER ROLE {shop.copy} SET quote_all_identifiers = on",
        f"CREATE SCHEMA {shop.copy} AUTHORIZATION {shop.copy}",
    )  # fmt: skip
    with contextlib.closing(database):
        database.connect()
        database.create(name, columns)
        assert database.differing(name, columns) == []
    shop.postgres.execute(f"DROP OWNED BY {shop.copy}", f"DROP ROLE {shop.copy}")
