"""Every column type is whole: what rows, schemas, Arrow, Canal and Spark need of it."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_canal.errors import CorruptEvent, UnsupportedEvent
from ray_canal.kernels.base import codes
from ray_canal.kernels.rows import wire
from ray_canal.model.table_meta import ColumnMeta
from ray_canal.schema.ddl.column_type import column_meta
from ray_canal.types import json, mariadb, mysql, numeric, spatial, string, temporal
from ray_canal.types.column_type import MetadataColumn, RowColumn
from ray_canal.types.registry import (
    FIELDS,
    STORAGES,
    SYNONYMS,
    WORDS,
    declared_word,
    may_be,
    plan_line,
    schema_type,
    sql_type,
    storage_code,
)

ARGUMENTS = {"decimal": "(9,2)", "enum": "('a')", "set": "('a','b')", "vector": "(3)"}
METADATA = {mysql.NEWDECIMAL: 9 << 8 | 2, mysql.BIT: 9, mysql.ENUM: 1, mysql.SET: 1}
BLOBS = (mysql.BLOB, mysql.JSON, mysql.GEOMETRY, mysql.VECTOR)


def column_of(word: str) -> ColumnMeta:
    return column_meta("c", word + ARGUMENTS.get(word, ""))


def rows_of(column: ColumnMeta, type_code: int | None = None) -> RowColumn:
    code = column.type_code if type_code is None else type_code
    metadata = 2 if code in BLOBS else METADATA.get(code, 0)
    return RowColumn(code, metadata, column.unsigned, 0, column)


def test_no_number_or_word_stands_in_two_families() -> None:
    families = (numeric, temporal, string, json, spatial, mariadb)
    assert sum(len(family.FIELDS) for family in families) == len(FIELDS)
    assert sum(len(family.WORDS) for family in families) == len(WORDS)
    assert sum(len(family.STORAGES) for family in families) == len(STORAGES)
    synonyms = [synonym for word in WORDS.values() for synonym in word.synonyms]
    assert len(synonyms) == len(SYNONYMS)
    assert not set(synonyms) & set(WORDS)


@pytest.mark.parametrize("word", [*WORDS, *SYNONYMS])
def test_rows_are_decoded_into_the_storage_that_the_schema_foretells(word: str) -> None:
    column = column_of(word)
    line = plan_line(rows_of(column))
    assert line.code == storage_code(column)
    assert isinstance(STORAGES[line.code].arrow(pa, column), pa.DataType)
    assert sql_type(column, line.code)
    is_variable = line.code >= codes.FIRST_VARIABLE
    assert (line.size < 0) == is_variable == (line.null == wire.NULL_OFFSET)


@pytest.mark.parametrize("word", WORDS)
def test_row_metadata_declares_what_the_words_mean(word: str) -> None:
    column = column_of(word)
    if declared_word(word) and WORDS[word].plans:
        return  # MariaDB's own types are another type in its rows
    declare = FIELDS[column.type_code].declare
    assert declare is not None
    charset = column.charset or "binary"
    row = rows_of(column)
    told = declare(MetadataColumn(column.type_code, row.metadata, charset, column.labels, 0, 3))
    again = column_meta("c", told.text)
    assert again.type_code == column.type_code
    assert storage_code(again) == storage_code(column) or charset != "binary"


def test_all_numbers_are_known_or_refused_by_name() -> None:
    column = ColumnMeta("c", mysql.TYPED_ARRAY, "int")
    for code in (mysql.NULL, mysql.TYPED_ARRAY, 99, mysql.DECIMAL):
        with pytest.raises(UnsupportedEvent, match=r"column type .* is not decoded"):
            plan_line(rows_of(column, code))
    with pytest.raises(UnsupportedEvent, match=r"column c: type TYPED_ARRAY \(20\) is not decoded"):
        storage_code(column)
    with pytest.raises(UnsupportedEvent, match="character set is not known"):
        plan_line(rows_of(ColumnMeta("c", mysql.VARCHAR, "varchar(3)")))


@pytest.mark.parametrize(
    ("mysql_type", "type_code", "metadata"),
    [
        ("decimal(9,2)", mysql.NEWDECIMAL, 2 << 8 | 9),
        ("decimal(66,2)", mysql.NEWDECIMAL, 66 << 8 | 2),
        ("bit(3)", mysql.BIT, 65),
        ("enum('a')", mysql.ENUM, 3),
        ("set('a')", mysql.SET, 9),
        ("json", mysql.JSON, 5),
        ("time", mysql.TIME2, 7),
    ],
)
def test_impossible_metadata_is_refused(mysql_type: str, type_code: int, metadata: int) -> None:
    column = column_meta("c", mysql_type)
    with pytest.raises(CorruptEvent):
        plan_line(RowColumn(type_code, metadata, False, 0, column))


@pytest.mark.parametrize(
    ("in_rows", "in_schema", "fits"),
    [
        (mysql.DATETIME, mysql.DATETIME2, True),
        (mysql.LONG_BLOB, mysql.JSON, True),
        (mysql.JSON, mysql.BLOB, True),
        (mysql.VARCHAR, mysql.VECTOR, True),
        (mysql.MARIADB_VARCHAR_COMPRESSED, mysql.VARCHAR, True),
        (mysql.DECIMAL, mysql.NEWDECIMAL, True),
        (mysql.JSON, mysql.GEOMETRY, False),
        (mysql.TIME2, mysql.DATETIME2, False),
    ],
)
def test_which_rows_fit_which_schema(in_rows: int, in_schema: int, fits: bool) -> None:
    assert may_be(in_rows, in_schema) is fits
    assert may_be(in_schema, in_rows) is fits


@given(st.sampled_from(sorted(FIELDS)))
def test_a_schema_type_stands_for_itself(code: int) -> None:
    assert schema_type(schema_type(code)) == schema_type(code)
    assert may_be(code, code)


def test_only_the_schema_tells_types_that_mariadb_stores_as_others() -> None:
    uuid = ColumnMeta("c", mysql.STRING, "uuid", charset="binary")
    assert plan_line(RowColumn(mysql.STRING, 16, False, 0, uuid)).read == wire.READ_UUID
    vector = ColumnMeta("c", mysql.VECTOR, "vector(3)", length=3)
    assert plan_line(RowColumn(mysql.VARCHAR, 12, False, 0, vector)).read == wire.READ_VECTOR
    hires = ColumnMeta("c", mysql.TIME2, "time(3)", fraction=3)
    assert plan_line(RowColumn(mysql.TIME, 0, False, 0, hires)).read == wire.READ_TIME_HIRES
