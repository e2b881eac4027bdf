"""What each of DuckDB's errors means for the sink: again, aside, another schema, or the end."""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from ray_canal.config import MirrorConfig
from ray_canal.sinks.column_specs import ColumnSpec
from ray_canal.sinks.databases.duckdb import DuckDatabase, _kind, _shown
from ray_canal.sinks.port import SinkError
from ray_canal.sinks.schema_follower import TableName


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("SELECT * FROM nowhere", "schema"),
        ("SELECT nothing FROM t", "schema"),
        ("INSERT INTO t VALUES ('no number')", "poison"),
        ("INSERT INTO t VALUES (1)", "poison"),  # it is there already
        ("SELEKT", "fatal"),
    ],
)
def test_errors(sql: str, kind: str) -> None:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
        connection.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(duckdb.Error) as raised:
            connection.execute(sql)
    assert _kind(raised.value) == kind


def test_wide_decimals_are_text_for_it_has_none() -> None:
    wide = pa.chunked_array([pa.array(["1.5", "0", None]).cast(pa.decimal256(60, 9))])
    assert _shown(wide).to_pylist() == ["1.500000000", "0.000000000", None]
    narrow = pa.chunked_array([pa.array(["1.5"]).cast(pa.decimal128(10, 2))])
    assert pa.types.is_decimal128(_shown(narrow).type)


def test_a_column_named_rowid_lets_no_equal_rows_go(tmp_path: Path) -> None:
    """It hides DuckDB's own number of a row, so that all rows with its value would go."""
    database = DuckDatabase(MirrorConfig(), tmp_path / "file.duckdb")
    database.connect()
    name, rows = TableName("s", "t"), pa.table({"RowId": [1, 1], "v": [1, 2]})
    database.create(name, [ColumnSpec(f.name, f.type) for f in rows.schema])
    database.upsert(name, (), rows)
    with pytest.raises(SinkError, match="rowid") as raised:
        database.delete_like(name, rows.slice(1))
    assert raised.value.kind == "schema"
    database.close()


@pytest.mark.parametrize("length", [0, 4096, 8192])
def test_a_file_that_a_full_disk_cut_off_as_it_was_made_is_made_again(
    length: int, tmp_path: Path
) -> None:
    """DuckDB says of it that it is no database, also when there is room again."""
    path = tmp_path / "file.duckdb"
    duckdb.connect(str(path)).close()
    os.truncate(path, length)
    database = DuckDatabase(MirrorConfig(), path)
    with pytest.raises(SinkError) as raised:
        database.connect()
    assert raised.value.kind == "retry"
    database.connect()
    database.close()


def test_a_file_of_another_program_stays(tmp_path: Path) -> None:
    path = tmp_path / "file.duckdb"
    path.write_text("mine")
    with pytest.raises(SinkError):
        DuckDatabase(MirrorConfig(), path).connect()
    assert path.read_text() == "mine"


def test_a_folder_that_cannot_be_made_is_told() -> None:
    with pytest.raises(SinkError, match="cannot write /proc/none/file: No such file") as raised:
        DuckDatabase(MirrorConfig(), Path("/proc/none/file")).connect()
    assert raised.value.kind == "retry"
