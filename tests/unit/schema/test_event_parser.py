"""EventParser on the bundled binlogs of a real MySQL, and on golden ones without row metadata."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ray_canal.demo
from ray_canal.binlog.chunk import ChunkHead, RawChunk
from ray_canal.binlog.events import MAGIC, parse_format_description
from ray_canal.errors import TableMetaMismatch
from ray_canal.model.canal_types import ALTER, CREATE
from ray_canal.model.table_meta import TableMeta
from ray_canal.schema.event_parser import EventParser
from ray_canal.schema.registry import SchemaRegistry
from tests.unit.binlog.golden import GOLDEN, golden_chunk, needs_golden, read_events

DEMO = sorted(Path(ray_canal.demo.__file__).parent.glob("mysql-bin.*"))


def whole(path: Path) -> RawChunk:
    data = path.read_bytes()
    described = parse_format_description(next(iter(read_events(path)))[2])
    head = ChunkHead(
        0, path.name, len(MAGIC), len(data),
        has_checksum=described.has_checksum,
        flavor=described.flavor,
        server_version=described.server_version,
        post_header_bytes=described.post_header_bytes,
    )  # fmt: skip
    return RawChunk(head, np.frombuffer(data, np.uint8)[len(MAGIC) :])


def test_bundled_binlogs_parse_with_names_and_statements() -> None:
    parser = EventParser(SchemaRegistry())
    tables, kinds = set(), set()
    assert DEMO
    for path in DEMO:
        parsed = parser.parse(whole(path))
        assert parsed.failure is None
        tables |= {version.meta.full_name for version in parsed.tables}
        kinds |= {record.event_type for record in parsed.queries if record.is_ddl}
        assert all(c.name for v in parsed.tables for c in v.meta.columns)
    assert len(tables) >= 3
    assert {CREATE, ALTER} & kinds


def test_fused_decoding_is_parse_then_decode() -> None:
    for path in DEMO:
        info, chunk = EventParser(SchemaRegistry()).decode_chunk(whole(path))
        assert info.failure is None
        assert len(info.entries) == chunk.layout.event_count > 0
        rows = sum(table.rows for table in chunk.layout.tables)
        assert int(info.entries["rows"].sum()) == rows


def test_a_ddl_makes_the_catalog_be_asked_again() -> None:
    asked = []

    def catalog(schema: str, table: str) -> TableMeta | None:
        asked.append((schema, table))
        return None

    parser = EventParser(SchemaRegistry(catalog=catalog))
    for _ in range(2):
        for path in DEMO:
            parser.parse(whole(path))
    # Each file is parsed twice; DDL between the two must have emptied the cache.
    assert len(asked) > len(set(asked))


@needs_golden
def test_without_metadata_the_schema_text_names_the_columns() -> None:
    raw = golden_chunk("mysql56/mysql56_numeric")
    sql = (GOLDEN / "mysql56/mysql56_numeric.schema.sql").read_text(encoding="utf-8")
    parsed = EventParser(SchemaRegistry(sql)).parse(raw)
    assert parsed.failure is None
    names = [c.name for v in parsed.tables for c in v.meta.columns]
    assert "tinyint_z" in names
    (zerofill,) = [c for v in parsed.tables for c in v.meta.columns if c.name == "tinyint_z"]
    assert (zerofill.mysql_type, zerofill.unsigned) == ("tinyint(3) unsigned zerofill", True)


@needs_golden
def test_without_any_schema_the_failure_names_table_and_place() -> None:
    raw = golden_chunk("mysql56/mysql56_numeric")
    parsed = EventParser(SchemaRegistry()).parse(raw)
    assert isinstance(parsed.failure, TableMetaMismatch)
    assert parsed.failure.journal_name == "mysql56_numeric.binlog"
    assert parsed.failure.position is not None
    assert len(parsed.events), "what comes before it is kept"


@needs_golden
@pytest.mark.parametrize("name", ["mysql97/mysql_ddl", "mariadb1011/maria_ddl"])
def test_one_event_of_several_tables_makes_several_entries_of_one_place(name: str) -> None:
    sql = "CREATE TABLE d1 (a int)"  # maria_ddl fails at its first row; statements before it stand
    parsed = EventParser(SchemaRegistry(sql)).parse(golden_chunk(name))
    for index, record in enumerate(parsed.queries):
        event = parsed.events[parsed.events["aux"] == index]
        assert len(event) >= 1
        assert record.sql
    drops = [r for r in parsed.queries if r.sql.lower().startswith("drop table") and "," in r.sql]
    if drops:
        at = [e["position"] for e in parsed.events if e["event_type"] == 6]
        assert len(at) > len(set(at))
