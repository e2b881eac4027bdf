"""Images that lack columns: the last known value of each, and never a NULL that nobody wrote."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import ray_canal as canal
from ray_canal.errors import ConfigError
from ray_canal.spark.frames import to_frames
from ray_canal.spark.parquet import ParquetSink, read_changes
from ray_canal.spark.state import latest
from tests.servers import Server
from tests.spark.conftest import Message, change_batch

pytestmark = pytest.mark.usefixtures("interpreted")

DEFAULTS = {"a": 7, "b": None, "c": "x", "n": 5}


def changes(server: Server, *statements: str, image: str = "MINIMAL") -> list[Any]:
    """The batches of these statements on a new table m.t."""
    server.execute("DROP DATABASE IF EXISTS m", "CREATE DATABASE m", "FLUSH BINARY LOGS")
    file = server.binlogs()[-1]
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SET binlog_row_image = '{image}', time_zone = '+00:00'")
        cursor.execute(
            "CREATE TABLE m.t (id INT PRIMARY KEY, a INT DEFAULT 7, b TEXT, "
            "c VARCHAR(20) DEFAULT 'x', n INT NULL DEFAULT 5)"
        )
        for statement in statements:
            cursor.execute(statement)
    return list(canal.decode_files([file], tables=r"m\.t"))


def rows(frame: Any) -> dict[int, tuple[Any, ...]]:
    found = [tuple(row) for row in frame.collect()]
    assert len({row[0] for row in found}) == len(found)
    return {row[0]: row for row in found}


def selected(server: Server) -> dict[int, tuple[Any, ...]]:
    return {row[0]: row for row in server.execute("SELECT * FROM m.t")}


def test_each_column_has_its_last_known_value(spark, mysql97: Server) -> None:
    """A10: of MINIMAL images, also through a change of the key, and a key that comes back."""
    batches = changes(
        mysql97,
        "INSERT INTO m.t VALUES (1, 1, 'one', 'c1', NULL), (2, 2, 'two', 'c2', 2)",
        "INSERT INTO m.t (id, b) VALUES (3, 'three')",
        "UPDATE m.t SET a = 10 WHERE id = 1",
        "UPDATE m.t SET b = NULL WHERE id = 2",
        "UPDATE m.t SET id = 20 WHERE id = 2",
        "UPDATE m.t SET id = 200, n = NULL WHERE id = 20",
        "UPDATE m.t SET c = 'late' WHERE id = 200",
        "DELETE FROM m.t WHERE id = 1",
        "INSERT INTO m.t (id, a) VALUES (1, 11)",
        "UPDATE m.t SET a = 12 WHERE id = 3",
    )
    assert any("after_present" in batch.schema.names for batch in batches)
    with to_frames(spark, batches) as made:
        frame = made.by_table["m.t"]
        assert rows(latest(frame, defaults=DEFAULTS)) == selected(mysql97)
        with pytest.raises(Exception, match="no change tells column"):
            latest(frame).collect()
        assert rows(latest(frame, absent="null"))[1] == (1, 11, None, None, None)
        flagged = {row.id: row for row in latest(frame, absent="flag").collect()}
        assert flagged[1].present.asDict() == {
            "id": True, "a": True, "b": False, "c": False, "n": False
        }  # fmt: skip
        assert all(flagged[200].present)
        with pytest.raises(ConfigError, match="no column nothing"):
            latest(frame, defaults={"nothing": 1})


def test_what_began_before_the_data_is_not_known(spark, mysql97: Server) -> None:
    """A10: the first change of a row is an update of one column."""
    batches = changes(
        mysql97, "INSERT INTO m.t VALUES (1, 1, 'one', 'c', 1)", "UPDATE m.t SET a = 2 WHERE id = 1"
    )
    late = [batch.slice(1) if batch.num_rows > 1 else batch for batch in batches][-1:]
    with to_frames(spark, late) as made:
        frame = made.by_table["m.t"]
        with pytest.raises(Exception, match=r"of the row .* no change tells column"):
            latest(frame, defaults=DEFAULTS).collect()
        assert rows(latest(frame.select("*"), absent="null"))[1] == (1, 2, None, None, None)


def test_columns_may_have_any_names(spark) -> None:
    odd = "a.b`c"
    row = pa.struct([("id", pa.int32()), (odd, pa.int32())])
    changes = [
        ("INSERT", None, {"id": 1, odd: 5}),
        ("UPDATE", {"id": 1, odd: None}, {"id": 2, odd: None}),
    ]
    batch = change_batch(changes, row)
    flags = pa.struct([("id", pa.bool_()), (odd, pa.bool_())])
    for side, has in (("before", [None, False]), ("after", [True, False])):
        given = [None if each is None else {"id": True, odd: each} for each in has]
        batch = batch.append_column(f"{side}_present", pa.array(given, flags))
    with to_frames(spark, [batch]) as made:
        frame = made.by_table["shop.item"]
        assert rows(latest(frame)) == {2: (2, 5)}


@pytest.mark.parametrize(
    "kind", ["mysql97", *(pytest.param(k, marks=pytest.mark.soak) for k in ("mariadb", "mysql56"))]
)
@pytest.mark.parametrize("image", ["MINIMAL", "NOBLOB"])
def test_the_mirror_is_select(
    kind: str, image: str, request: pytest.FixtureRequest, spark: Any, tmp_path: Path
) -> None:
    """A10: random changes; what the Parquet sink's files give is what the server holds."""
    server: Server = request.getfixturevalue(kind)
    rng = random.Random(f"{kind}{image}")
    statements = []
    for number in range(150):
        key = rng.randrange(1, 25)
        values = {
            "a": str(rng.randrange(100)),
            "b": rng.choice(["NULL", f"'text {number}'", "''"]),
            "c": rng.choice(["NULL", f"'c{number}'"]),
            "n": rng.choice(["NULL", str(number)]),
        }
        some = rng.sample(sorted(values), rng.randint(1, 3))
        roll = rng.random()
        if roll < 0.35:
            names, texts = ", ".join(["id", *some]), ", ".join([str(key), *map(values.get, some)])
            statements.append(f"INSERT IGNORE INTO m.t ({names}) VALUES ({texts})")
        elif roll < 0.75:
            sets = ", ".join(f"{name} = {values[name]}" for name in some)
            statements.append(f"UPDATE m.t SET {sets} WHERE id BETWEEN {key} AND {key + 2}")
        elif roll < 0.85:
            statements.append(f"UPDATE IGNORE m.t SET id = {rng.randrange(1, 60)} WHERE id = {key}")
        elif roll < 0.92 and (kind, image) != ("mariadb", "MINIMAL"):
            # MariaDB writes REPLACE as an UPDATE, and of MINIMAL images only the columns that the
            # statement names, though the others take their defaults: its replicas differ, too.
            statements.append(f"REPLACE INTO m.t (id, a) VALUES ({key}, {values['a']})")
        else:
            statements.append(f"DELETE FROM m.t WHERE id = {key}")
    batches = changes(server, *statements, image=image)
    sink = ParquetSink(spark, str(tmp_path / "out"))
    half = len(batches) // 2 or 1
    for number, part in enumerate((batches[:half], batches[half:])):
        with to_frames(spark, part) as made:
            sink(made.by_table, Message(number, part))
    found = read_changes(spark, str(tmp_path / "out"), "m.t")
    assert rows(latest(found, defaults=DEFAULTS)) == selected(server)


def test_a_change_of_json_alone_is_not_its_value(spark, mysql97: Server) -> None:
    """A10: MINIMAL and PARTIAL_JSON: what a document became is not in the log."""
    mysql97.execute("DROP DATABASE IF EXISTS j", "CREATE DATABASE j", "FLUSH BINARY LOGS")
    file = mysql97.binlogs()[-1]
    with mysql97.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE j.t (id INT PRIMARY KEY, doc JSON, n INT)")
        cursor.execute(
            """INSERT INTO j.t VALUES (1, '{"a": 1, "b": "a text that is long enough"}', 1)"""
        )
        cursor.execute("SET binlog_row_image = 'MINIMAL'")
        cursor.execute("SET binlog_row_value_options = 'PARTIAL_JSON'")
        cursor.execute("UPDATE j.t SET doc = JSON_SET(doc, '$.a', 2) WHERE id = 1")
    batches = list(canal.decode_files([file], tables=r"j\.t"))
    with to_frames(spark, batches) as made:
        frame = made.by_table["j.t"]
        with pytest.raises(Exception, match="but for a change of its value"):
            latest(frame).collect()
        (row,) = latest(frame, absent="flag").collect()
        assert (row.doc, row.n) == (None, 1)
        assert row.present.asDict() == {"id": True, "doc": None, "n": True}
