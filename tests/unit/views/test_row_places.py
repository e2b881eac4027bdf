"""Places compare as delivery order, and tell what is new of a batch."""

from __future__ import annotations

import pyarrow as pa

from ray_canal.views.row_places import RowPlace, place_at, rows_above


def batch(journal: str, *rows: tuple[int, int], timeline: int = 1) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "timeline": [timeline] * len(rows),
            "journal_name": [journal] * len(rows),
            "position": [position for position, _ in rows],
            "row": [row for _, row in rows],
        }
    )


def test_rows_above_a_place() -> None:
    found = batch("bin.999999", (10, 0), (10, 1), (20, 0))
    assert place_at(found, -1) == RowPlace(1, 999999, 20, 0, "bin.999999")
    assert rows_above(found, None) == 3
    assert rows_above(found, RowPlace(1, 999999, 10, 0)) == 2
    assert rows_above(found, RowPlace(1, 999999, 15, 9)) == 1
    assert rows_above(found, RowPlace(1, 999999, 20, 0)) == 0
    assert rows_above(found, RowPlace(1, 1000000, 4, 0)) == 0
    assert rows_above(found, RowPlace(0, 1000000, 4, 0)) == 3
    assert rows_above(found.slice(0, 0), None) == 0
