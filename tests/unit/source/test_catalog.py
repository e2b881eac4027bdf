"""Columns of information_schema, as the binlog's rows have them."""

from __future__ import annotations

from typing import Any

import pytest

from ray_canal.errors import UnsupportedEvent
from ray_canal.model.table_meta import SharedColumns
from ray_canal.source.catalog import column_of_row
from ray_canal.source.catalog_tables import _Columns, _state
from ray_canal.types import mysql


def row_of(data_type: str, **other: Any) -> dict[str, Any]:
    """What the server says of a column."""
    row = dict.fromkeys(
        ("CHARACTER_SET_NAME", "CHARACTER_MAXIMUM_LENGTH", "NUMERIC_PRECISION", "NUMERIC_SCALE",
         "DATETIME_PRECISION", "EXTRA")
    )  # fmt: skip
    name = {"COLUMN_NAME": "c", "DATA_TYPE": data_type, "COLUMN_TYPE": data_type}
    return row | name | {"IS_NULLABLE": "YES"} | other


@pytest.mark.parametrize(
    ("row", "type_code", "charset", "length"),
    [
        (row_of("integer"), mysql.LONG, "", 0),
        (row_of("numeric", NUMERIC_PRECISION=9, NUMERIC_SCALE=2), mysql.NEWDECIMAL, "", 0),
        (row_of("bit", NUMERIC_PRECISION=9), mysql.BIT, "", 9),
        (row_of("uuid"), mysql.STRING, "binary", 0),
        (row_of("varbinary", CHARACTER_MAXIMUM_LENGTH=7), mysql.VARCHAR, "binary", 7),
        (row_of("vector", CHARACTER_MAXIMUM_LENGTH=12), mysql.VECTOR, "", 3),
        (
            row_of("char", CHARACTER_SET_NAME="utf8", CHARACTER_MAXIMUM_LENGTH=4),
            mysql.STRING, "utf8mb3", 4,
        ),
    ],
)  # fmt: skip
def test_columns(row: dict[str, Any], type_code: int, charset: str, length: int) -> None:
    column = column_of_row(row, is_key=False)
    assert (column.type_code, column.charset, column.length) == (type_code, charset, length)


def test_labels_are_as_values_have_them() -> None:
    """COLUMN_TYPE doubles quotes and backslashes, and has other escapes for control characters."""
    row = row_of("enum", COLUMN_TYPE=r"enum('a\\b','it''s','x\ny','\0','','ü,(')")
    assert column_of_row(row, False).labels == ("a\\b", "it's", "x\ny", "\0", "", "ü,(")


def test_a_type_that_is_not_known_is_no_char() -> None:
    with pytest.raises(UnsupportedEvent, match="column c has a type that is not known: 'xmltype'"):
        column_of_row(row_of("xmltype"), is_key=False)


def test_its_table_alone_is_one_whose_columns_are_not_known() -> None:
    table = {"TABLE_SCHEMA": "s", "TABLE_NAME": "t", "TABLE_COLLATION": "utf8mb4_bin"}
    columns = _Columns(SharedColumns(), [])
    for row in (row_of("integer"), row_of("xmltype")):
        columns.add(row)
    state = _state(table, columns, [], False)
    assert "xmltype" in state.problem
    assert not state.columns
