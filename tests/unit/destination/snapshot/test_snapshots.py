"""What may be asked of a snapshot, and what its record says once chunks are acked."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from ray_canal.destination.snapshot.snapshot_home import after_acks, new_ledger
from ray_canal.destination.snapshot.snapshot_run import SnapshotRun
from ray_canal.destination.snapshot.snapshots import _after_action
from ray_canal.errors import ConfigError, NotSubscribed
from ray_canal.log.snapshot_tag import SnapshotTag
from ray_canal.model.position import EntryPosition
from ray_canal.model.snapshot_ledger import (
    CANCELLED,
    DONE,
    FAILED,
    PAUSED,
    RUNNING,
    Ledger,
    TableLedger,
)
from ray_canal.model.subscription import Subscription
from ray_canal.model.timeline import LogFile
from tests.local_destination import (
    ALL,
    LocalDestination,
    SlowOpening,
    destination_of,
    new_destination,
    run,
    running,
)

READING = "7:s:1"


def ledger() -> Ledger:
    tables = tuple(
        TableLedger("d", name).begun(("id",), ("9",), 100) for name in ("small", "large")
    )
    return replace(new_ledger((), "s"), tables=tables, attempt=1)


@contextlib.asynccontextmanager
async def reading(folder: Path, ledger: Ledger) -> AsyncIterator[LocalDestination]:
    """A destination whose subscriber 1 has a snapshot that stands still, as far as `ledger`."""

    async def waits(run: SnapshotRun) -> None:
        await asyncio.Event().wait()

    with mock.patch.object(SnapshotRun, "run", waits):
        async with destination_of(folder) as destination:
            await destination.subscribe(1, ALL)
            table = destination.state.subscribers
            await table.save(replace(table.get(1), snapshot=ledger.to_json()))
            while not (await destination.api.snapshot(1, "status"))["waits_for"]:
                await asyncio.sleep(0.01)
            yield destination


def test_acks_move_borders_and_the_last_one_ends_it() -> None:
    tags = [
        SnapshotTag(READING, 0, 3, 10, upto=("9",)),
        SnapshotTag(READING, 1, 2, 10),
        SnapshotTag(READING, 1, 2, 10, upto=("5",)),
    ]
    found = after_acks(ledger(), tags)
    assert [(t.rows, t.done, t.finished) for t in found.tables] == [
        (3, ("9",), True), (4, ("5",), False),
    ]  # fmt: skip
    assert found.state == RUNNING
    found = after_acks(found, [SnapshotTag(READING, ended=DONE, place="x.1:4")])
    assert (found.state, found.place) == (DONE, "x.1:4")
    assert found.ended > 0


def test_what_was_cancelled_is_not_done_by_a_late_ack() -> None:
    cancelled = replace(ledger(), state=CANCELLED)
    assert after_acks(cancelled, [SnapshotTag(READING, ended=DONE)]).state == CANCELLED


def test_what_may_be_done_in_which_state() -> None:
    running = ledger()
    assert _after_action(running, "pause").state == PAUSED
    assert _after_action(replace(running, state=PAUSED), "resume").state == RUNNING
    failed = replace(running, state=FAILED, error="no such table", ended=5)
    again = _after_action(failed, "resume")
    assert (again.state, again.error, again.ended) == (RUNNING, "", 0)
    assert _after_action(running, "cancel").ended > 0
    assert _after_action(replace(running, state=DONE), "status").state == DONE
    for state in (DONE, CANCELLED):
        with pytest.raises(ConfigError, match=f"is {state}: start another one"):
            _after_action(replace(running, state=state), "resume")


def test_names_differ_and_count_for_one_subscriber_and_attempt() -> None:
    assert new_ledger().id != new_ledger().id
    assert ledger().attempt_name_of(7) == READING
    assert replace(ledger(), attempt=2).attempt_name_of(7) != READING


def test_attempts_are_counted_on_and_signals_that_were_done_stay_done() -> None:
    """Row ids hold the attempt: two snapshots at one place of the log had the same ones."""
    done = replace(ledger().signalled("one"), state=DONE, attempt=3)
    begun = new_ledger(earlier=done, attempts=5)
    assert begun.begun_again().attempt == 6
    assert begun.signals == ("one",)
    assert new_ledger().begun_again().attempt == 1


def test_binlog_files_have_no_rows_to_read(tmp_path: Path) -> None:
    run(of_files(tmp_path))


async def of_files(folder: Path) -> None:
    async with destination_of(folder) as destination:
        with pytest.raises(NotSubscribed):
            await destination.api.snapshot(1, "start")
        with pytest.raises(ConfigError, match="the source is binlog files"):
            await destination.subscribe(1, ALL, wishes=Subscription(snapshot="initial"))
        await destination.subscribe(1, ALL)
        with pytest.raises(ConfigError, match="the source is binlog files"):
            await destination.api.snapshot(1, "start")
        with pytest.raises(ConfigError, match="has no snapshot; start one"):
            await destination.api.snapshot(1, "status")
        with pytest.raises(ConfigError, match="'stop' is nothing to do"):
            await destination.api.snapshot(1, "stop")
        wishes = Subscription(snapshot="always")  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="snapshot 'always'"):
            await destination.subscribe(2, ALL, wishes=wishes)
        assert (await destination.status())["snapshots"] == []


@pytest.mark.parametrize(
    ("name", "age_s", "rises"),
    [(33, 0, False), (34, 5, False), (33, 1, True), (32, 0, True)],
)  # fmt: skip
def test_rows_of_a_server_that_was_put_back_have_higher_ids(
    name: int, age_s: int, rises: bool, tmp_path: Path
) -> None:
    """A6: a moment's place is asked of the server, which may have lost what the destination's log
    has, and nobody knows it yet: the ids of the rows were lower than those before them."""

    async def story() -> None:
        async with destination_of(tmp_path) as destination:
            records, epoch = destination.state.records, destination.state.guard.epoch
            timeline, before = records.timeline, records.timeline.number
            read = LogFile("mysql-bin.000033", 100)
            await timeline.reach(records.cursors, epoch, read)
            place = EntryPosition(f"mysql-bin.{name:06}", 4, created_s=100 + age_s)
            await destination.api._snapshots._reach(place)
            assert (timeline.number > before) == rises
            assert timeline.reached.journal_name == max(read.journal_name, place.journal_name)

    run(story())


@pytest.mark.parametrize("restarts", [False, True])
def test_what_is_kept_after_a_seek_has_nothing_as_read(restarts: bool, tmp_path: Path) -> None:
    """The run learns of the seek at its next attempt, when the subscriber has a log again."""

    async def story() -> None:
        async with reading(tmp_path, ledger().acked(0, ("9",), 3)) as destination:
            table = destination.state.subscribers
            assert (await destination.api.snapshot(1, "status"))["rows"] == 3
            await destination.api.operate(1, "seek", "tail")
            if restarts:
                snapshots, log = destination.api._snapshots, destination.state.log.pipeline
                assert log is not None
                await snapshots.restart_tables(1, {("d", "large")}, log)
            else:
                assert (await destination.api.snapshot(1, "pause"))["rows"] == 0
            assert Ledger.from_json(table.get(1).snapshot).rows == 0

    run(story())


def test_after_a_seek_another_run_counts_its_failures_from_none(tmp_path: Path) -> None:
    async def story() -> None:
        async with reading(tmp_path, ledger()) as destination:  # nothing is acked yet
            snapshots = destination.api._snapshots
            run, _ = snapshots._runs[1]
            run.attempt += 1  # it begins just now
            await destination.api.operate(1, "seek", "tail")
            while (found := snapshots._runs.get(1)) is None or found[0] is run:
                await asyncio.sleep(0.01)
            assert found[0].ledger.attempt > run.attempt

    run(story())


def test_it_is_paused_also_while_the_destination_begins(tmp_path: Path) -> None:
    """Whoever asked before the first log was there was told that nobody subscribes."""

    async def story() -> None:
        async with running(tmp_path) as destination:
            await destination.subscribe(1, ALL)
            table = destination.state.subscribers
            await table.save(replace(table.get(1), snapshot=ledger().to_json()))
        with SlowOpening() as opening:
            destination = new_destination(tmp_path)
            try:
                await opening.began.wait()
                with pytest.raises(NotSubscribed):
                    await destination.api.snapshot(2, "pause")
                assert (await destination.api.snapshot(1, "status"))["state"] == RUNNING
                assert (await destination.api.snapshot(1, "pause"))["state"] == PAUSED
                opening.go.set()
                await destination.wait_running(30)
                assert (await destination.api.snapshot(1, "status"))["state"] == PAUSED
            finally:
                await destination.stop()

    run(story())


def test_one_that_has_failed_says_why_from_the_first_moment(tmp_path: Path) -> None:
    """Its run learns of it a turn of the loop after the record has it."""

    async def story() -> None:
        async with reading(tmp_path, ledger()) as destination:
            table = destination.state.subscribers
            failed = replace(ledger(), state=FAILED, error="no key", ended=7)
            await table.save(replace(table.get(1), snapshot=failed.to_json()))
            found = await destination.api.snapshot(1, "status")
            assert (found["state"], found["error"], found["ended_at"]) == (FAILED, "no key", 7)

    run(story())
