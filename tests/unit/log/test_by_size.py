"""Where a batch ends: by bytes or entries of binlog, over chunks, at a DDL."""

from __future__ import annotations

from tests.unit.log.filled import filled, transactions
from tests.unit.log.made_log import MadeLog


def test_memsize_counts_bytes_and_gives_at_least_one_entry() -> None:
    log = MadeLog()
    log.begin()
    log.row_event(length=9000)
    log.row_event(length=500)
    log.row_event(length=500)
    log.end()
    store = filled(log, cuts=(2,))
    counts = []
    while (batch := store.get(1, 1)) is not None:
        counts.append(batch.entry_count)
    assert counts == [1, 1, 2, 1]  # 100; 9000 alone; 500 + 500 ≤ 1024; 31


def test_itemsize_counts_entries_over_chunks() -> None:
    store = filled(transactions(3), cuts=(2, 3, 7), batch_mode="ITEMSIZE")
    batch = store.get(1, 8)
    assert batch is not None
    assert [(p.payload, p.first, p.last, p.mask) for p in batch.parts] == [
        (0, 0, 2, None),
        (1, 0, 1, None),
        (2, 0, 4, None),
        (3, 0, 1, None),
    ]
    assert store.get(1, 8).entry_count == 1  # type: ignore[union-attr]
    assert store.get(1, 8) is None


def test_ready_means_a_full_batch_or_any_entry() -> None:
    store = filled(transactions(2), cuts=(4,), batch_mode="ITEMSIZE")
    assert store.ready(1, 6)
    assert not store.ready(1, 7)
    assert store.ready(1, 1, count_all=True)
    by_bytes = filled(transactions(2), cuts=(4,), memunit_bytes=77)
    assert by_bytes.ready(1, 6)  # 2 × (100 + 100 + 31) = 462 = 6 × 77
    assert not by_bytes.ready(1, 7)
    by_bytes.get(1, 1)
    assert not by_bytes.ready(1, 6)


def test_ddl_isolation_gives_a_ddl_alone() -> None:
    log = transactions(1)
    log.ddl()
    log.ddl()
    log.transaction(1)
    for cuts in ((), (3,), (4,), (3, 4, 5)):
        store = filled(log, cuts, ddl_isolation=True)
        assert store.ready(1, 10**6), "a DDL completes the batch before it"
        assert [store.get(1, 1000).entry_count for _ in range(4)] == [3, 1, 1, 3]  # type: ignore[union-attr]
        assert store.get(1, 1000) is None
    assert filled(log).get(1, 1000).entry_count == 8  # type: ignore[union-attr]
