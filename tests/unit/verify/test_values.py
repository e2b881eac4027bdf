"""Each rule of what is compared, in which form, and what is not."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from ray_canal.model.table_meta import ColumnMeta
from ray_canal.types import mysql
from ray_canal.verify.rows import ABSENT, TheirColumn
from ray_canal.verify.values import equal, not_compared, opinion, plain, type_family

UTC = dt.timezone.utc
NAMED = TheirColumn("c", 0, "utf8", True)
UNNAMED = TheirColumn(None, 0, None, False)


def column(code: int, mysql_type: str = "", **more: Any) -> ColumnMeta:
    return ColumnMeta("c", code, mysql_type, **more)


def agree(meta: ColumnMeta, ours: Any, theirs: Any, their: TheirColumn = NAMED) -> bool:
    assert not not_compared(meta, their, ours, theirs, False)
    return equal(plain(meta, ours), opinion(meta, their, theirs, ours))


FORMS = [
    (column(mysql.BIT, length=9), 257, "100000001", "100000000"),
    (column(mysql.SET, labels=("a", "b"), charset="latin1"), ["a", "b"], {"b", "a"}, {"a"}),
    (column(mysql.SET, labels=("a",), charset="latin1"), [], None, {"a"}),
    (column(mysql.YEAR), 0, 1900, 2000),
    (column(mysql.STRING, "binary(4)", length=4), b"ab\0\0", b"ab", b"ac"),
    (column(mysql.VARCHAR, "varbinary(4)"), b"\xe9", "é", "e"),
    (column(mysql.VARCHAR, "varchar(9)", charset="utf8mb4"), "é", "é", "e"),
    (column(mysql.VARCHAR, "varchar(9)", charset="sjis"), "abc", "abc", "abd"),
    (
        column(mysql.TIMESTAMP2), dt.datetime(2026, 1, 2, tzinfo=UTC), dt.datetime(2026, 1, 2),
        dt.datetime(2026, 1, 3),
    ),
    (column(mysql.JSON), '{"a": [1.5, "x", true]}', {b"a": [1.5, b"x", True]},
     {b"a": [1.5, b"x", 1]}),
    (column(mysql.DOUBLE), float("nan"), float("nan"), 1.0),
    (column(mysql.LONG), None, None, 0),
    (column(mysql.LONG), ABSENT, ABSENT, None),
    (column(mysql.LONG), None, None, ABSENT),
]  # fmt: skip


@pytest.mark.parametrize(("meta", "ours", "same", "other"), FORMS)
def test_forms_are_brought_together(meta: ColumnMeta, ours: Any, same: Any, other: Any) -> None:
    assert agree(meta, ours, same)
    assert not agree(meta, ours, other)


def test_without_row_metadata_a_number_has_no_sign() -> None:
    meta = column(mysql.SHORT, "smallint unsigned", unsigned=True)
    assert agree(meta, 65535, -1, UNNAMED)
    assert not agree(meta, 65535, -1, NAMED)
    assert not agree(column(mysql.SHORT, "smallint"), 65535, -1, UNNAMED)


NOT_COMPARED = [
    (column(mysql.VARCHAR, charset="hp8"), NAMED, "é", b"\xc5", "no such codec"),
    (column(mysql.VARCHAR, charset="sjis"), NAMED, "‾", "~~é", "maps it otherwise"),
    (column(mysql.VARCHAR, charset="cp1251"), UNNAMED, "ж", "x", "no character sets"),
    (column(mysql.STRING, "uuid", charset="binary"), NAMED, "a-b", b"ab", "bytes to"),
    (column(mysql.JSON), NAMED, '"2026-01-01"', dt.datetime(2026, 1, 1), "no JSON type"),
    (column(mysql.VECTOR, "vector(1)"), NAMED, [1.0], b"\0\0\0\0", "a vector"),
    (column(mysql.ENUM, labels=("a",)), UNNAMED, "a", None, "no labels"),
    (column(mysql.ENUM, labels=("é",), charset="latin1"), NAMED, "é", "", "labels in latin1"),
    (column(mysql.TIME2), NAMED, -dt.timedelta(microseconds=5), dt.timedelta(0), "negative TIME"),
    (column(mysql.TIMESTAMP2), NAMED, None, dt.datetime(1970, 1, 1), "zero TIMESTAMP"),
    (
        column(mysql.TIMESTAMP2), NAMED, dt.datetime(2040, 1, 1, tzinfo=UTC),
        dt.datetime(1903, 1, 1), "after 2038",
    ),
    (column(mysql.DATETIME2), UNNAMED, None, None, "NULL or a date"),
]  # fmt: skip


@pytest.mark.parametrize(("meta", "their", "ours", "theirs", "reason"), NOT_COMPARED)
def test_why_values_are_not_compared(
    meta: ColumnMeta, their: TheirColumn, ours: Any, theirs: Any, reason: str
) -> None:
    assert reason in not_compared(meta, their, ours, theirs, False)


def test_a_date_that_no_calendar_has_is_not_compared() -> None:
    meta = column(mysql.DATETIME2)
    assert "no calendar" in not_compared(meta, NAMED, None, None, True)
    assert not not_compared(meta, NAMED, dt.datetime(2026, 1, 1), None, True)  # a difference


@pytest.mark.parametrize(
    ("mysql_type", "family"),
    [("varchar(50)", "varchar"), ("int unsigned", "int"), ("ENUM('a')", "enum"), ("", "3")],
)
def test_families(mysql_type: str, family: str) -> None:
    assert type_family(column(3, mysql_type)) == family
