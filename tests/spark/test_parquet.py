"""Changes to Parquet: each row once, whatever fails, comes again or dies."""

from __future__ import annotations

import datetime as dt
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ray_canal.errors import ConfigError
from ray_canal.spark.hadoop_files import HadoopFiles
from ray_canal.spark.parquet import ParquetSink, read_changes
from ray_canal.spark.state import latest
from ray_canal.spark.stream import run
from tests.spark.conftest import ITEM, Log, change_batch, inserts
from tests.spark.faulty_files import FaultyFiles, Killed

ROOT = Path(__file__).parents[2]


def ids(path: Path, table: str = "item") -> list[int]:
    """Of the rows in a table's files, as any reader finds them."""
    files = (path / "schema_name=shop" / f"table_name={table}").rglob("*.parquet")
    return sorted(row["after"]["id"] for f in files for row in pq.read_table(f).to_pylist())


@pytest.fixture(params=["tasks", "spark"])
def by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who writes the files: Ray tasks, or Spark, as where the folder is on no shared disk."""
    if request.param == "spark":
        monkeypatch.setattr("ray_canal.spark.parquet.task_folder", lambda path: None)


def test_partitions_and_counts(spark, by: None, tmp_path: Path) -> None:
    delete = change_batch([("DELETE", {"id": 0, "name": "x"}, None)], ITEM, position=3000)
    log = Log(
        [
            [inserts(0, 3), inserts(9, 1, table="order"), inserts(3, 1, day=dt.date(2026, 11, 22))],
            [delete],
        ]
    )
    # Of one table, rows rise: a batch is one place of the log.
    log.contents[0][2] = inserts(3, 1, day=dt.date(2026, 11, 22), position=2000)
    out = tmp_path / "out"
    sink = ParquetSink(spark, str(out))
    run(log, spark, sink)
    assert sink.counts == {
        ("shop.item", "INSERT"): 4,
        ("shop.order", "INSERT"): 1,
        ("shop.item", "DELETE"): 1,
    }
    files = sorted(str(p.relative_to(out)) for p in out.rglob("*.parquet"))
    first = "0000000000-mysql-bin.000001-000000001000-00000000"
    assert [f.rpartition("-")[0] for f in files if "3000" not in f] == [
        f"schema_name=shop/table_name=item/date=2026-11-21/{first}-0000",
        f"schema_name=shop/table_name=item/date=2026-11-22/{first}-0001",
        f"schema_name=shop/table_name=order/date=2026-11-21/{first}-0002",
    ]
    frame = spark.read.parquet(str(out / "schema_name=shop/table_name=item"))
    assert sorted(row.id for row in latest(frame).collect()) == [1, 2, 3]
    changes = read_changes(spark, str(out), "shop.item")
    assert sorted(row.id for row in latest(changes).collect()) == [1, 2, 3]
    assert list((out / "_ray_canal/staging").iterdir()) == []
    with pytest.raises(ConfigError, match=r"no changes of shop\.nothing"):
        read_changes(spark, str(out), "shop.nothing")


class FailsOnce(ParquetSink):
    """The writing of a batch's second table fails the first time: an executor or a node is lost."""

    failed = False

    def _stage_by_tasks(self, folder: Path, tables: Any) -> None:
        if not self.failed and self._commits.last.number:
            self.failed = True
            super()._stage_by_tasks(folder, {"shop.item": tables["shop.item"]})
            raise RuntimeError("executor lost")
        super()._stage_by_tasks(folder, tables)


def two_batches() -> list[list[pa.RecordBatch]]:
    return [
        [inserts(4 * n, 4, position=2000 * n), inserts(n, 1, table="order", position=2000 * n + 9)]
        for n in (1, 2)
    ]


@pytest.mark.parametrize("retries", [0, 1])
def test_a_batch_that_fails_in_the_middle_is_written_once(
    spark, tmp_path: Path, retries: int
) -> None:
    """A2: by `retries`, and by another call of `run` with the same sink."""
    sink, log = FailsOnce(spark, str(tmp_path / "out")), Log(two_batches())
    if retries:
        run(log, spark, sink, retries=retries)
    else:
        with pytest.raises(RuntimeError, match="executor lost"):
            run(log, spark, sink)
        run(log, spark, sink)
    assert sink.failed
    assert ids(tmp_path / "out") == list(range(4, 12))
    assert ids(tmp_path / "out", "order") == [1, 2]
    assert sink.counts == {("shop.item", "INSERT"): 8, ("shop.order", "INSERT"): 2}


def test_a_second_delivery_is_passed_over_however_it_is_cut(spark, tmp_path: Path) -> None:
    """A2: written but not acked; then, in a new process, the rows come in batches cut again."""
    out = tmp_path / "out"
    sink = ParquetSink(spark, str(out))
    log = Log([[inserts(0, 6), inserts(50, 1, table="order", position=1500)]])
    with pytest.raises(ConnectionError):
        run(log, spark, _dies_after(sink))
    assert ids(out) == list(range(6))
    again = inserts(0, 6)
    more = inserts(6, 3, position=7000)
    sink = ParquetSink(spark, str(out))
    batches = [
        [again.slice(0, 2)],
        [again.slice(2), inserts(50, 1, table="order", position=1500), more.slice(0, 1)],
        [more.slice(1), inserts(8, 1, table="new", position=1200)],
    ]
    run(Log(batches), spark, sink)
    assert ids(out) == list(range(9))
    assert ids(out, "order") == [50]
    assert ids(out, "new") == [8]  # of another table nothing had been written up to there
    assert sink.counts == {("shop.item", "INSERT"): 3, ("shop.new", "INSERT"): 1}


def test_a_row_in_the_middle_of_an_event_is_where_writing_goes_on(spark, tmp_path: Path) -> None:
    out = tmp_path / "out"
    whole = inserts(0, 9)
    run(Log([[whole.slice(0, 4)]]), spark, ParquetSink(spark, str(out)))
    run(Log([[whole]]), spark, ParquetSink(spark, str(out)))
    assert ids(out) == list(range(9))


@pytest.mark.parametrize("after", [False, True])
def test_each_step_of_a_batch_may_fail(spark, tmp_path: Path, after: bool) -> None:
    """A2: each call of the file system fails in turn, done or not; the batch is tried again by the
    same sink and by a new one."""
    out = tmp_path / "out"
    counted, steps = 0, 0
    sink = ParquetSink(spark, str(out))
    for step in range(60):
        rows = [inserts(2 * step, 2, position=1000 * (step + 1))]
        faulty = FaultyFiles(HadoopFiles(spark, str(out)), step, after)
        if step % 2:
            counted += sum(sink.counts.values())
            sink = ParquetSink(spark, str(out))  # a new process
        sink._files, sink._commits = faulty, None
        failed = False
        try:
            run(Log([rows]), spark, sink)
        except Killed:
            failed = True
        seen = ids(out)
        assert seen in (list(range(2 * step)), list(range(2 * step + 2)))
        if failed:
            sink._files = HadoopFiles(spark, str(out))
            run(Log([rows]), spark, sink)
        assert ids(out) == list(range(2 * step + 2)), (step, faulty.calls)
        steps = step
        if not failed:
            break
    assert steps > 10
    assert counted + sum(sink.counts.values()) == 2 * steps + 2
    assert list((out / "_ray_canal/staging").iterdir()) == []


def test_sigkill_at_any_step(tmp_path: Path) -> None:
    """A2: processes that are killed while they stage, commit, publish and tidy up."""
    script = [sys.executable, "-m", "tests.spark.killed_sink", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def child(*arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [*script, *arguments],
            env=environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )

    for size, call, step in (("4", "below", "2"), ("3", "move", "3"), ("5", "delete", "2")):
        died = child(size, call, step)
        assert died.returncode == -signal.SIGKILL, died.stderr[-2000:]
    done = child("6", "", "0")
    assert done.returncode == 0, done.stderr[-2000:]
    assert ids(tmp_path / "out") == list(range(20))


def test_an_older_timeline_is_refused(spark, tmp_path: Path) -> None:
    """A2: rows of a destination that has lost its cursors are not passed over in silence."""
    sink = ParquetSink(spark, str(tmp_path / "out"))
    run(Log([[_on_timeline(inserts(0, 2), 2)]]), spark, sink)
    with pytest.raises(ConfigError, match="timelines only rise"):
        run(Log([[_on_timeline(inserts(2, 2, position=9000), 1)]]), spark, sink)
    later = _on_timeline(inserts(2, 2, position=4), 3)
    run(Log([[later]]), spark, sink)
    assert ids(tmp_path / "out") == [0, 1, 2, 3]


def test_versions_of_a_table_are_read_as_one(spark, tmp_path: Path) -> None:
    wider = pa.struct([("id", pa.int64()), ("NAME", pa.string()), ("price", pa.int32())])
    late = [("INSERT", None, {"id": 1 << 40, "NAME": "x", "price": 5})]
    log = Log([[inserts(0, 2)], [change_batch(late, wider, position=5000)]])
    run(log, spark, ParquetSink(spark, str(tmp_path / "out")))
    frame = read_changes(spark, str(tmp_path / "out"), "shop.item")
    rows = {(row.id, row.NAME, row.price) for row in latest(frame).collect()}
    assert rows == {(0, "item 0 ñ", None), (1, "item 1 ñ", None), (1 << 40, "x", 5)}


def _on_timeline(batch: pa.RecordBatch, timeline: int) -> pa.RecordBatch:
    column = pa.array([timeline] * batch.num_rows, pa.int64())
    found = batch.schema.get_field_index("timeline")
    if found >= 0:
        return batch.set_column(found, "timeline", column)
    return batch.add_column(1, pa.field("timeline", pa.int64()), column)


def _dies_after(sink: ParquetSink) -> Any:
    def function(frames, message) -> None:
        sink(frames, message)
        raise ConnectionError("killed before the ack")

    return function
