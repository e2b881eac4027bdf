"""Rows are left out of columns of every kind, and what is left keeps its NULLs and texts."""

from __future__ import annotations

import numpy as np

from ray_canal.snapshot.without_rows import without_rows
from tests.unit.snapshot.test_log_chunks import framed


def test_what_is_kept_is_all_that_is_there() -> None:
    whole = framed(10)
    none = without_rows(whole, np.zeros(10, np.bool_), 0)
    assert none.layout.tables[0].rows == 0
    kept = np.arange(10) % 3 == 1
    some = without_rows(whole, kept, 2)
    table, before = some.layout.tables[0], whole.layout.tables[0]
    assert (table.rows, some.layout.event_count) == (3, 2)
    assert table.before is None
    for column, old in zip(table.after or (), before.after or (), strict=True):
        assert column.code == old.code
        if column.data >= 0:
            ends = some.arena[column.values : column.values + 16].view("<i4")
            assert ends[0] == 0
            assert ends[-1] == column.data_bytes
    assert some.arena.size < whole.arena.size
