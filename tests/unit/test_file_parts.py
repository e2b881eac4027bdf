"""Binlog files decoded in parts are the files decoded as a whole: the same rows, from any parts."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ray_canal.demo import binlog_files
from ray_canal.errors import ConfigError, CorruptEvent
from ray_canal.file_parts import FilePart, plan_parts
from ray_canal.offline import decode_files
from tests.unit.source.test_files import binlog, event, xid

GOLDEN = Path(__file__).parents[1] / "golden/data"


def rows(batches: list[pa.RecordBatch]) -> list[tuple[str, str, dict[str, object]]]:
    """Each row with its table and its columns' types, in the log's order."""
    found = []
    for batch in batches:
        notes = batch.schema.metadata
        name = f"{notes[b'canal.schema'].decode()}.{notes[b'canal.table'].decode()}"
        key = notes.get(b"canal.key", b"").decode()
        found += [(name, f"{key} {batch.schema.field('after').type}", r) for r in batch.to_pylist()]
    return sorted(found, key=lambda each: (each[2]["journal_name"], each[2]["position"],
                                           each[2]["row"], each[0]))  # fmt: skip


def parted(parts: list[FilePart]) -> list[pa.RecordBatch]:
    shuffled = list(parts)
    random.Random(7).shuffle(shuffled)  # each stands by itself
    return [batch for part in shuffled for batches in part.batches() for batch in batches]


@pytest.mark.parametrize("part_bytes", [1, 2500, 60_000, 1 << 30])
def test_parts_have_the_rows_of_the_whole(part_bytes: int) -> None:
    parts = plan_parts(binlog_files(), part_bytes=part_bytes)
    assert len(parts) == 3 if part_bytes == 1 << 30 else len(parts) > 3
    assert rows(parted(parts)) == rows(list(decode_files(binlog_files())))


def test_tables_are_chosen() -> None:
    parts = plan_parts(binlog_files(), tables=r"shop\.orders", part_bytes=9000)
    whole = list(decode_files(binlog_files(), tables=r"shop\.orders"))
    assert whole
    assert rows(parted(parts)) == rows(whole)


def query(sql: str, schema: str = "shop") -> bytes:
    name = schema.encode()
    head = (7).to_bytes(4, "little") + bytes(4) + bytes([len(name)]) + bytes(4)
    return event(2, head + name + b"\0" + sql.encode())


def test_what_a_part_knows_of_tables_comes_from_the_log_before(tmp_path: Path) -> None:
    """CREATE in the first file, DROP DATABASE in the last: its effects are those of the whole."""
    first = [query("CREATE TABLE shop.a (id int)"), *(xid(n) for n in range(50))]
    second = [*(xid(n) for n in range(50)), query("CREATE TABLE shop.b (id int)")]
    third = [*(xid(n) for n in range(50)), query("DROP DATABASE shop"), xid(1)]
    paths = [tmp_path / f"mysql-bin.00000{number}" for number in (1, 2, 3)]
    for path, events in zip(paths, (first, second, third), strict=True):
        path.write_bytes(binlog(*events))
    whole = rows(list(decode_files(paths)))
    assert [(name, row["event_type"]) for name, _, row in whole] == [
        ("shop.a", "ERASE"),
        ("shop.b", "ERASE"),
    ]
    for part_bytes in (1, 300, 1 << 20):
        assert rows(parted(plan_parts(paths, part_bytes=part_bytes))) == whole


def rows_of_a_table(name: bytes) -> list[bytes]:
    """A row of a table whose columns (one, `id int`) its TABLE_MAP tells."""
    table_id, told = (7).to_bytes(6, "little"), b"\x01\x01\0" + b"\x04\x03\x02id"
    names = b"\x01d\0" + bytes([len(name)]) + name + b"\0"
    table_map = event(19, table_id + b"\x01\0" + names + b"\x01\x03\0\0" + told)
    return [table_map, event(23, table_id + b"\x01\0" + b"\x01\x01\0" + (5).to_bytes(4, "little"))]


@pytest.mark.parametrize("table", ["made", "before"])
def test_a_statement_has_the_columns_of_rows_far_before_it(tmp_path: Path, table: str) -> None:
    """Of a table that no statement has made, rows alone tell; they are in other parts."""
    first = [query("CREATE TABLE d.made (id int)"), *(xid(n) for n in range(40_000))]  # over a MiB
    paths = [tmp_path / f"mysql-bin.00000{number}" for number in (1, 2)]
    paths[0].write_bytes(binlog(*first, *rows_of_a_table(b"before")))
    paths[1].write_bytes(binlog(xid(1), query(f"TRUNCATE TABLE d.{table}", "d"), xid(2)))
    whole = list(decode_files(paths))
    assert [batch.num_rows for batch in whole] == [1, 1]
    assert whole[1].schema.field("after").type.names == ["id"]
    for part_bytes in (500_000, 1 << 30):
        assert rows(parted(plan_parts(paths, part_bytes=part_bytes))) == rows(whole)


def test_damage_far_from_statements_is_found_by_its_part(tmp_path: Path) -> None:
    """What is around a statement is read at once; a file's end counts as one."""
    bad = bytearray(xid(9))
    bad[-1] ^= 1  # its checksum
    path, many = tmp_path / "mysql-bin.000001", [xid(n) for n in range(40_000)]
    path.write_bytes(binlog(bytes(bad), *many, query("CREATE TABLE shop.a (id int)"), *many))
    parts = plan_parts([path])
    with pytest.raises(CorruptEvent, match=r"mysql-bin\.000001"):
        parted(parts)
    path.write_bytes(binlog(*many, bytes(bad), query("CREATE TABLE shop.a (id int)"), *many))
    with pytest.raises(CorruptEvent, match=r"mysql-bin\.000001"):
        plan_parts([path])


def test_bad_input_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no binlog file given"):
        plan_parts([])
    with pytest.raises(ConfigError):
        plan_parts(binlog_files(), tables="(")


def test_one_path_is_a_file_and_no_list_of_letters() -> None:
    path = binlog_files()[0]
    expected = [row for batch in decode_files([path]) for row in batch.to_pylist()]
    for one in (path, str(path)):
        found: Any = one  # a str is a sequence of str, and a Path is none
        assert [row for batch in decode_files(found) for row in batch.to_pylist()] == expected
        (part,) = plan_parts(found)
        assert part.range.path == str(path)


@pytest.mark.parametrize(
    "name", ["mysql97/mysql_dml", "mysql56/mysql56_dml", "mariadb1011/maria_dml"]
)
def test_columns_of_a_part_tell_which_images_lack_some(name: str) -> None:
    """Of chunks behind the first one, too: without it, absent columns were read as NULL."""
    path = GOLDEN / f"{name}.binlog"
    known = GOLDEN / f"{name}.schema.sql"
    (part,) = plan_parts([path], schema_sql=known if known.exists() else None)
    config = part.config.model_copy(update={"chunk_bytes": 1})  # a chunk for each transaction
    part = replace(part, config=config)
    batches = [batch for batches in part.batches() for batch in batches]
    partial = [batch.schema for batch in batches if "before_present" in batch.schema.names]
    assert partial
    for schema in partial:
        notes = schema.metadata
        table = f"{notes[b'canal.schema'].decode()}.{notes[b'canal.table'].decode()}"
        told = [s for s in part.schemas(table) if "before_present" in s.names]
        assert any(s.field("before_present") == schema.field("before_present") for s in told)
