"""The judge of fault runs finds what it is there for: loss, disorder, repeats below the ack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.fault.journal import to_ipc, write
from tests.fault.judge import Judge

NAMES = {b"canal.schema": b"d", b"canal.table": b"t"}


def batch(*positions: int, timeline: int = 1, moved: int = 0) -> pa.RecordBatch:
    """Rows that stand there on the first server; `moved`: so much further on this one."""
    rows = [
        {
            "timeline": timeline,
            "journal_name": "b.000001",
            "position": p + moved,
            "row": 0,
            "transaction": f"u:{p}",
            "transaction_row": 0,
            "before": None,
            "after": {"id": p},
        }
        for p in positions
    ]
    return pa.RecordBatch.from_pylist(rows).replace_schema_metadata(NAMES)


def judged(folder: Path, *records: Any) -> Judge:
    journal = folder / "journal"
    judge = Judge("d", r"d\.t", journal)
    with journal.open("ab") as out:
        for record in records:
            write(out, journaled(record))
            judge.read()
    return judge


def journaled(record: Any) -> tuple[str, Any]:
    """A record of the journal, whose messages are given as a batch or as its rows' positions."""
    kind, value = record if isinstance(record, tuple) else (record, None)
    if kind == "message":
        value = [[to_ipc(value if isinstance(value, pa.RecordBatch) else batch(*value))]]
    return kind, value


def test_a_row_that_comes_again_counts_once(tmp_path: Path) -> None:
    judge = judged(
        tmp_path, "start", ("message", (4, 5)), "ack", ("message", (6, 7)), "start",
        ("message", (6, 7, 8)), "ack",
    )  # fmt: skip
    assert (judge.received, judge.repeated, judge.rows, judge.lives) == (7, 2, 5, 2)
    assert set(judge.tables["t"]) == {4, 5, 6, 7, 8}


@pytest.mark.parametrize(
    "records",
    [
        ("start", ("message", (5,)), ("message", (4,))),
        ("start", ("message", (4,)), "ack", "start", ("message", (4,))),
        ("start", ("message", (4, 5)), ("message", (5,))),
    ],
)
def test_disorder_and_repeats_of_what_was_acked_are_found(
    tmp_path: Path, records: tuple[Any, ...]
) -> None:
    with pytest.raises(AssertionError, match=r"came (again )?after"):
        judged(tmp_path, *records)


def test_a_gap_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = judged(tmp_path, "start", ("message", (4, 6)), "ack")
    truth = [batch(4, 6)]
    monkeypatch.setattr("ray_canal.decode_files", lambda paths: iter(truth))
    assert judge.missing([]) == ""
    truth[:] = [batch(4, 5, 6)]
    assert judge.missing([]) == "2 rows taken, the binlog has 3"


@pytest.mark.parametrize("moved", [-3, 0, 100])
def test_a_new_timeline_has_higher_ids_and_repeats_count_once(
    tmp_path: Path, moved: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A6, b4: the recipe of docs/reference/guarantees.md, after a failover to lower and higher
    places."""
    judge = judged(
        tmp_path, "start", ("message", (4, 5)), "ack", ("message", (6, 7)), "start",
        ("message", batch(6, 7, 8, timeline=2, moved=moved)), "ack",
    )  # fmt: skip
    assert (judge.timelines, judge.rows) == (2, 5)
    assert set(judge.tables["t"]) == {4, 5, 6, 7, 8}
    standby = [batch(4, 5, 6, 7, 8, timeline=0, moved=moved)]
    monkeypatch.setattr("ray_canal.decode_files", lambda paths: iter(paths))
    assert judge.missing(standby) == ""
    assert judge.missing([batch(4, 5, 6)], [batch(6, 7, 8)]) == ""
    assert judge.missing([batch(4, 5, 6)], [batch(8)]) == "5 rows taken, the binlog has 4"


def test_a_timeline_that_falls_is_found(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="came again after"):
        judged(
            tmp_path, "start", ("message", batch(4, timeline=2)), "ack", "start",
            ("message", batch(5, timeline=1)),
        )  # fmt: skip


def test_a_torn_record_is_read_when_it_is_whole(tmp_path: Path) -> None:
    judged(tmp_path, "start", ("message", (4,)))
    whole = (tmp_path / "journal").read_bytes()
    judge = Judge("d", r"d\.t", tmp_path / "journal")
    for end in range(0, len(whole) + 1, 7):
        (tmp_path / "journal").write_bytes(whole[:end])
        judge.read()
    (tmp_path / "journal").write_bytes(whole)
    judge.read()
    assert (judge.lives, judge.rows) == (1, 1)


def test_a_column_that_an_image_lacks_is_as_it_was(tmp_path: Path) -> None:
    """binlog_row_image=MINIMAL: an UPDATE has the key before, and what changed after."""
    place = {"timeline": 1, "journal_name": "b.000001", "row": 0, "transaction_row": 0}
    first = {"position": 4, "transaction": "u:4", "before": None, "after_present": None}
    later = {"transaction": "u:5", "before": {"id": 7, "v": None, "w": None}}
    lacks = {"id": False, "v": True, "w": False}
    rows = [
        {**place, **first, "after": {"id": 7, "v": 1, "w": 2}},
        {**place, **later, "position": 5, "after": {"id": None, "v": 3, "w": None},
         "after_present": lacks},
        {**place, **later, "position": 6, "after": {"id": None, "v": None, "w": None},
         "after_present": lacks},
    ]  # fmt: skip
    states = []
    for count in (1, 2, 3):
        folder = tmp_path / str(count)
        folder.mkdir()
        made = pa.RecordBatch.from_pylist(rows[:count]).replace_schema_metadata(NAMES)
        states.append(judged(folder, "start", ("message", made)).tables["t"])
    assert states == [{7: (7, 1, 2)}, {7: (7, 3, 2)}, {7: (7, None, 2)}]
