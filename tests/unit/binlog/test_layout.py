"""An arena's regions: aligned, none over another, texts at the offsets that their records name."""

from __future__ import annotations

import random

from ray_canal.binlog.layout import ArenaSketch, aligned, place_queries
from ray_canal.binlog.parsed import QueryRecord
from ray_canal.kernels.base.codes import ALIGNMENT_BYTES


def test_regions_are_aligned_and_do_not_overlap() -> None:
    rng, sketch, end = random.Random(1), ArenaSketch(), 0
    for size in [0, 1, ALIGNMENT_BYTES, *(rng.randrange(500) for _ in range(50))]:
        offset = sketch.take(size)
        assert offset % ALIGNMENT_BYTES == 0
        assert offset >= end
        end = offset + size
    assert 0 <= sketch.size_bytes - end < ALIGNMENT_BYTES
    assert sketch.size_bytes == aligned(sketch.size_bytes)


def test_texts_of_queries_are_where_their_records_say() -> None:
    queries = (
        QueryRecord(4, "shop", None, "CREATE TABLE größe (a INT)", "", True),
        QueryRecord(7, None, "", "", "crm", False),
    )
    sketch = ArenaSketch()
    records, texts = place_queries(sketch, queries)
    arena = bytearray(sketch.size_bytes)
    for offset, text in texts:
        arena[offset : offset + len(text)] = text
    for record, query in zip(records, queries, strict=True):
        assert record["is_ddl"] == query.is_ddl
        for name in ("schema", "table", "sql", "ddl_schema"):
            start, size = int(record[name]), int(record[name + "_bytes"])
            found = None if size < 0 else arena[start : start + size].decode()
            assert found == getattr(query, name)
