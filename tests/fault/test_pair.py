"""A short fault run whose source is two servers, and what judges it: the long one is `make
fault`."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.fault.journal import write
from tests.fault.pair import pair
from tests.fault.pair_run import PairJudge, PairRun
from tests.fault.test_judge import batch, journaled
from tests.fault.truth import Archive, Row, rows_decoded, rows_of
from tests.servers import Server, start

SHORT = (
    "fail over",
    "reset",
    "fill disk",
    "purge one",
    "drop cursors",
    "cancel gets",
    "purge",
    "reset connected",
    "switch over",
)


@pytest.mark.soak
@pytest.mark.ray
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["mysql97", "mysql56", "mariadb"])
def test_a_short_run_over_two_servers_loses_and_reorders_nothing(
    kind: str, tmp_path: Path
) -> None:
    """Failover, RESET, purge, a full disk, cursors that cannot be reached, cancelled gets."""
    with (
        start("mysql97", tmp_path / "cursors") as cursors,
        pair(tmp_path, kind) as servers,
    ):
        # A seed whose pauses are 15 s in all, with a new file behind "reset connected".
        with PairRun(servers, cursors, tmp_path, seed=915, burst_rows=60) as run:
            for name in SHORT:
                print(f"{name}: {run.fault(name):.1f} s")
            run.judge()
        print(run.report())
    assert all(judge.rows for judge in run.judges.values())
    # A failover, two resets and a switch: each begins a timeline.
    assert run.judges[1].timelines >= 4


def test_the_truth_is_what_the_files_hold(tmp_path: Path) -> None:
    """mysqlbinlog's rows are those of decode_files, and outlive a purge and a reset."""
    with start("mysql97", tmp_path / "server") as server:
        archive = Archive(server, tmp_path / "archive")
        server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id BIGINT PRIMARY KEY, v TEXT)")
        with server.connect(autocommit=False) as connection:
            cursor = connection.cursor()
            cursor.execute("INSERT INTO d.t VALUES (-1, 'a\n### DELETE FROM `d`.`t`'), (2, NULL)")
            cursor.execute("UPDATE d.t SET id = 3, v = '###   @1=9' WHERE id = 2")
            connection.commit()
            cursor.execute("DELETE FROM d.t WHERE id = -1")
            connection.commit()
        rows = list(rows_of(server.binlogs()))
        assert rows == list(rows_decoded(server.binlogs()))
        assert [row[2:] for row in rows] == [(0, None, -1), (1, None, 2), (2, 2, 3), (0, -1, None)]
        archive.keep()
        purge(server)
        server.execute("INSERT INTO d.t VALUES (4, '')")
        archive.keep()
        archive.end_era()
        later = list(rows_decoded(server.binlogs()))
        server.execute("RESET BINARY LOGS AND GTIDS")
        server.execute("INSERT INTO d.t VALUES (5, '')")
        archive.keep()
        first, second = (list(rows_of(era)) for era in archive.eras())
        assert (first, second) == ([*rows, *later], list(rows_decoded(server.binlogs())))


def purge(server: Server) -> None:
    server.execute("FLUSH BINARY LOGS")
    server.execute(f"PURGE BINARY LOGS TO '{server.position()[0]}'")


def judged(folder: Path, *records: Any) -> PairJudge:
    judge = PairJudge("d", r"d\.t", folder / "journal")
    with judge.path.open("ab") as out:
        for record in records:
            write(out, journaled(record))
            judge.read()
    return judge


def names(*positions: int) -> list[Row]:
    return [("d.t", f"u:{p}", 0, None, p) for p in positions]


def test_gtids_that_begin_again_name_other_rows(tmp_path: Path) -> None:
    """A1: behind a reset the rows of the same GTIDs are new, and none may be left out."""
    again = batch(4, 5, timeline=2)
    keys = itertools.count(100)
    rows = [{**row, "after": {"id": next(keys)}} for row in again.to_pylist()]
    other = again.from_pylist(rows).replace_schema_metadata(again.schema.metadata)
    judge = judged(tmp_path, "start", ("message", (4, 5)), "ack", ("message", other), "ack")
    truth = [*names(4, 5), ("d.t", "u:4", 0, None, 100), ("d.t", "u:5", 0, None, 101)]
    assert judge.explained(truth) == ""
    assert "lost 1: [('d.t', 'u:6', 0, None, 6)]" in judge.explained([*truth, *names(6)])
    assert "the first difference is row 1" in judge.explained(names(4, 6))


def test_what_comes_again_though_it_was_acked_is_counted(tmp_path: Path) -> None:
    judge = judged(
        tmp_path, "start", ("message", (4, 5)), "ack", ("message", (6, 7)), "start",
        ("message", batch(5, 6, 7, timeline=2)),
    )  # fmt: skip
    assert (judge.again_though_acked, judge.rows) == (1, 4)
    assert judge.explained(names(4, 5, 6, 7)) == ""
