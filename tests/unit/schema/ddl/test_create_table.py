"""CREATE TABLE text: types, attributes, odd spellings; and golden schemas against their rows."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlglot

from ray_canal.binlog.events import read_events
from ray_canal.binlog.table_map import TableMap, parse_table_map, table_meta_from_metadata
from ray_canal.errors import ConfigError
from ray_canal.kernels.base import event_types
from ray_canal.model.table_meta import ColumnMeta
from ray_canal.schema.ddl.create_table import column_meta, parse_tables
from ray_canal.schema.fit import misfit, same_type
from ray_canal.types import mysql
from tests.unit.binlog.golden import GOLDEN, needs_golden


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


def test_labels_with_quotes_escapes_and_brackets() -> None:
    found = column(r"enum('a','it''s','','b)c','d,e','back\\slash','q\'q','中') NOT NULL")
    assert found.labels == ("a", "it's", "", "b)c", "d,e", "back\\slash", "q'q", "中")
    assert not found.nullable
    assert column("set('x','y')").labels == ("x", "y")


def test_keys_visibility_nullability_and_generated_columns() -> None:
    (table,) = parse_tables(
        """CREATE TABLE `shop`.`o``rder` (
          `id` bigint unsigned NOT NULL AUTO_INCREMENT /*!80023 INVISIBLE */,
          `key` int NOT NULL COMMENT 'a, ) key `x`',
          `a` varchar(5) DEFAULT NULL COMMENT 'it''s; INVISIBLE NOT NULL',
          `g` int GENERATED ALWAYS AS ((`id` * 2)) VIRTUAL,
          `h` int DEFAULT NULL CHECK (`h` is not null),
          `i` int(11) INVISIBLE DEFAULT 4,
          PRIMARY KEY (`id`,`key` DESC),
          UNIQUE KEY `u` (`a`(3)),
          KEY `f` ((upper(`a`))),
          CONSTRAINT `c` CHECK ((`id` > 0)),
          CONSTRAINT `fk` FOREIGN KEY (`a`) REFERENCES `x` (`y`)
        ) ENGINE=InnoDB PARTITION BY RANGE (`id`) (PARTITION p0 VALUES LESS THAN (10))"""
    )
    assert table.full_name == "shop.o`rder"
    assert [c.name for c in table.columns] == ["id", "key", "a", "g", "h", "i"]
    assert [c.is_key for c in table.columns] == [True, True, False, False, False, False]
    assert [c.visible for c in table.columns] == [False, True, True, True, True, False]
    assert [c.nullable for c in table.columns] == [False, False, True, True, True, True]
    (short,) = parse_tables("create table t (a int primary key, b int, primary key (a))")
    assert [c.is_key for c in short.columns] == [True, False]


def test_a_dump_says_which_schema_its_tables_are_in() -> None:
    found = parse_tables(
        """-- MySQL dump
        /*!40101 SET NAMES utf8mb4 */;
        CREATE TABLE nowhere (a int);
        CREATE DATABASE /*!32312 IF NOT EXISTS*/ `one` /*!40100 DEFAULT CHARACTER SET utf8mb4 */;
        USE `one`;
        DROP TABLE IF EXISTS `t`;
        CREATE TABLE `t` (`a` int, `b` varchar(9) DEFAULT 'x;y');
        INSERT INTO `t` VALUES (1,'CREATE TABLE no (a int);');
        create database two;
        create temporary table if not exists t (a int);
        CREATE TABLE three.t (a int);
        """
    )
    assert [t.full_name for t in found] == [".nowhere", "one.t", "two.t", "three.t"]
    assert parse_tables("") == []


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE t (a int",
        "CREATE TABLE t",
        "CREATE TABLE t (a strangetype(3))",
        "CREATE TABLE t (a varchar(3) default 'never closed)",
        "CREATE TABLE t (`a`)",
    ],
)
def test_what_cannot_be_read_is_an_error(sql: str) -> None:
    with pytest.raises(ConfigError):
        parse_tables(sql)


def test_an_unknown_type_names_its_column() -> None:
    with pytest.raises(ConfigError, match="column 'c' has a type that is not known: 'hologram'"):
        column_meta("c", "hologram")


# --- golden schemas against their own binlogs -------------------------------------------------

BINLOGS = sorted(GOLDEN.glob("*/*.binlog")) if GOLDEN.is_dir() else []
ALTERED = {("t_mc", "x"), ("t_inv", "v")}
"""Columns that a DDL in the binlog changes: the schema at its end is not the rows'."""


def table_maps(path: Path) -> set[TableMap]:
    return {
        parse_table_map(event[event_types.HEADER_BYTES : -event_types.CHECKSUM_BYTES])
        for _, header, event in read_events(path)
        if header.type_code == event_types.TABLE_MAP
    }


@needs_golden
@pytest.mark.parametrize("path", BINLOGS, ids=lambda path: path.stem)
def test_golden_schemas_fit_their_rows(path: Path) -> None:
    text = path.with_suffix(".schema.sql").read_text(encoding="utf-8")
    tables = {table.table: table for table in parse_tables(text)}
    assert len(tables) == text.count("CREATE TABLE")
    for table_map in table_maps(path):
        meta = tables.get(table_map.table)
        if meta is None or any(table_map.table == table for table, _ in ALTERED):
            continue
        assert misfit(table_map, meta) == ""
        from_row = table_meta_from_metadata(table_map)
        for mine, theirs in zip(from_row.columns if from_row else (), meta.columns, strict=False):
            assert same_type(mine, theirs), (mine, theirs)
            for name in ("name", "unsigned", "nullable", "is_key", "charset", "visible", "labels",
                         "length", "precision", "scale", "fraction"):  # fmt: skip
                assert getattr(mine, name) == getattr(theirs, name), (name, mine, theirs)


@needs_golden
def test_columns_are_those_of_another_parser() -> None:
    """sqlglot reads most of these statements too: the columns' names are the same."""
    compared = 0
    for path in GOLDEN.glob("*/*.schema.sql"):
        for statement in path.read_text(encoding="utf-8").split(";\n"):
            try:
                tree = sqlglot.parse_one(statement, read="mysql")
            except sqlglot.errors.SqlglotError:
                continue
            names = [column.name for column in tree.find_all(sqlglot.exp.ColumnDef)]
            if names:
                compared += 1
                assert [column.name for column in parse_tables(statement)[0].columns] == names
    assert compared > 30
