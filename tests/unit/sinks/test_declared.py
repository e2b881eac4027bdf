"""Declared types as text; what servers make of them is tests/integration/test_mysql_mirror.py's."""

from __future__ import annotations

import pytest

from ray_canal.schema.ddl.column_definition import read_definition
from ray_canal.schema.ddl.words import Words
from ray_canal.sinks.declared import declared_type


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("int(11) unsigned zerofill", "int(11) unsigned zerofill"),
        ("decimal(10, 2)", "decimal(10,2)"),
        ("float(7,4)", "float(7,4)"),
        ("float(24)", "float(24)"),
        ("float(53) unsigned", "double unsigned"),
        ("double(9,2)", "double(9,2)"),
        ("serial", "bigint unsigned"),
        ("datetime(3)", "datetime(3)"),
        ("varchar(20)", "varchar(20)"),
        ("nvarchar(20)", "varchar(20)"),
        ("national char varying(20)", "varchar(20)"),
        ("nchar(3)", "char(3)"),
        ("char", "char"),
        ("long varchar", "mediumtext"),
        ("long", "mediumtext"),
        ("longtext", "longtext"),
        ("text(20)", "text(20)"),
        ("varchar(9) character set binary", "varbinary(9)"),
        ("char(5) byte", "binary(5)"),
        ("tinytext character set binary", "tinyblob"),
        ("binary(4)", "binary(4)"),
        ("varbinary(4)", "varbinary(4)"),
        ("long varbinary", "long varbinary"),
        ("number(9)", "decimal(9)"),
        ("number(9,2)", "decimal(9,2)"),
        ("uuid", "uuid"),
        ("inet4", "inet4"),
        ("inet6", "inet6"),
        ("blob", "blob"),
        ("bit(12)", "bit(12)"),
        ("json", "json"),
        ("point", "point"),
        (r"enum('a\\b','it''s','x\ny')", "enum('a\\b','it''s','x\ny')"),
        ("set(\"x\"\"y\",'z')", "set('x\"y','z')"),
    ],
)
def test_a_type_means_the_same_in_the_target(source: str, target: str) -> None:
    column = read_definition(Words(f"c {source}")).column("utf8mb4")
    assert declared_type(column) == target
