"""Words: tokens of any statement, and no statement that breaks it."""

from __future__ import annotations

import random

import pytest

from ray_canal.schema.ddl.words import Words, number_of


def words(sql: str) -> list[str]:
    cursor, found = Words(sql), []
    while not cursor.done:
        found.append(cursor.peek())
        cursor.skip()
    return found


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("drop table a.b", ["DROP", "TABLE", "A", ".", "B"]),
        ("a/* x */b -- y\nc #z\nd--e", ["A", "B", "C", "D", "-", "-", "E"]),
        ("a /*!50001 b */ /*M!100301 c */ d", ["A", "B", "C", "D"]),
        ("/*!5000 b */ /*!080000123 c */", ["5000", "B", "123", "C"]),
        ("/*!" + "0" * 5005 + " a */", ["0" * 4999, "A"]),
        ("`Rename` 'x''y\\'z' \"q\"", ["`Rename", "'x''y\\'z", '"q']),
        ("2024_t $x @v 1a", ["2024_T", "$X", "@V", "1A"]),
        ("", []),
        ("/* never closed", []),
        ("'never closed", ["'never closed"]),
    ],
)
def test_tokens(sql: str, found: list[str]) -> None:
    assert words(sql) == found


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("a", ("db", "a")),
        ("s.t rest", ("s", "t")),
        ("`s 1` . `t``2`", ("s 1", "t`2")),
        ("`db.t`", ("db", "db.t")),
        ("2024_orders", ("db", "2024_orders")),
        ("商店.订单", ("商店", "订单")),
        ('"s"."t"', ("s", "t")),
        ("(", ("db", "")),
        ("", ("db", "")),
    ],
)
def test_names(text: str, name: tuple[str, str]) -> None:
    assert Words(text).name("db") == name


def test_take_steps_only_over_all_of_them() -> None:
    cursor = Words("if exists t")
    assert not cursor.take("IF", "NOT", "EXISTS")
    assert cursor.take("IF", "EXISTS")
    assert cursor.name("db") == ("db", "t")
    assert cursor.done


def test_it_reads_no_farther_than_it_must() -> None:
    cursor = Words("insert into t values " + "(1,'x')," * 3_000_000)
    assert cursor.take("INSERT", "INTO")
    assert cursor.name("db") == ("db", "t")


def test_random_text_never_fails() -> None:
    random_ = random.Random(1)
    for _ in range(500):
        text = "".join(random_.choice("ab .,()'\"`\\/*!-#\n中M5") for _ in range(40))
        assert len(words(text)) <= 40


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("65", 65),
        ("", None),
        ("1a", None),
        ("\N{SUPERSCRIPT TWO}", None),
        ("\N{ARABIC-INDIC DIGIT ONE}", None),
        ("9" * 64, 10**64 - 1),
        ("9" * 5000, None),
    ],
)
def test_a_number_is_ascii_digits_and_not_too_long(text: str, number: int | None) -> None:
    assert number_of(text) == number
