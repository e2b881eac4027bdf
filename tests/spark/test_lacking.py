"""Rows from before a column was added, and behind a DROP COLUMN, of images that lack columns."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pytest

import ray_canal as canal
from ray_canal.spark.frames import to_frames
from ray_canal.spark.lacking import told
from ray_canal.spark.parquet import ParquetSink, read_changes, read_rows
from ray_canal.spark.row_transfer import Way
from ray_canal.spark.schema import readable_batch, readable_schema
from ray_canal.spark.state import latest
from tests.servers import Server
from tests.spark.conftest import ITEM, Message, change_batch

pytestmark = pytest.mark.usefixtures("interpreted")

ADDED = (
    "INSERT INTO v.t (id, a) VALUES (1, 1)",  # partial
    "INSERT INTO v.t VALUES (2, 2, 'whole'), (3, 3, 'moves'), (4, 4, 'goes')",
    "UPDATE v.t SET a = 10 WHERE id IN (1, 2)",
    "ALTER TABLE v.t ADD COLUMN c INT{default}",
    "UPDATE v.t SET b = 'later' WHERE id = 1",
    "UPDATE v.t SET id = 30 WHERE id = 3",
    "INSERT INTO v.t (id, a, b, c) VALUES (5, 5, NULL, 55)",
    "INSERT INTO v.t (id, b) VALUES (6, 'six')",
    "UPDATE v.t SET c = NULL WHERE id = 5",
    "DELETE FROM v.t WHERE id = 4",
)
DROPPED = (
    "INSERT INTO v.t (id, a) VALUES (1, 1)",
    "INSERT INTO v.t VALUES (2, 2, 'whole'), (3, 3, 'moves')",
    "ALTER TABLE v.t DROP COLUMN b",
    "UPDATE v.t SET a = 10 WHERE id = 1",
    "UPDATE v.t SET id = 30 WHERE id = 3",
    "INSERT INTO v.t (id) VALUES (4)",
    "INSERT INTO v.t VALUES (5, 5)",
)


class Changes:
    """What statements on a new table v.t have written, in one binlog file."""

    def __init__(self, server: Server, statements: tuple[str, ...], image: str) -> None:
        server.execute("DROP DATABASE IF EXISTS v", "CREATE DATABASE v", "FLUSH BINARY LOGS")
        self.file = server.binlogs()[-1]
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"SET binlog_row_image = '{image}'")
            cursor.execute("CREATE TABLE v.t (id INT PRIMARY KEY, a INT DEFAULT 7, b TEXT)")
            for statement in statements:
                cursor.execute(statement)
        server.execute("FLUSH BINARY LOGS")
        self.selected = {row[0]: row for row in server.execute("SELECT * FROM v.t")}
        self.batches = list(canal.decode_files([self.file], tables=r"v\.t"))


def rows(frame: Any) -> dict[int, tuple[Any, ...]]:
    found = [tuple(row) for row in frame.collect()]
    assert len({row[0] for row in found}) == len(found)
    return {row[0]: row for row in found}


def of_one_message(spark: Any, changes: Changes, tmp_path: Path, **options: Any) -> Any:
    shown = {}
    for way in get_args(Way):
        with to_frames(spark, changes.batches, way=way) as made:
            frame = made.by_table["v.t"]
            shown[way] = frame.collect()
            if way == "driver":
                found = rows(latest(frame, **options))
    assert all(each == shown["driver"] for each in shown.values())
    return found


def of_parquet(spark: Any, changes: Changes, tmp_path: Path, **options: Any) -> Any:
    sink = ParquetSink(spark, str(tmp_path / "out"))
    for number, batch in enumerate(changes.batches):
        with to_frames(spark, [batch]) as made:
            sink(made.by_table, Message(number, [batch]))
    found = rows(read_rows(spark, str(tmp_path / "out"), "v.t", **options))
    changed = read_changes(spark, str(tmp_path / "out"), "v.t")
    assert "before_present" not in changed.columns or rows(latest(changed, **options)) == found
    return found


def of_one_commit(spark: Any, changes: Changes, tmp_path: Path, **options: Any) -> Any:
    """All versions in one file."""
    with to_frames(spark, changes.batches) as made:
        ParquetSink(spark, str(tmp_path / "one"))(made.by_table, Message(1, changes.batches))
    return rows(read_rows(spark, str(tmp_path / "one"), "v.t", **options))


def of_files(spark: Any, changes: Changes, tmp_path: Path, **options: Any) -> Any:
    frame = spark.read.format("ray_canal").option("table", "v.t").load(str(changes.file))
    return rows(latest(frame, **options))


def of_a_stream(spark: Any, changes: Changes, tmp_path: Path, **options: Any) -> Any:
    read = spark.read.format("ray_canal").option("table", "v.t")
    (found,) = streamed(spark, changes, tmp_path, read.load(str(changes.file)).schema, {}, options)
    return found


def streamed(
    spark: Any, changes: Changes, tmp_path: Path, columns: Any, given: Any, options: Any
) -> list[Any]:
    """What `latest` makes of each micro-batch. `columns`: None: those that `load()` finds."""
    name = f"lacking_{uuid.uuid4().hex[:8]}"
    source = {"files": [str(changes.file)], "start": "earliest"}
    canal.start(
        {"meta": {"backend": "memory"}, "instance": [{"destination": name, "source": source}]}
    )
    found: list[Any] = []
    try:
        reader = spark.readStream.format("ray_canal").option("destination", name).options(**given)
        reader = reader.option("table", "v.t").option("client_id", 1)
        query = (
            (reader if columns is None else reader.schema(columns))
            .load()
            .writeStream.foreachBatch(lambda f, _: found.append(rows(latest(f, **options))))
            .option("checkpointLocation", str(tmp_path / uuid.uuid4().hex))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(300)
    finally:
        canal.stop(name)
    return found


WAYS: list[Any] = [
    of_one_message,
    of_parquet,
    of_files,
    of_a_stream,
    pytest.param(of_one_commit, marks=pytest.mark.soak),
]


@pytest.mark.parametrize("way", WAYS)
def test_a_column_that_was_added_is_its_default(
    spark: Any, mysql97: Server, tmp_path: Path, way: Callable[..., Any]
) -> None:
    """MINIMAL images: the rows are what SELECT shows, with no error."""
    statements = tuple(each.format(default=" DEFAULT 9") for each in ADDED)
    changes = Changes(mysql97, statements, "MINIMAL")
    told = way(spark, changes, tmp_path, defaults={"a": 7, "b": None, "c": 9})
    assert told == changes.selected


@pytest.mark.parametrize(
    "way",
    [
        of_one_message,
        of_files,
        pytest.param(of_parquet, marks=pytest.mark.soak),
        pytest.param(of_one_commit, marks=pytest.mark.soak),
        pytest.param(of_a_stream, marks=pytest.mark.soak),
    ],
)
def test_a_column_that_was_dropped_is_null(
    spark: Any, mysql97: Server, tmp_path: Path, way: Callable[..., Any]
) -> None:
    changes = Changes(mysql97, DROPPED, "MINIMAL")
    found = way(spark, changes, tmp_path, defaults={"a": 7})
    assert {key: row[:2] for key, row in found.items()} == changes.selected
    assert found == {
        1: (1, 10, None), 2: (2, 2, "whole"), 30: (30, 3, None), 4: (4, 7, None), 5: (5, 5, None)
    }  # fmt: skip


def test_without_a_default_it_is_null(spark: Any, mysql97: Server) -> None:
    """As of whole images; what an INSERT leaves out is an error all the same."""
    changes = Changes(mysql97, tuple(each.format(default="") for each in ADDED), "MINIMAL")
    with to_frames(spark, changes.batches) as made:
        frame = made.by_table["v.t"]
        old = frame.where("after.id < 5 OR before.id < 5 OR after.id = 30")
        known = {"a": 7, "b": None}
        assert rows(latest(old, defaults=known)) == {
            key: row for key, row in changes.selected.items() if key not in (5, 6)
        }
        with pytest.raises(Exception, match="no change tells column c"):
            latest(frame, defaults=known).collect()
        flags = {row.id: row.present.c for row in latest(frame, absent="flag").collect()}
        assert flags == {1: False, 2: False, 30: False, 5: True, 6: False}
        with_default = latest(frame, defaults={"c": 9}, absent="flag").collect()
        assert all(row.present.c for row in with_default)


def test_a_column_that_was_renamed_is_not_null(spark: Any, mysql97: Server) -> None:
    """MINIMAL: that `b` became `d` is not in the frame, so a row that was changed since is
    not known."""
    changes = Changes(
        mysql97,
        (
            "INSERT INTO v.t VALUES (1, 1, 'one')",
            "ALTER TABLE v.t RENAME COLUMN b TO d",
            "UPDATE v.t SET a = 2 WHERE id = 1",
        ),
        "MINIMAL",
    )
    with to_frames(spark, changes.batches) as made:
        frame = made.by_table["v.t"]
        with pytest.raises(Exception, match="no change tells column d"):
            latest(frame).collect()
        (row,) = latest(frame, absent="flag").collect()
        assert row.present.d is False


def test_defaults_count_for_whole_images_in_files(
    spark: Any, mysql97: Server, tmp_path: Path
) -> None:
    """FULL images: of rows from before the column was added, the frame of one message cannot
    know it."""
    statements = tuple(each.format(default=" DEFAULT 9") for each in ADDED)
    changes = Changes(mysql97, statements, "FULL")
    assert of_parquet(spark, changes, tmp_path, defaults={"c": 9}) == changes.selected
    untold = of_parquet(spark, changes, tmp_path / "untold")
    assert untold[2] == (2, 10, "whole", None)
    with to_frames(spark, changes.batches) as made:
        assert "after_present" not in made.by_table["v.t"].columns


def test_a_stream_of_partial_images_begins_with_whole_ones(
    spark: Any, mysql97: Server, tmp_path: Path
) -> None:
    """MINIMAL: `load()` sees the first message, whose images are whole."""
    changes = Changes(
        mysql97,
        (
            "INSERT INTO v.t VALUES (1, 1, REPEAT('x', 5000))",
            "ALTER TABLE v.t COMMENT = 'a message ends here'",
            "UPDATE v.t SET a = 2 WHERE id = 1",
        ),
        "MINIMAL",
    )
    given = {"batch_size": "1", "maxBytesPerTrigger": "1k"}
    with pytest.raises(Exception, match=r"images of v\.t lack columns"):
        streamed(spark, changes, tmp_path, None, given, {"absent": "null"})
    given["images"] = "partial"
    found = streamed(spark, changes, tmp_path, None, given, {"absent": "null"})
    assert found == [{1: (1, 1, "x" * 5000)}, {1: (1, 2, None)}]


def test_a_batch_tells_which_columns_it_lacks() -> None:
    changes = [
        ("INSERT", None, {"id": 1, "name": "x"}),
        ("UPDATE", {"id": 1, "name": None}, {"id": 1, "name": None}),
        ("DELETE", {"id": 1, "name": "x"}, None),
    ]
    batch = change_batch(changes, ITEM)
    wide = pa.struct([*ITEM, pa.field("new", pa.int32())])
    flags = pa.struct([("id", pa.bool_()), ("name", pa.bool_())])
    given = {
        "before": [None, {"id": True, "name": False}, None],
        "after": [None, {"id": True, "name": None}, None],
    }
    wanted = {"before": wide, "after": wide}
    for side in given:
        wanted[f"{side}_present"] = pa.struct([(name, pa.bool_()) for name in wide.names])
    schema = pa.schema(
        [pa.field(f.name, wanted.get(f.name, f.type)) for f in batch.schema]
        + [pa.field(name, wanted[name]) for name in wanted if name.endswith("_present")]
    )
    whole = {"id": True, "name": True, "new": None}
    shown = readable_batch(told(batch, schema).slice(0), readable_schema(schema)).to_pydict()
    assert shown["before_present"] == [None, whole, whole]
    assert shown["after_present"] == [whole, whole, None]
    for side, values in given.items():
        batch = batch.append_column(f"{side}_present", pa.array(values, flags))
    assert told(batch, batch.schema) is batch
    shown = readable_batch(told(batch.slice(1), schema), readable_schema(schema)).to_pydict()
    assert shown["before_present"] == [{"id": True, "name": False, "new": None}, whole]
    assert shown["after_present"] == [{"id": True, "name": None, "new": None}, None]
