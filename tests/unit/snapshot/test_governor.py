"""Half as many at each breach, one more every five seconds, and why."""

from __future__ import annotations

from ray_canal.config import SnapshotConfig
from ray_canal.snapshot.governor import Governor, LoadReading

CALM = LoadReading(3, 1000, None)


def test_it_halves_at_each_breach_and_rises_by_one() -> None:
    governor = Governor(SnapshotConfig(readers=8))
    assert (governor.allowed, governor.why) == (8, "")
    found = []
    for second, threads in enumerate([30, 30, 30, 30, *[3] * 14]):
        governor.observe(LoadReading(threads, 1000, None), 100.0 + second)
        found.append(governor.allowed)
    assert found == [4, 2, 1, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2]
    assert "30 threads" in governor.why


def test_all_signals_have_a_limit_that_zero_takes_away() -> None:
    loads = (
        LoadReading(26), LoadReading(3, 1_000_001), LoadReading(3, 0, 5.1),
        LoadReading(slower=3.1), LoadReading(backlog_s=10.1),
    )  # fmt: skip
    words = ("threads", "purge", "replica", "3.1 times as long", "10 s behind the rows")
    for load, word in zip(loads, words, strict=True):
        governor = Governor(SnapshotConfig(readers=2))
        governor.observe(load, 1.0)
        assert governor.allowed == 1
        assert word in governor.why
        none = {"threads_running": 0, "history_list": 0, "replica_lag_s": 0}
        unlimited = SnapshotConfig(readers=2, slower=0, backlog_s=0, **none)
        governor = Governor(unlimited)
        governor.observe(load, 1.0)
        assert governor.allowed == 2


def test_the_reason_goes_when_all_may_read_again() -> None:
    governor = Governor(SnapshotConfig(readers=2))
    governor.observe(LoadReading(99), 1.0)
    assert governor.why
    governor.observe(CALM, 6.5)
    assert (governor.allowed, governor.why) == (2, "")
    governor.observe(LoadReading(), 7.0)
    assert governor.allowed == 2
