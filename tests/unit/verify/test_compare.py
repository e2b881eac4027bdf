"""Two decoders over the bundled files: they agree, and each kind of falsehood on one side is
found."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

import ray_canal.demo
from ray_canal.filter import TableFilter
from ray_canal.offline import decode_chunks
from ray_canal.verify.compare import Comparison, Report
from ray_canal.verify.rows import OurEvent, TheirEvent, TheirRow, our_events
from ray_canal.verify.runs import verify_files
from ray_canal.verify.second_reader import SecondReader, file_events

FILES = sorted(Path(ray_canal.demo.__file__).parent.glob("mysql-bin.*"))
FILE = FILES[0]
ALL = TableFilter(r".*\..*")


@pytest.fixture(scope="module")
def both() -> tuple[list[OurEvent], list[TheirEvent]]:
    ours = list(our_events(decode_chunks([FILE]), ALL))
    return ours, list(SecondReader().events(FILE.name, file_events(FILE)))


def compared(ours: list[OurEvent], theirs: list[TheirEvent], wanted: TableFilter = ALL) -> Report:
    report = Report()
    Comparison(report, [FILE.name], wanted).run(ours, theirs)
    return report


def test_bundled_files_have_no_difference() -> None:
    heard: list[int] = []
    report = verify_files(FILES, Report(), on_bytes=heard.append)
    assert report.agrees
    assert not report.not_compared
    assert report.values > 60_000
    assert sum(heard) > 0.9 * sum(path.stat().st_size for path in FILES)


def test_one_false_value_is_one_difference(both: tuple[list[OurEvent], list[TheirEvent]]) -> None:
    ours, theirs = both
    number = next(k for k, event in enumerate(theirs) if event.event_type == "UPDATE")
    event = theirs[number]
    row = event.rows[0]
    assert row.after is not None
    column = next(k for k, value in enumerate(row.after) if type(value) is int)
    after = (*row.after[:column], row.after[column] + 1, *row.after[column + 1 :])
    false = dataclasses.replace(event, rows=(row._replace(after=after), *event.rows[1:]))
    report = compared(ours, [*theirs[:number], false, *theirs[number + 1 :]])
    assert not report.agrees
    assert report.differences == 1
    (found,) = report.details
    assert (found.journal_name, found.position, found.row) == (FILE.name, event.position, 0)
    assert found.what == f"after.{event.columns[column].name}"
    assert found.table == f"{event.schema}.{event.table}"
    assert (found.ours, found.theirs) == (repr(row.after[column]), repr(after[column]))


def test_a_falsified_byte_of_the_log_is_found() -> None:
    """One decoder gets the file's bytes, the other one with another byte in one row."""
    framed = list(file_events(FILE))
    number = next(k for k, event in enumerate(framed) if b"TEA-00001" in event.data)
    data = framed[number].data.replace(b"TEA-00001", b"TEA-00007")
    framed[number] = framed[number]._replace(data=data)
    theirs = list(SecondReader().events(FILE.name, framed))
    report = compared(list(our_events(decode_chunks([FILE]), ALL)), theirs)
    assert report.differences == 1
    found = report.details[0]
    assert (found.position, found.what) == (framed[number].position, "after.sku")
    assert (found.ours, found.theirs) == ("'TEA-00001'", "'TEA-00007'")


def _without_a_null(row: TheirRow) -> TheirRow:
    return row._replace(after=tuple("x" if value is None else value for value in row.after or ()))


FALSEHOODS: dict[str, Callable[[TheirEvent], TheirEvent]] = {
    "event type": lambda e: dataclasses.replace(e, event_type="DELETE"),
    "schema": lambda e: dataclasses.replace(e, schema="other"),
    "table": lambda e: dataclasses.replace(e, table="other"),
    "column count": lambda e: dataclasses.replace(e, columns=e.columns[:-1]),
    "column names": lambda e: dataclasses.replace(
        e, columns=(e.columns[0]._replace(name="other"), *e.columns[1:])
    ),
    "rows": lambda e: dataclasses.replace(e, rows=(*e.rows, e.rows[0])),
    "before image": lambda e: dataclasses.replace(
        e, rows=(e.rows[0]._replace(before=e.rows[0].after), *e.rows[1:])
    ),
    "row event": lambda e: dataclasses.replace(e, position=e.position + 1),
}


@pytest.mark.parametrize("what", FALSEHOODS)
def test_each_falsehood_is_named(
    what: str, both: tuple[list[OurEvent], list[TheirEvent]]
) -> None:
    ours, theirs = both
    number = next(k for k, event in enumerate(theirs) if event.event_type == "INSERT")
    false = FALSEHOODS[what](theirs[number])
    report = compared(ours, [*theirs[:number], false, *theirs[number + 1 :]])
    assert {found.what for found in report.details} == {what} | (
        {"column names"} if what == "column count" else set()
    )


def test_a_null_is_a_value(both: tuple[list[OurEvent], list[TheirEvent]]) -> None:
    ours, theirs = both
    number = next(k for k, e in enumerate(theirs) if any(None in (r.after or ()) for r in e.rows))
    event = theirs[number]
    false = dataclasses.replace(event, rows=tuple(map(_without_a_null, event.rows)))
    report = compared(ours, [*theirs[:number], false, *theirs[number + 1 :]])
    nulls = sum((row.after or ()).count(None) for row in event.rows)
    assert report.differences == nulls > 0
    assert report.details[0].ours == "None"


def test_what_it_cannot_read_is_counted(both: tuple[list[OurEvent], list[TheirEvent]]) -> None:
    ours, theirs = both
    whole = compared(ours, theirs)
    event = theirs[0]
    blind = TheirEvent(journal_name=event.journal_name, position=event.position, reason="secret")
    report = compared(ours, [blind, *theirs[1:]])
    assert report.agrees
    assert sum(report.not_compared.values()) == whole.values - report.values > 0
    assert {reason for _, reason in report.not_compared} == {"secret"}


def test_only_wanted_tables_count(both: tuple[list[OurEvent], list[TheirEvent]]) -> None:
    _, theirs = both
    one = TableFilter(f"{theirs[0].schema}.{theirs[0].table}")
    ours = list(our_events(decode_chunks([FILE]), one))
    report = compared(ours, theirs, one)
    assert report.agrees
    assert 0 < report.rows < sum(len(event.rows) for event in theirs)


def test_it_can_end_early_and_says_so(both: tuple[list[OurEvent], list[TheirEvent]]) -> None:
    ours, theirs = both
    answers = iter(["", "", "enough"])
    report = Report()
    Comparison(report, [FILE.name], ALL, lambda: next(answers)).run(ours, theirs)
    assert (report.events, report.ended) == (2, "enough")


def test_what_ray_canal_cannot_decode_is_a_failure(tmp_path: Path) -> None:
    data = bytearray(FILE.read_bytes())
    data[len(data) // 2 :] = b"\xff" * (len(data) - len(data) // 2)
    path = tmp_path / FILE.name
    path.write_bytes(data)
    report = verify_files([path], Report())
    assert "CorruptEvent" in report.failure
    assert not report.agrees
    assert report.values > 0


def test_details_are_limited_but_all_are_counted(
    both: tuple[list[OurEvent], list[TheirEvent]],
) -> None:
    ours, _ = both
    report = Report(details_max=2)
    Comparison(report, [FILE.name], ALL).run(ours, [])
    assert (report.differences, len(report.details)) == (len(ours), 2)
    assert report.as_json()["details"][0]["what"] == "row event"
