"""The runner: what the target has is skipped, poison is found, failures that pass are passed."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ray_canal.demo import binlog_files
from ray_canal.sinks.port import Changes, Cursor, Guarantee, SinkError, naming
from ray_canal.sinks.rows import Rows
from ray_canal.sinks.runner import Runner
from tests.golden import GOLDEN
from tests.in_process_sink import destination, runner_of, running, sink_config, until

Place = tuple[int, int]


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Path]:
    """The bundled files as destination `x`."""
    files = {"files": [str(path) for path in binlog_files()]}
    with destination(tmp_path, held=True, source=files):
        yield tmp_path


class Target:
    """Keeps rows and its place together, as a database does; fails as it is told."""

    guarantee: Guarantee = "exactly_once"

    def __init__(self) -> None:
        self.rows: list[Place] = []
        self.place: Cursor | None = None
        self.commits = self.opened = 0
        self.refuse: Place | None = None
        self.fail: dict[int, str] = {}
        self._staged: list[Place] = []

    def open(self) -> Cursor | None:
        self.opened += 1
        return self.place

    def write(self, changes: Changes) -> None:
        for step in changes.steps():
            if isinstance(step, Rows):
                self._staged += zip(
                    step.batch["position"].to_pylist(), step.batch["row"].to_pylist(), strict=True
                )

    def commit(self, upto: Cursor) -> None:
        self.commits += 1
        how = self.fail.pop(self.commits, "")
        if how == "before":
            raise SinkError("the target went away", "retry")
        if self.refuse in self._staged:
            raise SinkError("too long", "poison")
        self.rows += self._staged
        self._staged, self.place = [], upto
        if how == "after":
            raise SinkError("the answer was lost", "retry")

    def abort(self) -> None:
        self._staged = []

    def close(self) -> None:
        self._staged = []


def run(target: Any, **config: Any) -> Runner:
    runner = runner_of(sink_config("python", target="m:T", **config), target)
    runner.run(threading.Event())
    return runner


def test_failures_before_and_after_a_commit_repeat_and_lose_nothing(demo: Path) -> None:
    clean = Target()
    run(clean, batch_size=64, client_id=1)
    assert len(clean.rows) > 500
    broken = Target()
    broken.fail = {1: "before", 3: "after", 4: "before", 6: "after"}
    runner = run(broken, batch_size=64, client_id=2)
    assert sorted(broken.rows) == sorted(clean.rows)
    assert runner.status.retries == 4
    assert broken.opened == 5
    assert runner.status.skipped_entries > 0


def test_what_a_target_cannot_take_is_found_and_set_aside(demo: Path) -> None:
    clean = Target()
    run(clean, client_id=1)
    picky = Target()
    picky.refuse = clean.rows[len(clean.rows) // 2]
    with pytest.raises(SinkError, match="dead_letters"):
        run(picky, client_id=2)
    path = demo / "dead.jsonl"
    path.symlink_to("/dev/full")  # a disk that is full is waited for
    config = sink_config(
        "python", target="m:T", client_id=2, dead_letters=str(path), retry_max_s=0.2
    )
    with running(runner := runner_of(config, picky)):
        until(lambda: runner.status.retries > 1)
        assert "No space left" in runner.status.error
        path.unlink()
        until(lambda: runner.status.state == "stopped")  # the files are at their end
    assert runner.status.dead_letters == 1
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    dead = [(row["position"], row["row"]) for line in lines for row in line["rows"]]
    assert picky.refuse in dead
    assert sorted(picky.rows + dead) == sorted(clean.rows)
    assert all(line["error"] == "too long" and line["table"] for line in lines)


class NoOrders(Target):
    """It has no room for one table."""

    def write(self, changes: Changes) -> None:
        for step in changes.steps():
            name = step.table if isinstance(step, Rows) else step.change.table
            with naming("shop", name):
                if name == "orders":
                    raise SinkError("orders has another key", "schema")
        super().write(changes)


def test_a_table_that_does_not_fit_is_set_aside_alone_also_over_restarts(demo: Path) -> None:
    """What a target says of one table stops no other; its changes are among the dead letters."""

    clean, picky = Target(), NoOrders()
    run(clean, client_id=1)
    dead = demo / "dead.jsonl"
    with pytest.raises(SinkError, match="another key"):
        run(NoOrders(), client_id=2, batch_size=64)
    new = demo / "dead.jsonl.tables.json.new"
    new.symlink_to("/dev/full")  # a restart has to know of it, so a disk that is full is waited for
    more = {"batch_size": 64, "dead_letters": str(dead), "retry_max_s": 0.2}
    config = sink_config("python", target="m:T", client_id=2, **more)
    with running(runner := runner_of(config, picky)):
        until(lambda: runner.status.retries > 1)
        assert "No space left" in runner.status.error
        new.unlink()
        until(lambda: runner.status.state == "stopped")
    assert runner.status.tables_aside == ["shop.orders"]
    lines = [json.loads(line) for line in dead.read_text().splitlines()]
    assert {(line["table"], line["error"]) for line in lines} == {
        ("orders", "orders has another key")
    }
    rows = [(row["position"], row["row"]) for line in lines for row in line["rows"]]
    assert len(set(rows)) == len(rows) > 100
    assert sorted(picky.rows + rows) == sorted(clean.rows)
    tables = demo / "dead.jsonl.tables.json"
    assert json.loads(tables.read_text())["shop.orders"]["error"] == "orders has another key"
    again = NoOrders()
    runner = run(again, client_id=3, dead_letters=str(dead))  # it is left out from the start
    assert runner.status.tables_aside == ["shop.orders"]
    assert sorted(again.rows) == sorted(picky.rows)
    tables.write_text("{")
    with pytest.raises(SinkError, match="cannot be read"):
        run(again, client_id=4, dead_letters=str(dead))


def test_what_is_aside_is_told_also_where_a_write_finds_what_cannot_be_taken(demo: Path) -> None:
    """A batch that is halved before its commit has its rows of that table in the dead letters."""

    class Picky(NoOrders):
        def write(self, changes: Changes) -> None:
            super().write(changes)
            if self.refuse in self._staged:
                raise SinkError("too long", "poison")

    clean, picky = Target(), Picky()
    run(clean, client_id=1)
    dead = demo / "dead.jsonl"
    run(picky, client_id=2, dead_letters=str(dead))
    orders = len(clean.rows) - len(picky.rows)
    dead.unlink()
    again = Picky()
    again.refuse = picky.rows[len(picky.rows) // 2]
    run(again, client_id=3, dead_letters=str(dead))
    lines = [json.loads(line) for line in dead.read_text().splitlines()]
    rows = [(row["position"], row["row"]) for line in lines for row in line["rows"]]
    assert len(rows) > orders > 100
    assert sorted(again.rows + rows) == sorted(clean.rows)


def test_a_target_that_was_set_back_is_told(demo: Path) -> None:
    class Kept(Target):
        def forget_place(self) -> None:
            self.place = None

    target = Kept()
    first = run(target, client_id=1)
    committed = first.committed
    assert committed is not None
    assert target.place == committed
    config = sink_config("python", target="m:T", client_id=2)
    for place in (None, replace(committed, position=4), replace(committed, timeline=0)):
        target.place = place
        runner = Runner(config, lambda: None, target, committed=committed)  # type: ignore[arg-type, return-value]
        with pytest.raises(SinkError, match="was set back"):
            runner.run(threading.Event())
    target.place = committed
    assert runner_of(config, target).run(threading.Event()) is None


def test_a_fatal_error_ends_it_and_says_so(demo: Path) -> None:
    class Wrong(Target):
        def commit(self, upto: Cursor) -> None:
            raise SinkError("no such table", "schema")

    runner = runner_of(sink_config("python", target="m:T"), Wrong())
    with pytest.raises(SinkError, match="no such table"):
        runner.run(threading.Event())
    assert runner.status.state == "failed"


def test_it_gives_up_where_that_is_asked_for(demo: Path) -> None:
    class Away(Target):
        def open(self) -> Cursor | None:
            raise SinkError("connection refused", "retry")

    with pytest.raises(SinkError, match="refused"):
        run(Away(), give_up_after_s=0.1, retry_max_s=0.05)


def inserts(batch: pa.RecordBatch) -> pa.RecordBatch | None:
    return batch.filter(pc.equal(batch["event_type"], "INSERT")).replace_schema_metadata(None)


def test_json_lines_with_a_transform(demo: Path) -> None:
    path = demo / "changes.jsonl"
    config = sink_config("jsonl", path=str(path), transform=f"{__name__}:inserts")
    runner_of(config).run(threading.Event())
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    rows = [line for line in lines if "event_type" in line]
    assert rows
    assert {row["event_type"] for row in rows} == {"INSERT"}
    assert all(row["schema"] == "shop" and row["after"] for row in rows)
    path.write_text(path.read_text() + '{"half')  # as a crash leaves it
    runner_of(config.model_copy(update={"client_id": 8})).run(threading.Event())
    after = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(after) == 2 * len(lines)


def fails(batch: pa.RecordBatch) -> pa.RecordBatch | None:
    raise ValueError("no such shop")


def gives_a_table(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])


@pytest.mark.parametrize(
    ("name", "said"),
    [("fails", "raised ValueError: no such shop"), ("gives_a_table", "returned a Table")],
)
def test_a_transform_that_fails_is_named_with_the_rows(name: str, said: str, demo: Path) -> None:
    config = sink_config("jsonl", path=str(demo / "none"), transform=f"{__name__}:{name}")
    rows = rf"given rows of shop\.\w+ from mysql-bin\.\d+:\d+ on, {said}"
    with pytest.raises(SinkError, match=rf"^sink s: transform '{__name__}:{name}', {rows}"):
        runner_of(config).run(threading.Event())


def test_the_sink_of_the_page(demo: Path) -> None:
    """Each change once, over a crash in the midst of a commit."""
    page = (Path(__file__).parents[3] / "docs/how-to/sinks.md").read_text(encoding="utf-8")
    (text,) = (each for each in page.split("```python\n") if "class Audit" in each)
    named: dict[str, Any] = {}
    exec(text.partition("```")[0], named)
    config = sink_config("python", target="m:T", options={"path": str(demo / "a.db")})
    for crash in (True, False):
        audit = named["Audit"](config)
        if crash:
            audit.commit = lambda upto, sink=audit: sink.db.execute("SELECT no_such_column")
            with pytest.raises(sqlite3.OperationalError):
                runner_of(config, audit).run(threading.Event())
            continue
        runner = runner_of(config, audit)
        runner.run(threading.Event())
    with contextlib.closing(sqlite3.connect(demo / "a.db")) as written:
        ((count, distinct),) = written.execute("SELECT count(*), count(DISTINCT at) FROM changes")
    assert count == runner.status.rows
    assert distinct > 100


class Recorder(Target):
    """Writes down what comes, in its order."""

    def __init__(self) -> None:
        super().__init__()
        self.came: list[str] = []

    def write(self, changes: Changes) -> None:
        for step in changes.statements():
            self.came.append("ddl" if isinstance(step, list) else "rows")

    def commit(self, upto: Cursor) -> None:
        self.came.append("commit")
        super().commit(upto)


def test_all_before_a_ddl_is_committed_before_it_comes(tmp_path: Path) -> None:
    """For every target: also a queue, whose partitions and streams know nothing of each other."""
    log = {"files": [str(GOLDEN / "mysql97" / "mysql_ddl.binlog")]}
    recorder = Recorder()
    with destination(tmp_path, held=True, source=log, tsdb={}):
        run(recorder, batch_size=100_000)
    ddl = [at for at, what in enumerate(recorder.came) if what == "ddl"]
    assert len(ddl) > 10
    assert "rows" in recorder.came
    assert {recorder.came[at - 1] for at in ddl if at} == {"commit"}


def test_paused_it_writes_nothing(demo: Path) -> None:
    target = Target()
    runner = runner_of(sink_config("python", target="m:T", batch_size=32), target)
    runner.pause()
    stopped = threading.Event()
    thread = threading.Thread(target=runner.run, args=(stopped,))
    thread.start()
    while runner.status.state != "paused":
        assert thread.is_alive()
    assert not thread.join(1)
    assert target.commits == 0
    runner.resume()
    thread.join(60)
    assert runner.status.state == "stopped"
    assert target.commits > 1
