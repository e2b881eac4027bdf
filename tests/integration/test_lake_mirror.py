"""Tables of a lake follow a real server's: types, keys that change, DDL; twice, and the same."""

from __future__ import annotations

import datetime as dt
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from ray_canal.sinks.open import make_sink
from tests.in_process_sink import destination, runner_of, sink_config
from tests.servers import Server
from tests.unit.sinks.lakes.test_lake import options

SOURCE = "lake_src"
STATEMENTS = (
    "SET SESSION time_zone='+00:00'",
    "CREATE TABLE kinds (id BIGINT UNSIGNED PRIMARY KEY, t TINYINT UNSIGNED, d DECIMAL(30,10),"
    " big DECIMAL(50,2), f FLOAT, e ENUM('a','b'), st SET('x','y'), b VARBINARY(9), dt DATE,"
    " ts TIMESTAMP(6) NULL, dm DATETIME(3), ti TIME(2), y YEAR, bi BIT(12), j JSON, v VECTOR(2))",
    "INSERT INTO kinds VALUES (18446744073709551615,255,'-1.0000000001','1234567890.12',1.5,'b',"
    "'x,y',x'00FF','2026-01-31','2026-03-01 02:03:04.000005','1999-12-31 23:59:59.123',"
    "'-838:59:59',2026,b'101','{\"a\": 1}',TO_VECTOR('[1,2]'))",
    "INSERT INTO kinds (id) VALUES (0)",
    "CREATE TABLE t (a INT, b VARCHAR(9), v INT, PRIMARY KEY (a, b))",
    "INSERT INTO t VALUES (1,'x',1),(1,'y',2),(2,'x',3)",
    "UPDATE t SET b = 'z' WHERE a = 1 AND b = 'x'",
    "UPDATE t SET a = a + 10 ORDER BY a DESC",
    "ALTER TABLE t ADD c VARCHAR(9)",
    "UPDATE t SET c = 'new' WHERE a = 11",
    "ALTER TABLE t MODIFY v BIGINT",
    f"UPDATE t SET v = {1 << 40} WHERE b = 'z'",
    "ALTER TABLE t DROP COLUMN c",
    "INSERT INTO t VALUES (3,'w',4)",
    "CREATE TABLE emptied (id INT PRIMARY KEY)",
    "INSERT INTO emptied VALUES (1),(2)",
    "TRUNCATE TABLE emptied",
    "INSERT INTO emptied VALUES (3)",
    "CREATE TABLE moved (id INT PRIMARY KEY, v INT)",
    "INSERT INTO moved VALUES (1,1),(2,2)",
    "RENAME TABLE moved TO found",
    "UPDATE found SET v = 3 WHERE id = 2",
    "CREATE TABLE moved (id INT PRIMARY KEY, other INT)",
    "INSERT INTO moved VALUES (7,7)",
    "CREATE TABLE gone (id INT PRIMARY KEY, v INT)",
    "INSERT INTO gone VALUES (1,1)",
    "DROP TABLE gone",
    "CREATE TABLE gone (id INT PRIMARY KEY, w INT)",
    "INSERT INTO gone VALUES (2,2)",
    "CREATE TABLE filled (id INT PRIMARY KEY, v INT, w INT)",
    "INSERT INTO filled VALUES (1,1,1),(2,2,2)",
    "ALTER TABLE filled ADD a INT NOT NULL DEFAULT -7, ADD b CHAR(9) DEFAULT 'é',"
    " ADD c ENUM('x','y') NOT NULL, ADD e BIGINT UNSIGNED DEFAULT 18446744073709551615",
    "INSERT INTO filled (id, v, b, c) VALUES (3,3,NULL,'y')",
    "ALTER TABLE filled DROP w",
    "ALTER TABLE filled RENAME COLUMN v TO u, ADD f DATE DEFAULT '2026-01-31'",
    "UPDATE filled SET u = u + 1 WHERE id = 2",
    "CREATE TABLE steps (id INT PRIMARY KEY, v INT, w INT)",
    "INSERT INTO steps VALUES (1,1,1)",
    "ALTER TABLE steps DROP w, MODIFY v BIGINT",
    f"INSERT INTO steps VALUES (2,{1 << 40})",
)


@pytest.fixture(scope="module")
def log(mysql97: Server) -> Iterator[Path]:
    """The binlog file with the statements."""
    mysql97.execute("FLUSH BINARY LOGS", f"CREATE DATABASE {SOURCE}", f"USE {SOURCE}", *STATEMENTS)
    yield mysql97.binlogs()[-1]
    mysql97.execute(f"DROP DATABASE {SOURCE}")


def rows_of(kind: str, folder: Path, table: str) -> list[dict[str, Any]]:
    if kind == "delta":
        rows: list[dict[str, Any]] = (
            DeltaTable(str(folder / "lake" / SOURCE / table)).to_pyarrow_table().to_pylist()
        )
        return rows
    from pyiceberg.catalog import load_catalog

    with load_catalog("ray_canal", **options(kind, folder)["options"]) as catalog:
        found: list[dict[str, Any]] = (
            catalog.load_table((SOURCE, table)).scan().to_arrow().to_pylist()
        )
        return found


def as_lake(kind: str, row: dict[str, Any]) -> dict[str, Any]:
    """A row of `kinds` as the lake has it."""
    found = dict(row)
    if row["t"] is not None:
        utc = dt.timezone.utc
        found["ti"] = row["ti"] // dt.timedelta(microseconds=1)
        found["big"] = str(row["big"])
        found["bi"] = int.from_bytes(row["bi"], "big")
        found["ts"] = row["ts"].replace(tzinfo=utc)
        found["dm"] = row["dm"].replace(tzinfo=utc) if kind == "delta" else row["dm"]
        found["v"] = json.loads(row["v"])
    return found


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_tables_are_those_of_the_source(
    kind: str, mysql97: Server, log: Path, tmp_path: Path
) -> None:
    settings = {**options(kind, tmp_path), "schema_change": "evolve"}
    for client_id in (1, 2):
        config = sink_config(kind, lake=settings, tables=rf"{SOURCE}\..*", client_id=client_id)
        runner = runner_of(config)
        with destination(tmp_path, source={"files": [str(log)]}, tsdb={}):
            runner.run(threading.Event())
        assert runner.status.retries == 0
        for table in ("t", "emptied", "moved", "found", "gone", "filled", "steps", "kinds"):
            with mysql97.connect(database=SOURCE) as connection, connection.cursor() as cursor:
                cursor.execute("SET time_zone = '+00:00'")
                columns = "*"
                if table == "kinds":
                    columns = "id, t, d, big, f, e, st, b, dt, ts, dm, ti, y, bi, j,"
                    columns += " VECTOR_TO_STRING(v) AS v"
                cursor.execute(f"SELECT {columns} FROM {table}")
                names = [column[0] for column in cursor.description]
                theirs = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
            if table == "kinds":
                theirs = [as_lake(kind, row) for row in theirs]
            ours = rows_of(kind, tmp_path, table)
            assert sorted(map(repr, map(sorted_row, ours))) == sorted(
                map(repr, map(sorted_row, theirs))
            )


def test_times_that_become_text_in_delta_are_what_the_server_shows(
    mysql97: Server, tmp_path: Path
) -> None:
    """TIME is a number there, and Delta's types do not tell the fractional digits."""
    kinds = {f"{kind}{n}": f"{kind}({n})" for kind in ("time", "datetime", "timestamp")
             for n in (0, 2, 3, 6)}  # fmt: skip
    columns = ", ".join(f"{name} {kind} null" for name, kind in kinds.items())
    later = {"t": "time(1)", "m": "datetime(3)"}
    moment = "'2026-11-28 01:02:03.12'"
    values = ", ".join(
        "'-123:04:05.1'" if k.startswith("time(") else moment for k in kinds.values()
    )
    mysql97.execute(
        "flush binary logs",
        "set time_zone = '+00:00'",
        "create database texts",
        f"create table texts.t (id int primary key, {columns}, t time, m datetime)",
        f"insert into texts.t values (1, {values}, '1:02:03', {moment})",
        "alter table texts.t add n time(4)",
        "insert into texts.t (id, n) values (2, '01:02:03.1')",
        "alter table texts.t " + ", ".join(f"modify {n} {kind}" for n, kind in later.items()),
        f"insert into texts.t (id, t, m) values (3, '01:02:03.1', {moment})",
        "alter table texts.t "
        + ", ".join(f"modify {n} varchar(40)" for n in (*kinds, *later, "n")),
        "insert into texts.t (id, t) values (4, 'new')",
        "flush binary logs",
    )
    settings = {**options("delta", tmp_path), "schema_change": "evolve"}
    config = sink_config("delta", lake=settings, tables=r"texts\..*")
    with destination(tmp_path, source={"files": [str(mysql97.binlogs()[-2])]}, tsdb={}):
        runner_of(config).run(threading.Event())
    found = DeltaTable(str(tmp_path / "lake/texts/t")).to_pyarrow_table()
    names = ", ".join(found.column_names)
    theirs = mysql97.execute(f"select {names} from texts.t order by id")
    mysql97.execute("drop database texts")
    ours = [tuple(row.values()) for row in found.sort_by("id").to_pylist()]
    assert ours == [*theirs]


def test_ended_in_the_midst_of_a_statement_delta_does_all_of_it(
    mysql97: Server, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had dropped a column, and not changed another one's type, which later rows need."""

    def ended(*_: Any) -> None:
        raise KeyboardInterrupt

    settings = {**options("delta", tmp_path), "schema_change": "evolve"}
    config = sink_config("delta", lake=settings, tables=rf"{SOURCE}\.steps")
    with destination(tmp_path, source={"files": [str(log)]}, tsdb={}):
        sink = make_sink(config)
        monkeypatch.setattr(sink._lake, "change", ended)  # type: ignore[attr-defined]
        with pytest.raises(KeyboardInterrupt):
            runner_of(config, sink).run(threading.Event())
        runner_of(config).run(threading.Event())
    found = rows_of("delta", tmp_path, "steps")
    theirs = mysql97.execute(f"SELECT id, v FROM {SOURCE}.steps ORDER BY id")
    assert sorted((row["id"], row["v"]) for row in found) == [*theirs]


def sorted_row(row: dict[str, Any]) -> list[tuple[str, Any]]:
    return sorted((key, str(value)) for key, value in row.items())
