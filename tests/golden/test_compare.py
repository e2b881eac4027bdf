"""The comparison itself: it sees every kind of difference, and no defect explains a wrong value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ray_canal.canal.generated import EntryProtocol_pb2 as pb
from tests.golden.compare import CANAL_ONLY, OURS_ONLY, cases, change, differences
from tests.golden.defects import explain

CASE = next(case for case in cases() if str(case) == "mysql97/mysql_numeric.live.pb")


def changed_row(entry: Any, edit: Callable[[Any], None]) -> bytes:
    """The entry with its first row edited. (Empty header fields are lost; so the header differs in
    bytes, but in no field.)"""
    found = change(entry)
    edit(found.rowDatas[0])
    entry.storeValue = found.SerializeToString()
    return bytes(entry.SerializeToString())


def set_value(row: Any) -> None:
    row.afterColumns[1].value = "3.14"


def set_updated(row: Any) -> None:
    row.afterColumns[1].updated = False


def set_type(row: Any) -> None:
    row.afterColumns[1].sqlType = 4


def drop_column(row: Any) -> None:
    del row.afterColumns[1]


@pytest.mark.parametrize(
    ("edit", "aspect"),
    [
        (set_value, "d65_30.value"),
        (set_updated, "d65_30.updated"),
        (set_type, "d65_30.sqlType"),
        (drop_column, "column names"),
    ],
)
def test_an_edited_row_is_seen_and_not_explained(edit: Callable[[Any], None], aspect: str) -> None:
    messages = CASE.canal()
    entries = [pb.Entry.FromString(message) for message in messages]
    number = next(
        number
        for number, entry in enumerate(entries)
        if entry.header.tableName == "t_dec" and entry.header.eventType == pb.INSERT
    )
    ours = [*messages[:number], changed_row(entries[number], edit), *messages[number + 1 :]]
    [pair] = differences(ours, messages)
    assert pair.aspects == (aspect,)
    assert explain(CASE, pair, aspect) is None


@pytest.mark.parametrize("field", ["tableName", "logfileName", "executeTime", "eventLength"])
def test_an_edited_header_is_seen(field: str) -> None:
    messages = CASE.canal()
    entry = pb.Entry.FromString(messages[0])
    old = getattr(entry.header, field)
    setattr(entry.header, field, old + old)
    [pair] = differences([entry.SerializeToString(), *messages[1:]], messages)
    assert pair.aspects == (f"header.{field}",)
    assert explain(CASE, pair, pair.aspects[0]) is None


def test_missing_and_additional_entries_are_seen() -> None:
    messages = CASE.canal()
    [missing] = differences(messages[:-1], messages)
    [additional] = differences(messages, messages[:-1])
    assert missing.aspects == (CANAL_ONLY,)
    assert additional.aspects == (OURS_ONLY,)
    assert explain(CASE, missing, CANAL_ONLY) is None
    assert explain(CASE, additional, OURS_ONLY) is None
