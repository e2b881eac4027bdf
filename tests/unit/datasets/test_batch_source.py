"""Batches as blocks of Ray Data: each row has its table; tables that do not go together."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ray_canal.datasets.batch_source import BatchSource, with_table
from ray_canal.demo import binlog_files
from ray_canal.errors import ConfigError
from ray_canal.file_parts import plan_parts
from ray_canal.offline import decode_files


def batch(table: str, column: pa.Array) -> pa.RecordBatch:
    names = pa.array(["mysql-bin.000001"] * len(column)).dictionary_encode()
    after = pa.StructArray.from_arrays([column], ["id"])
    notes = {b"canal.schema": b"shop", b"canal.table": table.encode()}
    schema = pa.schema([("journal_name", names.type), ("after", after.type)], notes)
    return pa.RecordBatch.from_arrays([names, after], schema=schema)


def blocks(*batches: pa.RecordBatch) -> list[pa.Table]:
    source = BatchSource("Test", [lambda: [list(batches)]])
    (task,) = source.get_read_tasks(1)
    return list(task())


def test_each_row_has_its_table_and_no_metadata_speaks_for_all() -> None:
    found = blocks(batch("a", pa.array([1, 2])), batch("b", pa.array([3])))
    assert [table.schema.metadata for table in found] == [None, None]
    joined = pa.concat_tables(found).to_pylist()
    assert [(row["table"], row["after"]["id"]) for row in joined] == [
        ("shop.a", 1),
        ("shop.a", 2),
        ("shop.b", 3),
    ]


def test_rows_of_more_files_than_a_byte_counts_go_into_one_block() -> None:
    one = batch("a", pa.array([1]))
    many = [
        with_table(one.set_column(0, "journal_name", pa.array([f"bin.{n:06}"]).dictionary_encode()))
        for n in range(200)
    ]
    joined = pa.Table.from_batches(many).combine_chunks()
    assert joined.group_by("journal_name").aggregate([([], "count_all")]).num_rows == 200


def test_tables_that_do_not_go_together_are_named() -> None:
    assert len(blocks(batch("a", pa.array([1], pa.int8())), batch("b", pa.array([1])))) == 2
    with pytest.raises(ConfigError, match=r"column id is string in shop\.b and int64 in shop\.a"):
        blocks(batch("a", pa.array([1])), batch("b", pa.array(["x"])))


def test_a_task_reads_its_part_alone() -> None:
    parts = plan_parts(binlog_files(), tables=r"shop\.orders", part_bytes=20_000)
    source = BatchSource("Test", [part.batches for part in parts], 1 << 20)
    tasks = source.get_read_tasks(1)
    assert len(tasks) == len(parts) > 3
    found = [row for task in tasks for table in task() for row in table.to_pylist()]
    whole = [
        row
        for each in decode_files(binlog_files(), tables=r"shop\.orders")
        for row in each.to_pylist()
    ]
    assert [{k: v for k, v in row.items() if k != "table"} for row in found] == whole
