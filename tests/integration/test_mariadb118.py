"""What MariaDB 11.8 has beyond 10.11, on a real one: vectors, times up to 2106, its collations.

`make mariadb118` runs what else concerns MariaDB against it, `make mariadb118-short` a part of it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pytest

from ray_canal.canal.generated import EntryProtocol_pb2 as pb
from ray_canal.filter import FieldFilter
from ray_canal.offline import decode_chunks, decode_files
from ray_canal.schema.event_parser import EventParser
from ray_canal.schema.registry import SchemaRegistry
from ray_canal.sinks.net_change import of_one_schema
from ray_canal.sinks.port import SinkError
from ray_canal.views.arrow import batches
from ray_canal.views.entries import iter_entries
from tests.dumps import assert_equals_files, instance, opened, read_until
from tests.servers import Server, start

LAST = dt.datetime(2106, 2, 7, 6, 28, 15, tzinfo=dt.timezone.utc)
WRITES = (
    "create database eleven collate utf8mb4_uca1400_as_cs",
    "create table eleven.v (id int primary key, v vector(3) not null, w vector(300), u uuid, "
    "n varchar(9) collate utf8mb3_uca1400_ai_ci, e enum('ä', 'b'), t text unique, vector (v))",
    "insert into eleven.v values (1, vec_fromtext('[1,-2.5,3e7]'), null, "
    "'6ccd780c-baba-1026-9564-5b8c656024db', 'ñ', 'ä', 'long')",
    "update eleven.v set w = vec_fromtext(concat('[0', repeat(',0.5', 299), ']')), t = null",
    "alter table eleven.v add column x vector(2) after id, drop column t",
    "insert into eleven.v (id, x, v) values (2, vec_fromtext('[7,8]'), vec_fromtext('[0,0,0]'))",
    "set statement time_zone='+00:00' for "
    "create table eleven.t (id int primary key, t timestamp null) with system versioning",
    "set statement time_zone='+00:00' for "
    "insert into eleven.t values (1, '2106-02-07 06:28:15'), (2, '2040-01-01 00:00:00')",
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with start("mariadb118", tmp_path_factory.mktemp("eleven")) as server:
        yield server


@pytest.mark.parametrize("metadata", ["FULL", "NO_LOG"])
def test_vectors_and_late_times(server: Server, metadata: str) -> None:
    server.execute("drop database if exists eleven")
    with server.with_global("binlog_row_metadata", metadata):
        server.execute("flush binary logs")
        first = len(server.binlogs()) - 1
        server.execute(*WRITES)
        server.execute("flush binary logs")
    files = server.binlogs()[first:-1]
    rows: dict[str, list[dict[str, Any]]] = {}
    for batch in decode_files(files):
        name = batch.schema.metadata[b"canal.table"].decode()
        rows.setdefault(name, []).extend(row["after"] for row in batch.to_pylist())
        assert "after_present" not in batch.schema.names  # only of the hash that hides
    inserted, updated, added = rows["v"]
    assert inserted == {
        "id": 1, "v": [1.0, -2.5, 3e7], "w": None, "n": "ñ", "e": "ä", "t": "long",
        "u": "6ccd780c-baba-1026-9564-5b8c656024db",
    }  # fmt: skip
    assert updated["w"] == [0.0] + [0.5] * 299
    assert list(added) == ["id", "x", "v", "w", "u", "n", "e"]
    assert (added["x"], added["v"], added["w"]) == ([7.0, 8.0], [0.0] * 3, None)
    late = dt.datetime(2040, 1, 1, tzinfo=dt.timezone.utc)
    assert [row["t"] for row in rows["t"]] == [LAST, late]
    assert {row["row_end"] for row in rows["t"]} == {LAST.replace(microsecond=999999)}
    columns = [
        column
        for info, chunk in decode_chunks(files)
        for entry in iter_entries(chunk, 0, len(info.entries))
        if entry.header.tableName == "v" and entry.entryType == pb.ROWDATA
        for row in pb.RowChange.FromString(entry.storeValue).rowDatas
        for column in row.afterColumns
    ]
    assert {c.mysqlType for c in columns if c.name in "vwx"} == {
        "vector(3)", "vector(300)", "vector(2)"
    }  # fmt: skip
    assert not [column.name for column in columns if column.name.startswith("DB_ROW")]


def test_generated_columns_are_absent_and_a_mirror_says_what_to_do(server: Server) -> None:
    """Of an UPDATE, with binlog_row_image=FULL."""
    server.execute("drop database if exists made", "create database made", "flush binary logs")
    first = len(server.binlogs()) - 1
    server.execute(
        "create table made.t (id int primary key, n int, v int as (n+1) virtual, "
        "p int as (n+2) persistent)",
        "insert into made.t (id, n) values (1, 1)",
        "update made.t set n = 2",
        "flush binary logs",
    )
    files = server.binlogs()[first:-1]
    with pytest.raises(SinkError, match=r"made\.t lack columns \(v, p\).*'made\.t:v/p'"):
        of_one_schema(list(decode_files(files)))
    updated = list(decode_files(files))[-1].column("after_present").to_pylist()[-1]
    assert updated == {"id": True, "n": True, "v": None, "p": None}  # both may have changed
    fields = FieldFilter(black_fields="made.t:v/p")
    shown = [
        batch
        for info, chunk in decode_chunks(files)
        for batch in batches(chunk, 0, len(info.entries), fields=fields)
    ]
    table = of_one_schema(shown)
    assert table["after"].to_pylist() == [{"id": 1, "n": 1}, {"id": 1, "n": 2}]


@pytest.mark.parametrize("legacy", ["0", "1"])
def test_a_dump_is_the_file(server: Server, legacy: str) -> None:
    """Whether transactions name their events' ends (binlog_legacy_event_pos) or not, and where a
    large one becomes a file of its own (binlog_large_commit_threshold)."""
    server.execute("create database if not exists large", "drop table if exists large.t")
    server.execute("create table large.t (id int auto_increment primary key, t longtext unique)")
    with (
        server.with_global("binlog_legacy_event_pos", legacy),
        server.with_global("binlog_large_commit_threshold", "10485760"),
        opened(instance(server, chunk_bytes=1 << 16)) as source,
    ):
        server.execute(
            "insert into large.t (t) values ('first'), (null)",
            "insert into large.t (t) "
            "select concat(seq, repeat('x', 40000)) from large.seq_1_to_300",
            "xa start 'x'", "update large.t set t = 'xa' where id = 2", "xa end 'x'",
            "xa prepare 'x'", "xa commit 'x'",
            "insert into large.t (t) values ('last')",
        )  # fmt: skip
        chunks = read_until(source, *server.position())
    assert_equals_files(server, chunks)
    parser = EventParser(SchemaRegistry())
    rows = 0
    for chunk in chunks:
        info, decoded = parser.decode_chunk(chunk)
        assert info.failure is None
        rows += int(decoded.events["rows"].sum())
    assert rows == 2 + 300 + 1 + 1
