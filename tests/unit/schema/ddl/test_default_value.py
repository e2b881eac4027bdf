"""Constants after DEFAULT."""

from __future__ import annotations

import pytest

from ray_canal.schema.ddl.column_type import column_meta
from ray_canal.schema.ddl.default_value import implicit_value, read_constant
from ray_canal.schema.ddl.words import MODE_NO_BACKSLASH_ESCAPES, Dialect, Words


@pytest.mark.parametrize(
    ("sql", "value", "rest"),
    [
        ("7", "7", []), ("-7 FIRST", "-7", ["FIRST"]), ("+1.5 KEY", "+1.5", ["KEY"]),
        ("1.5e-3", "1.5e-3", []), (".5", ".5", []), ("1E5", "1E5", []), ("2.", "2.", []),
        ("'a' 'b''c' NULL", "ab'c", ["NULL"]), (r"'a\n\'b'", "a\n'b", []), ('"x"', "x", []),
        ("_utf8mb4'é'", "é", []), ("N'x'", "x", []), ("TRUE", "1", []), ("false", "0", []),
        ("x'4142'", b"AB", []), ("b'101'", b"\x05", []), ("0x414", b"\x04\x14", []),
        ("0b1", b"\x01", []), ("X''", b"", []), ("x'4G'", None, []), ("b'12'", None, []),
        ("('é') NULL", "é", ["NULL"]), ("('a' 'b')", None, ["(", "'a'", "'b'", ")"]),
        ("NULL", None, ["NULL"]), ("(7)", None, ["(", "7", ")"]), ("- x", None, ["-", "x"]),
        ("CURRENT_TIMESTAMP(3)", None, ["CURRENT_TIMESTAMP", "(", "3", ")"]), ("", None, []),
    ],
)  # fmt: skip
def test_a_constant_is_taken_and_nothing_else(
    sql: str, value: str | bytes | None, rest: list[str]
) -> None:
    words = Words(sql)
    assert read_constant(words, None) == value
    assert [token.raw for token in words.rest()] == rest


def test_a_backslash_is_itself_where_the_mode_says_so() -> None:
    dialect = Dialect(sql_mode=MODE_NO_BACKSLASH_ESCAPES)
    assert read_constant(Words(r"'a\n'", dialect), dialect) == r"a\n"


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int", "0"), ("decimal(9,2)", "0"), ("bit(3)", "0"), ("year", "0"), ("varchar(9)", ""),
        ("text", ""), ("varbinary(9)", ""), ("enum('b','a')", "b"), ("set('b')", ""),
        ("time(3)", "00:00:00"), ("date", None), ("timestamp", None), ("json", "null"),
        ("point", None),
    ],
)  # fmt: skip
def test_a_column_that_takes_no_null_has_a_value_without_a_default(
    kind: str, value: str | None
) -> None:
    assert implicit_value(column_meta("c", kind, charset="utf8mb4")) == value


@pytest.mark.parametrize(
    ("kind", "value"),
    [("uuid", f"{0:08}-0000-0000-0000-{0:012}"), ("inet6", "::"), ("inet4", "0.0.0.0")],
)
def test_what_mariadb_gives_an_address_that_is_not_null(kind: str, value: str) -> None:
    assert implicit_value(column_meta("c", kind)) == value
