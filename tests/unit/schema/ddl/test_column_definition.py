"""One column's definition: its type, numbers, character set and labels."""

from __future__ import annotations

import pytest

from ray_canal.model.table_meta import ColumnMeta
from ray_canal.schema.ddl.column_definition import read_definition
from ray_canal.schema.ddl.create_table import parse_tables
from ray_canal.schema.ddl.words import MODE_MAXDB, MODE_ORACLE, Dialect, Words
from ray_canal.types import mysql


def column(definition: str, options: str = "") -> ColumnMeta:
    (table,) = parse_tables(f"CREATE TABLE t (\n  `c` {definition}\n) ENGINE=InnoDB {options};")
    assert len(table.columns) == 1
    return table.columns[0]


@pytest.mark.parametrize(
    ("definition", "mysql_type", "code", "unsigned"),
    [
        ("int NOT NULL", "int", mysql.LONG, False),
        ("int(11) DEFAULT NULL", "int(11)", mysql.LONG, False),
        ("int unsigned", "int unsigned", mysql.LONG, True),
        ("tinyint(3) unsigned zerofill", "tinyint(3) unsigned zerofill", mysql.TINY, True),
        ("BIGINT(20)  UNSIGNED", "bigint(20) unsigned", mysql.LONGLONG, True),
        ("int comment 'unsigned'", "int", mysql.LONG, False),
        ("float(7,4)", "float(7,4)", mysql.FLOAT, False),
        ("double precision", "double precision", mysql.DOUBLE, False),
        ("bool", "bool", mysql.TINY, False),
        ("serial", "serial", mysql.LONGLONG, True),
        ("year(4)", "year(4)", mysql.YEAR, False),
        ("character varying(5)", "character varying(5)", mysql.VARCHAR, False),
        ("varchar(5000) /*M!100301 COMPRESSED*/", "varchar(5000)", mysql.VARCHAR, False),
        ("point NOT NULL /*!80003 SRID 4326 */", "point", mysql.GEOMETRY, False),
        ("vector(3)", "vector(3)", mysql.VECTOR, False),
        ("inet6", "inet6", mysql.STRING, False),
        ("json DEFAULT (json_array())", "json", mysql.JSON, False),
    ],
)
def test_types(definition: str, mysql_type: str, code: int, unsigned: bool) -> None:
    found = column(definition)
    assert (found.mysql_type, found.type_code, found.unsigned) == (mysql_type, code, unsigned)


@pytest.mark.parametrize(
    ("definition", "numbers"),
    [  # length, precision, scale, fraction
        ("varchar(50)", (50, 0, 0, 0)),
        ("char", (1, 0, 0, 0)),
        ("binary(16)", (16, 0, 0, 0)),
        ("bit", (1, 0, 0, 0)),
        ("bit(9)", (9, 0, 0, 0)),
        ("int(11)", (0, 0, 0, 0)),
        ("text(20)", (0, 0, 0, 0)),
        ("decimal", (0, 10, 0, 0)),
        ("decimal(8)", (0, 8, 0, 0)),
        ("decimal(30, 12) unsigned", (0, 30, 12, 0)),
        ("datetime(6)", (0, 0, 0, 6)),
        ("time", (0, 0, 0, 0)),
    ],
)
def test_numbers(definition: str, numbers: tuple[int, int, int, int]) -> None:
    found = column(definition)
    assert (found.length, found.precision, found.scale, found.fraction) == numbers


@pytest.mark.parametrize(
    ("definition", "options", "charset"),
    [
        ("varchar(9)", "", "utf8mb4"),
        ("varchar(9)", "DEFAULT CHARSET=latin1", "latin1"),
        ("varchar(9)", "CHARACTER SET = gbk COLLATE = gbk_bin", "gbk"),
        ("varchar(9)", "COLLATE=utf8mb3_general_ci", "utf8mb3"),
        ("varchar(9)", "COMMENT='CHARSET=big5' DEFAULT CHARSET=latin1", "latin1"),
        ("text CHARACTER SET gbk COLLATE gbk_bin", "CHARSET=latin1", "gbk"),
        ("char(3) COLLATE ucs2_bin NOT NULL", "CHARSET=latin1", "ucs2"),
        ("varchar(9) DEFAULT 'CHARSET gbk'", "CHARSET=latin1", "latin1"),
        ("varchar(9) GENERATED ALWAYS AS (cast(`x` as char charset gbk))", "", "utf8mb4"),
        ("enum('charset gbk')", "CHARSET=latin1", "latin1"),
        ("blob", "CHARSET=latin1", "binary"),
        ("varbinary(3)", "", "binary"),
        ("uuid", "", "binary"),
        ("int", "CHARSET=latin1", ""),
    ],
)
def test_character_sets(definition: str, options: str, charset: str) -> None:
    assert column(definition, options).charset == charset


@pytest.mark.parametrize(
    ("definition", "mysql_type"),
    [
        ("varchar(65535) character set latin1", "varchar(65535)"),
        ("varchar(16383)", "varchar(16383)"),
        ("varchar(16384)", "mediumtext"),
        ("varchar(65535)", "mediumtext"),
        ("varbinary(70000)", "mediumblob"),
        ("varchar(9000000)", "longtext"),
    ],
)
def test_a_varchar_that_is_too_long_is_a_text(definition: str, mysql_type: str) -> None:
    """As servers without a strict sql_mode make it, with a warning (ER_AUTO_CONVERT)."""
    assert column(definition, "charset=utf8mb4").mysql_type == mysql_type


@pytest.mark.parametrize(
    ("kind", "mode", "mysql_type"),
    [
        ("date", MODE_ORACLE, "datetime"),
        ("mariadb_schema.date", MODE_ORACLE, "date"),
        ("mariadb_schema.date", 0, "date"),
        ("varchar2(10)", MODE_ORACLE, "varchar(10)"),
        ("number", MODE_ORACLE, "double"),
        ("number(10,2)", MODE_ORACLE, "number(10,2)"),
        ("clob", MODE_ORACLE, "longtext"),
        ("blob", MODE_ORACLE, "longblob"),
        ("raw(10)", MODE_ORACLE, "varbinary(10)"),
        ("timestamp(3)", MODE_MAXDB, "datetime(3)"),
        ("date", 0, "date"),
    ],
)
def test_types_in_modes_of_other_databases(kind: str, mode: int, mysql_type: str) -> None:
    """As MariaDB 11.8 shows them in its catalog."""
    found = read_definition(Words(f"a {kind} not null"), Dialect(True, 110800, mode))
    assert found.column("utf8mb4").mysql_type == mysql_type


def test_labels_with_quotes_escapes_and_brackets() -> None:
    found = column(r"enum('a','it''s','','b)c','d,e','back\\slash','q\'q','中') NOT NULL")
    assert found.labels == ("a", "it's", "", "b)c", "d,e", "back\\slash", "q'q", "中")
    assert not found.nullable
    assert column("set('x','y')").labels == ("x", "y")


@pytest.mark.parametrize(
    ("definition", "labels"),
    [
        ("enum('a ', 'b\t', '  c  ')", ("a", "b\t", "  c")),  # the server cuts blanks off
        ("enum('a ') character set binary", ("a ",)),
        (r"enum('50\%', 'b\_c', '\x')", (r"50\%", r"b\_c", "x")),
        ("enum(\"it''s\", \"q\"\"r\", 'x\"\"y')", ("it''s", 'q"r', 'x""y')),
        ("enum(0x61, x'62', X'c3a9')", ("a", "b", "é")),
        ("set(0b01100001, b'1100010', B'01100011')", ("a", "b", "c")),
        ("set(x'e9', 0xe4) character set latin1", ("é", "ä")),
    ],
)
def test_labels_are_those_that_the_server_keeps(definition: str, labels: tuple[str, ...]) -> None:
    assert column(definition).labels == labels


@pytest.mark.parametrize(
    ("definition", "is_generated"),
    [
        ("c int as (a + 1) virtual", True),
        ("c int generated always as (a + 1) stored", True),
        ("c timestamp(6) generated always as row start", False),
        ("c int default (1 + 1)", False),
    ],
)
def test_generated_columns_of_mariadb(definition: str, is_generated: bool) -> None:
    found = read_definition(Words(definition), Dialect(mariadb=True))
    assert found.column("").is_generated == is_generated
    assert not read_definition(Words(definition), Dialect(mariadb=False)).column("").is_generated
