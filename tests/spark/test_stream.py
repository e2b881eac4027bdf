"""Micro-batches: ack after success, rollback on failure, clean ends."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from ray_canal.errors import InstanceRestarted, UnsupportedEvent
from ray_canal.spark.stream import Progress, changes, release_changes, run
from tests.spark.conftest import Log, change_batch, inserts


@pytest.fixture
def log() -> Log:
    return Log([[inserts(0, 3)], [inserts(3, 2), inserts(0, 1, table="order")], [inserts(5, 5)]])


def test_all_batches_in_order_and_acked(spark, log: Log) -> None:
    seen: list[int] = []
    tables: list[set[str]] = []

    def collect(frames: dict[str, Any], message: Any) -> None:
        assert log.acked == message.id - 1  # not before the function returned
        seen.extend(row.after.id for row in frames["shop.item"].collect())
        tables.append(set(frames))

    progress = run(log, spark, collect)
    assert seen == list(range(10))
    assert tables == [{"shop.item"}, {"shop.item", "shop.order"}, {"shop.item"}]
    assert log.acked == 3
    assert progress == Progress(
        batches=3,
        rows=11,
        rows_by_table={"shop.item": 10, "shop.order": 1},
        empty_polls=1,
        finished=True,
    )


class BatchesAlone:
    reads_frames = False

    def __init__(self) -> None:
        self.rows = 0

    def __call__(self, frames: dict[str, Any], message: Any) -> None:
        assert not any(frame.count() for frame in frames.values())
        self.rows += sum(batch.num_rows for batch in message.batches)


def test_who_works_on_batches_gets_no_rows_in_frames(spark, log: Log) -> None:
    function = BatchesAlone()
    assert run(log, spark, function).rows == function.rows == 11


def test_failure_rolls_back_and_is_raised(spark, log: Log) -> None:
    def fail_at_two(frames: dict[str, Any], message: Any) -> None:
        if message.id == 2:
            raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        run(log, spark, fail_at_two)
    assert (log.acked, log.rollbacks) == (1, 1)
    assert run(log, spark, lambda frames, message: None).batches == 2  # it comes again


def test_spark_failure_rolls_back(spark, log: Log) -> None:
    with pytest.raises(Exception, match="nonsense"):
        run(log, spark, lambda frames, message: frames["shop.item"].select("nonsense").collect())
    assert (log.acked, log.rollbacks) == (0, 1)


def test_retries_have_a_limit(spark, log: Log) -> None:
    calls: list[int] = []

    def flaky(frames: dict[str, Any], message: Any) -> None:
        calls.append(message.id)
        if len(calls) < 3:
            raise OSError("for a moment")

    assert run(log, spark, flaky, retries=2).finished
    assert calls == [1, 1, 1, 2, 3]
    log.given = log.acked = 0

    def broken(frames: dict[str, Any], message: Any) -> None:
        calls.append(message.id)
        raise OSError("for ever")

    calls.clear()
    with pytest.raises(OSError, match="for ever"):
        run(log, spark, broken, retries=2)
    assert calls == [1, 1, 1]
    assert log.rollbacks == 1


def test_max_batches_and_until(spark, log: Log) -> None:
    assert run(log, spark, lambda *_: None, max_batches=1).batches == 1
    progress = run(log, spark, lambda *_: None, until=lambda now: now.rows >= 3)
    assert (progress.batches, log.acked) == (1, 2)


def test_idle_ends_through_until(spark) -> None:
    quiet = Log([], endless=True)
    progress = run(quiet, spark, lambda *_: None, until=lambda now: now.empty_polls == 4)
    assert progress.empty_polls == 4


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_lets_the_batch_finish(spark, log: Log, number: int) -> None:
    before = signal.getsignal(number)

    def stop_at_two(frames: dict[str, Any], message: Any) -> None:
        if message.id == 2:
            os.kill(os.getpid(), number)
        frames["shop.item"].count()

    progress = run(log, spark, stop_at_two)
    assert progress.stopped
    assert (progress.batches, log.acked) == (2, 2)
    assert log.given == 2  # what was fetched ahead is given back
    assert signal.getsignal(number) is before


def test_second_signal_interrupts_and_rolls_back(spark, log: Log) -> None:
    def stop_twice(frames: dict[str, Any], message: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run(log, spark, stop_twice)
    assert (log.acked, log.rollbacks) == (0, 1)


def test_restart_of_the_instance_repeats_the_batch(spark, log: Log) -> None:
    class Restarting(Log):
        failed = False

        def ack(self, batch_id: int) -> None:
            if not self.failed:
                self.failed = True
                self.given = self.acked
                raise InstanceRestarted("restarted")
            super().ack(batch_id)

    restarting = Restarting(log.contents)
    seen: list[int] = []
    progress = run(restarting, spark, lambda frames, message: seen.append(message.id))
    assert seen == [1, 1, 2, 3]
    assert progress.rows == 11


def test_statements_end_it_unless_they_are_passed_over(spark) -> None:
    """b8: rows that only a statement's text tells of are never left out in silence."""
    told = change_batch([("STATEMENT", None, None)], inserts(0, 1).schema.field("after").type)
    told = told.replace_schema_metadata({**told.schema.metadata, b"canal.sql": b"UPDATE item"})
    log = Log([[inserts(0, 3)], [inserts(3, 2), told]])
    with pytest.raises(UnsupportedEvent, match=r"1000 rows of shop.item were .*: UPDATE item; set"):
        run(log, spark, lambda *_: None)
    assert (log.acked, log.rollbacks) == (1, 1)
    with pytest.raises(UnsupportedEvent, match="UPDATE item"):
        changes(spark, log, table="shop.item")
    log.rollback()
    assert changes(spark, log, table="shop.item", statements="ignore").count() == 2
    log.rollback()
    assert run(log, spark, lambda *_: None, statements="ignore").rows == 2
    assert log.acked == 2


def test_changes_reads_one_batch(spark, log: Log) -> None:
    frame = changes(spark, log, table="shop.item")
    assert frame.count() == 3
    assert log.acked == 0
    log.rollback()
    acked = changes(spark, log, table="shop.item", ack=True)
    assert [row.id for row in acked.select("after.id").collect()] == [0, 1, 2]
    assert log.acked == 1
    assert changes(spark, log, table="shop.nothing").count() == 0
    release_changes()
