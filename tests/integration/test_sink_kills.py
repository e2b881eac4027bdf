"""A runner that is killed at any moment: each change is in the target once.

The tables of a database have no key, and a lake has every change as a row, so a change that is
written twice shows.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

import ray_canal as canal
from ray_canal.config import SinkConfig
from tests.servers import Server
from tests.servers.postgres import PostgresServer
from tests.sink_runs import killed, random_steps
from tests.unit.sinks.lakes.test_lake import options

STEPS = (
    "take_over:1:after", "create:2:after", "begin:1:before", "upsert:1:after", "begin:3:after",
    "delete_like:1:before", "commit:2:before", "delete:1:after", "commit:1:after", "commit:2:after",
)  # fmt: skip
TRANSACTION_STEPS = ("create:2:after", "delete_like:1:after", "commit:3:before", "commit:3:after")
LAKE_STEPS = ("append:1:after", "append:4:after", "append:30:before")
MIRROR_STEPS = ("merge:1:before", "merge:2:after", "merge:20:after")


def workload(server: Server, source: str) -> None:
    server.execute("FLUSH BINARY LOGS", f"CREATE DATABASE {source}", f"USE {source}",
                   "CREATE TABLE keyless (v INT, w VARCHAR(9))",
                   "CREATE TABLE t (id INT PRIMARY KEY, v INT)")  # fmt: skip
    generator = random.Random(4)
    with server.connect(database=source, autocommit=False) as connection:
        cursor = connection.cursor()
        for number in range(400):
            for _ in range(generator.randrange(1, 4)):
                cursor.execute(f"INSERT INTO keyless VALUES ({number % 5}, 'x')")
                cursor.execute(f"REPLACE INTO t VALUES ({generator.randrange(40)}, {number})")
            if number % 7 == 0:
                cursor.execute(f"DELETE FROM keyless WHERE v = {number % 5} LIMIT 1")
                cursor.execute(f"DELETE FROM t WHERE id = {generator.randrange(40)}")
            connection.commit()
            if number == 350:
                server.execute(f"CREATE TABLE {source}.late (id INT PRIMARY KEY)")


@pytest.fixture(scope="module")
def source(mysql97: Server) -> Iterator[str]:
    name = "killed"
    workload(mysql97, name)
    yield name
    mysql97.execute(*(f"DROP DATABASE IF EXISTS {each}" for each in
                      (name, f"{name}_copy", f"{name}_canal")))  # fmt: skip


def run_killed(
    server: Server, folder: Path, sink: dict[str, Any], steps: Sequence[str]
) -> list[str]:
    """Run a sink, killed at each of the steps, then to the end. Returns how each run ended."""
    size = 1 if len(steps) > 10 else 4  # of a commit: many kills need many commits
    tree = {"name": "s", "destination": "x", "client_id": 7, "batch_size": size, **sink}
    source = {"files": [str(server.binlogs()[-1])]}
    return killed(folder, SinkConfig.model_validate(tree), source, steps)


IN_COMMITS = ("begin", "upsert", "commit")
"""What each commit asks a database to do."""


def mysql_sink(server: Server, source: str) -> dict[str, Any]:
    mirror = {"address": server.address, "username": "root", "database": f"{source}_copy",
              "cursor_database": f"{source}_canal", "without_key": "rows"}  # fmt: skip
    return {"type": "mysql", "tables": rf"{source}\..*", "mirror": mirror}


def is_mirrored(
    server: Server, source: str, ask: Callable[[str], Sequence[tuple[Any, ...]]], copy: str
) -> None:
    """`ask`: run a query in the target, where `copy` has the source's tables."""
    for table in ("keyless", "t"):
        theirs = server.execute(f"SELECT * FROM {source}.{table} ORDER BY 1, 2")
        assert list(ask(f"SELECT * FROM {copy}.{table} ORDER BY 1, 2")) == list(theirs)


def test_killed_at_every_step_each_change_is_there_once(
    mysql97: Server, source: str, tmp_path: Path
) -> None:
    ends = run_killed(mysql97, tmp_path, mysql_sink(mysql97, source), STEPS)
    assert ends == ["-9"] * len(STEPS) + ["0"]
    is_mirrored(mysql97, source, mysql97.execute, f"{source}_copy")


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["mysql97", "mariadb"])
def test_killed_at_random_steps(
    kind: str, mysql97: Server, source: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    target = request.getfixturevalue(kind)
    copies = [f"{source}{end}" for end in ("_copy", "_canal")]
    target.execute(*(f"DROP DATABASE IF EXISTS {each}" for each in copies))
    steps = random_steps(*IN_COMMITS)
    ends = run_killed(mysql97, tmp_path, mysql_sink(target, source), steps)
    assert ends == ["-9"] * len(steps) + ["0"]
    is_mirrored(mysql97, source, target.execute, f"{source}_copy")
    target.execute(*(f"DROP DATABASE {each}" for each in copies))


def killed_postgres(
    server: Server, postgres: PostgresServer, source: str, folder: Path, steps: Sequence[str]
) -> list[str]:
    postgres.execute("DROP SCHEMA IF EXISTS killed CASCADE", "DROP SCHEMA IF EXISTS kc CASCADE")
    mirror = {"address": postgres.address, "username": "postgres", "database": "killed",
              "cursor_database": "kc", "without_key": "rows"}  # fmt: skip
    sink = {"type": "postgres", "tables": rf"{source}\..*", "mirror": mirror}
    ends = run_killed(server, folder, sink, steps)
    is_mirrored(server, source, postgres.execute, "killed")
    return ends


def test_postgres_has_each_change_once(
    mysql97: Server, postgres: PostgresServer, source: str, tmp_path: Path
) -> None:
    ends = killed_postgres(mysql97, postgres, source, tmp_path, TRANSACTION_STEPS)
    assert ends == ["-9"] * len(TRANSACTION_STEPS) + ["0"]


@pytest.mark.soak
def test_postgres_has_each_change_once_at_random_steps(
    mysql97: Server, postgres: PostgresServer, source: str, tmp_path: Path
) -> None:
    steps = random_steps(*IN_COMMITS)
    ends = killed_postgres(mysql97, postgres, source, tmp_path, steps)
    assert ends == ["-9"] * len(steps) + ["0"]


def killed_duckdb(server: Server, source: str, folder: Path, steps: Sequence[str]) -> list[str]:
    path = folder / "file.duckdb"
    mirror = {"database": "copy", "cursor_database": "copy_canal", "without_key": "rows"}
    sink = {"type": "duckdb", "tables": rf"{source}\..*", "path": str(path), "mirror": mirror}
    ends = run_killed(server, folder, sink, steps)
    with duckdb.connect(str(path), read_only=True) as connection:
        is_mirrored(server, source, lambda sql: connection.execute(sql).fetchall(), "copy")
    return ends


def test_a_duckdb_file_has_each_change_once(mysql97: Server, source: str, tmp_path: Path) -> None:
    steps = TRANSACTION_STEPS[1::2]  # in the midst of a transaction, and behind one
    assert killed_duckdb(mysql97, source, tmp_path, steps) == ["-9"] * len(steps) + ["0"]


@pytest.mark.soak
def test_a_duckdb_file_has_each_change_once_at_random_steps(
    mysql97: Server, source: str, tmp_path: Path
) -> None:
    steps = random_steps(*IN_COMMITS)
    assert killed_duckdb(mysql97, source, tmp_path, steps) == ["-9"] * len(steps) + ["0"]


def rows_of(kind: str, folder: Path, source: str, table: str, *columns: str) -> list[Any]:
    """What somebody else reads in a lake's table, sorted."""
    if kind == "delta":
        found = DeltaTable(str(folder / "lake" / source / table)).to_pyarrow_table()
    else:
        with load_catalog("ray_canal", **options(kind, folder)["options"]) as catalog:
            found = catalog.load_table((source, table)).scan().to_arrow()
    return sorted(zip(*(found[name].to_pylist() for name in columns), strict=True))


def killed_changes(
    kind: str, server: Server, source: str, folder: Path, steps: Sequence[str]
) -> list[str]:
    """Every change, in tables of a lake: what the log has, by place."""
    lake = {**options(kind, folder), "mode": "append"}
    sink = {"type": kind, "tables": rf"{source}\..*", "lake": lake}
    ends = run_killed(server, folder, sink, steps)
    places: dict[str, list[tuple[int, int]]] = {"keyless": [], "t": []}
    for batch in canal.decode_files([str(server.binlogs()[-1])]):
        if batch.schema.metadata[b"canal.schema"].decode() == source:
            found = zip(*(batch[name].to_pylist() for name in ("position", "row")), strict=True)
            places[batch.schema.metadata[b"canal.table"].decode()] += found
    for table, expected in places.items():
        assert rows_of(kind, folder, source, table, "position", "row") == sorted(expected)
    return ends


def test_a_delta_table_has_each_change_once(mysql97: Server, source: str, tmp_path: Path) -> None:
    ends = killed_changes("delta", mysql97, source, tmp_path, LAKE_STEPS)
    assert ends == ["-9"] * len(LAKE_STEPS) + ["0"]


def killed_mirror(
    kind: str, server: Server, source: str, folder: Path, steps: Sequence[str]
) -> list[str]:
    """The rows, in a table of a lake whose commits two writers share."""
    lake = {**options(kind, folder), "without_key": "ignore", "writers": 2}
    sink = {"type": kind, "tables": rf"{source}\..*", "lake": lake}
    ends = run_killed(server, folder, sink, steps)
    theirs = [*map(tuple, server.execute(f"SELECT id, v FROM {source}.t ORDER BY 1"))]
    assert rows_of(kind, folder, source, "t", "id", "v") == theirs
    return ends


def test_a_delta_mirror_is_the_source(mysql97: Server, source: str, tmp_path: Path) -> None:
    ends = killed_mirror("delta", mysql97, source, tmp_path, MIRROR_STEPS)
    assert ends == ["-9"] * len(MIRROR_STEPS) + ["0"]


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_lakes_mirror_is_the_source_at_random_steps(
    kind: str, mysql97: Server, source: str, tmp_path: Path
) -> None:
    steps = random_steps("merge", "place")
    assert killed_mirror(kind, mysql97, source, tmp_path, steps) == ["-9"] * len(steps) + ["0"]


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_lakes_table_has_each_change_once_at_random_steps(
    kind: str, mysql97: Server, source: str, tmp_path: Path
) -> None:
    steps = random_steps("append")
    assert killed_changes(kind, mysql97, source, tmp_path, steps) == ["-9"] * len(steps) + ["0"]
