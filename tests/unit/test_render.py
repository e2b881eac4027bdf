"""Values as JSON."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import json
from pathlib import Path

import pyarrow as pa
import pytest

from ray_canal.model.position import EntryPosition
from ray_canal.render import plain, print_durably, subscriber_lines


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (decimal.Decimal("-0.10"), "-0.10"),
        (decimal.Decimal("1E+3"), "1000"),
        (b"\x00\xff", "AP8="),
        (dt.date(2024, 2, 29), "2024-02-29"),
        (dt.timedelta(hours=-838, minutes=-59, seconds=-59), "-838:59:59"),
        (dt.timedelta(microseconds=-100000), "-00:00:00.100000"),
        ({"a": [None, True, 1, 1.5, "x"]}, {"a": [None, True, 1, 1.5, "x"]}),
    ],
)
def test_plain(value: object, expected: object) -> None:
    assert plain(value) == expected


def test_plain_of_a_record() -> None:
    place = EntryPosition("b.1", 4)
    assert plain(place) == dataclasses.asdict(place)


def test_subscribers_for_a_terminal() -> None:
    """b2: who holds what is seen at a glance, and why one cannot go on."""
    record = {
        "client_id": 7, "filter": "", "cursor": "bin.000001:4711", "held_by": "ray",
        "called_at": 0.0, "policy": "block", "bytes_behind": 12345, "entries_behind": 5,
        "failure": None, "detached": False, "last_call_s": None,
        "expired_at": None,
    }  # fmt: skip
    other = {
        **record, "client_id": 1001, "held_by": None, "called_at": None, "bytes_behind": None,
        "entries_behind": None, "detached": True, "failure": "PositionPurged: it is gone",
    }  # fmt: skip
    assert subscriber_lines([{**record, "label": "crm", "paused_at": 5}])[1].split()[:3] == [
        "7", "crm", "paused",
    ]  # fmt: skip
    asks = subscriber_lines([{**record, "last_call_s": 0.0}])[1]
    assert f" {dt.datetime.now(dt.timezone.utc):%Y-%m-}" in asks  # not as it was kept
    assert subscriber_lines([record, other]) == [
        "client  state       cursor           bytes behind  last call             by   policy  "
        "filter",
        "7       in the log  bin.000001:4711  12,345        1970-01-01 00:00:00Z  ray  block",
        "1001    failed      bin.000001:4711  -             -                     -    block",
        "1001: PositionPurged: it is gone",
    ]


@pytest.mark.parametrize("encoding", ["ascii", "iso8859-1", "gbk", "utf-8"])
def test_changes_are_json_in_any_encoding(encoding: str, tmp_path: Path) -> None:
    text, names = "größe 漢 \U0001f600", {b"canal.schema": b"s", b"canal.table": b"t"}
    columns = {"position": [4], "row": [0], "before": [None], "after": [{"c": text}]}
    rows = pa.RecordBatch.from_pydict(columns).replace_schema_metadata(names)
    with (tmp_path / "out").open("w", encoding=encoding) as out:
        print_durably([rows], out)
    (line,) = (tmp_path / "out").read_text(encoding).splitlines()
    assert json.loads(line)["after"] == {"c": text}
