"""Tables whose images lack columns, found by bitmaps, are those that decoding finds."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from ray_canal.binlog.absent_columns import metas_lacking_columns
from ray_canal.binlog.decode import decode
from ray_canal.file_parts import plan_parts
from ray_canal.offline import ALL_TABLES, batches_of
from ray_canal.source.file_ranges import range_chunks
from ray_canal.views.row_places import table_name

GOLDEN = Path(__file__).parents[2] / "golden/data"


@pytest.mark.parametrize(
    "name", ["mysql97/mysql_dml", "mysql56/mysql56_dml", "mariadb1011/maria_dml"]
)
def test_bitmaps_tell_what_decoding_finds(name: str) -> None:
    known = GOLDEN / f"{name}.schema.sql"
    schema_sql = known if known.exists() else None
    (part,) = plan_parts([GOLDEN / f"{name}.binlog"], schema_sql=schema_sql)
    parser, chunks = pickle.loads(part.parser), 0
    for raw in range_chunks(part.range, 1, 1 << 20):
        parsed = parser.parse(raw)
        lacking = {f"{m.schema}.{m.table}" for m in metas_lacking_columns(raw, parsed)}
        shown = [b for found in batches_of([decode(raw, parsed)], ALL_TABLES, False) for b in found]
        told = {table_name(b) for b in shown if "before_present" in b.schema.names}
        assert told == lacking
        chunks += bool(told)
    assert chunks
