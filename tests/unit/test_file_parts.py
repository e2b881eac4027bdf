"""Binlog files decoded in parts are the files decoded as a whole: the same rows, from any parts."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from ray_canal.demo import binlog_files
from ray_canal.errors import ConfigError, CorruptEvent
from ray_canal.file_parts import FilePart, plan_parts
from ray_canal.offline import decode_files
from tests.unit.source.test_files import binlog, event, xid


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


def test_only_ranges_before_a_statement_are_parsed_first(tmp_path: Path) -> None:
    """A damaged event behind the last statement is found by its part, one before it at once."""
    bad = bytearray(xid(9))
    bad[-1] ^= 1  # its checksum
    path = tmp_path / "mysql-bin.000001"
    path.write_bytes(binlog(query("CREATE TABLE shop.a (id int)"), xid(1), bytes(bad)))
    parts = plan_parts([path], part_bytes=1)
    with pytest.raises(CorruptEvent, match=r"mysql-bin\.000001"):
        parted(parts)
    path.write_bytes(binlog(bytes(bad), xid(1), query("CREATE TABLE shop.a (id int)"), xid(2)))
    with pytest.raises(CorruptEvent, match=r"mysql-bin\.000001"):
        plan_parts([path], part_bytes=1)


def test_bad_input_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no binlog file given"):
        plan_parts([])
    with pytest.raises(ConfigError):
        plan_parts(binlog_files(), tables="(")
