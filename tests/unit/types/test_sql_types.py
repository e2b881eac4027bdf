"""sqlType is what Canal's own entries have."""

from __future__ import annotations

import pytest

from ray_canal.kernels.base import codes
from ray_canal.schema.ddl.column_type import column_meta
from ray_canal.types import sql
from ray_canal.types.registry import sql_type, sql_type_of_null, sql_type_widened


@pytest.mark.parametrize(
    ("mysql_type", "code", "plain", "wide", "null"),
    [
        ("tinyint unsigned", codes.U8, -6, 5, -6),
        ("tinyint(1)", codes.I8, -6, -6, -6),
        ("int unsigned", codes.U32, 4, -5, 4),
        ("bigint(20) unsigned", codes.U64, -5, 3, -5),
        ("char(3)", codes.TEXT, 1, 1, 1),
        ("varchar(3)", codes.TEXT, 12, 12, 12),
        ("mediumtext", codes.TEXT, 2005, 2005, 2005),
        ("varbinary(3)", codes.BYTES, 2004, 2004, 2004),
        ("json", codes.JSON, 12, 12, 1111),
        ("set('a')", codes.SET, -7, -7, 2004),
        ("year", codes.YEAR, 12, 12, 12),
    ],
)
def test_types(mysql_type: str, code: int, plain: int, wide: int, null: int) -> None:
    column = column_meta("c", mysql_type)
    assert sql_type(column, code) == plain
    assert sql_type_widened(column, code) == wide
    assert sql_type_of_null(column, code) == null


def test_the_numbers_are_those_of_java_sql_types() -> None:
    assert (sql.TINYINT, sql.BIT, sql.OTHER, sql.CLOB) == (-6, -7, 1111, 2005)
