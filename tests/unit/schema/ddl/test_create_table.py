"""CREATE TABLE text: types, attributes, odd spellings; and golden schemas against their rows."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlglot

from ray_canal.binlog.table_map import TableMap, parse_table_map, table_meta_from_metadata
from ray_canal.errors import ConfigError
from ray_canal.kernels.base import event_types
from ray_canal.schema.ddl.create_table import column_meta, parse_tables
from ray_canal.schema.fit import misfit, same_type
from tests.unit.binlog.golden import GOLDEN, needs_golden, read_events


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
