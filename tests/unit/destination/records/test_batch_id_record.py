"""Batch ids over restarts: small, rising, never the same one twice."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ray_canal.destination.records.batch_id_record import RESERVED, BatchIdRecord
from ray_canal.errors import MetaUnavailable
from ray_canal.meta.manager import MetaManager
from ray_canal.meta.memory import MemoryBackend
from ray_canal.meta.sqlite import SqliteBackend


@pytest.mark.parametrize("seed", range(5))
def test_no_id_is_given_out_twice(tmp_path: Path, seed: int) -> None:
    """a12, D4: over restarts of the process and of its log, whatever was acked."""
    rng = random.Random(seed)
    manager = MetaManager(SqliteBackend(str(tmp_path / "meta.db")))
    given: set[int] = set()
    highest = 0
    for _ in range(12):
        ids = BatchIdRecord("x")
        for _ in range(rng.randrange(1, 3)):
            epoch = manager.acquire("x")
            last = ids.begin(manager, epoch)
            for _ in range(rng.choice([0, 3, 500, 6000])):
                if ids.runs_out(last):
                    ids.reserve_behind(manager, "x", epoch, last)
                last += 1
                assert last not in given
                given.add(last)
                highest = max(highest, last)
    assert highest <= len(given) + 24 * RESERVED, "ids stay small"


def test_the_first_batch_is_1_and_a_generation_costs_few_ids() -> None:
    """a12: Canal's habit; clients that keep ids in 32 bits last for years of restarts."""
    manager = MetaManager(MemoryBackend())
    epoch = manager.acquire("x")
    assert BatchIdRecord("x").begin(manager, epoch) == 0
    assert BatchIdRecord("x").begin(manager, manager.acquire("x")) == RESERVED
    assert (1 << 31) // RESERVED > 500_000


def test_what_could_not_be_reserved_is_not_given_out(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = MetaManager(MemoryBackend())
    epoch = manager.acquire("x")
    ids = BatchIdRecord("x")
    ids.begin(manager, epoch)

    def away(*_: object) -> None:
        raise MetaUnavailable("away")

    monkeypatch.setattr(MetaManager, "save_batch_ids", away)
    assert ids.runs_out(RESERVED)
    with pytest.raises(MetaUnavailable):
        ids.reserve_behind(manager, "x", epoch, RESERVED)
    assert ids.runs_out(RESERVED)


def test_a_store_that_forgot_them_is_not_believed() -> None:
    """D4: cursors that were put back from a copy while the process lives."""
    ids = BatchIdRecord("x")
    manager = MetaManager(MemoryBackend())
    epoch = manager.acquire("x")
    ids.begin(manager, epoch)
    ids.reserve_behind(manager, "x", epoch, RESERVED)
    other = MetaManager(MemoryBackend())
    assert ids.begin(other, other.acquire("x")) == 2 * RESERVED
