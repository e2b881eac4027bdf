"""Row predicates mean what a real MySQL means by them: random expressions, and every type."""

from __future__ import annotations

import contextlib
from typing import Any

import pyarrow as pa
import pymysql
import pytest

from tests.servers import Server
from tests.unit.views.changes import batch_of
from tests.unit.views.test_predicate import (
    COLUMNS,
    ROW,
    TYPED,
    TYPED_CASES,
    Expressions,
    passing,
    random_image,
)

_SQL_TYPES = {"i": "INT", "j": "BIGINT", "f": "DOUBLE", "s": "VARCHAR(9)", "t": "VARCHAR(9)"}
_OURS = ("position", "execute_time", "gtid", "event_type", "+01:00")
"""What a batch has and a table has not; MySQL takes no ISO 8601 with an offset beside a column."""
_OUT_OF_RANGE = 1690
_TABLE = """
CREATE TABLE predicate.one (
  id BIGINT UNSIGNED, small TINYINT, price DECIMAL(10,2), wide DECIMAL(65,30), ratio FLOAT,
  name VARCHAR(20), raw VARBINARY(9), day DATE, at DATETIME(6), seen TIMESTAMP(6) NULL,
  took TIME(6), state ENUM('new', 'open'), tags SET('a', 'b'), `Mixed Case` SMALLINT
) COLLATE utf8mb4_0900_bin
"""


@pytest.fixture(scope="module")
def predicate_schema(mysql97: Server) -> Any:
    with mysql97.with_database("predicate"):
        yield


@pytest.mark.usefixtures("predicate_schema")
@pytest.mark.parametrize("seed", [100, 101])
def test_random_expressions(mysql97: Server, seed: int) -> None:
    made = Expressions(seed, quotients=False)  # MySQL's / has four digits more, ours is a DOUBLE
    rows = [
        (random_image(made.random), random_image(made.random) or dict.fromkeys(COLUMNS))
        for _ in range(80)
    ]
    batch = batch_of(COLUMNS, rows)
    names = [f"{image}_{column}" for image in ("before", "after") for column in COLUMNS]
    columns = ", ".join(f"{name} {_SQL_TYPES[name[-1]]}" for name in names)
    values = [
        [n, *(None if image is None else image.get(c) for image in images for c in COLUMNS)]
        for n, images in enumerate(rows)
    ]
    with contextlib.closing(mysql97.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(
            f"CREATE TABLE predicate.r{seed} (n INT, {columns}) COLLATE utf8mb4_0900_bin"
        )
        cursor.execute("SET NAMES utf8mb4 COLLATE utf8mb4_0900_bin")
        marks = ", ".join(["%s"] * len(values[0]))
        cursor.executemany(f"INSERT INTO predicate.r{seed} VALUES ({marks})", values)
        some = 0
        for _ in range(120):
            ours, _ = made.condition(3)
            theirs = ours.replace("before.", "before_").replace("after.", "after_")
            cursor.execute(f"SELECT n FROM predicate.r{seed} WHERE {theirs} ORDER BY n")
            wanted = [n for (n,) in cursor.fetchall()]
            assert passing(ours, batch) == wanted, f"seed {seed}: {ours}"
            some += 0 < len(wanted) < len(rows)
    assert some > 50


@pytest.mark.usefixtures("predicate_schema")
def test_every_type(mysql97: Server) -> None:
    batch = batch_of(TYPED, [(None, ROW)])
    values = [
        ",".join(value) if pa.types.is_list(TYPED[column]) else value
        for column, value in ROW.items()
    ]
    with contextlib.closing(mysql97.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SET NAMES utf8mb4 COLLATE utf8mb4_0900_bin")
        cursor.execute("SET SESSION time_zone = '+00:00'")
        cursor.execute(_TABLE)
        marks = ", ".join(["%s"] * len(values))
        cursor.execute(f"INSERT INTO predicate.one VALUES ({marks})", values)
        for text, _ in TYPED_CASES:
            if any(word in text for word in _OURS):
                continue
            theirs = text.replace("before.", "`before`.").replace("AFTER.", "after.")
            try:
                cursor.execute(
                    f"SELECT ({theirs}) IS TRUE FROM predicate.one AS after "
                    "LEFT JOIN predicate.one AS `before` ON FALSE"
                )
            except pymysql.OperationalError as error:
                if error.args[0] != _OUT_OF_RANGE:  # unsigned: below zero is an error
                    raise
                continue
            ((wanted,),) = cursor.fetchall()
            assert bool(passing(text, batch)) is bool(wanted), text
