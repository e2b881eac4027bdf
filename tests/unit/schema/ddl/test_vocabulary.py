"""Words that say which table a statement is about."""

from __future__ import annotations

import pytest

from ray_canal.schema.ddl.vocabulary import loaded_table, skip_modifiers
from ray_canal.schema.ddl.words import Words


@pytest.mark.parametrize(
    ("sql", "table"),
    [
        ("LOAD DATA INFILE 'f' INTO TABLE t (a)", ("shop", "t")),
        ("LOAD DATA LOCAL INFILE 'INTO TABLE x' REPLACE INTO TABLE `b`.`t`", ("b", "t")),
        ("LOAD INDEX INTO CACHE t", None),
    ],
)
def test_the_table_that_is_loaded(sql: str, table: tuple[str, str] | None) -> None:
    assert loaded_table(Words(sql), "shop") == table


def test_modifiers_are_passed_and_names_are_not() -> None:
    words = Words("LOW_PRIORITY QUICK IGNORE `IGNORE` SET a = 1")
    skip_modifiers(words)
    assert words.name("shop") == ("shop", "IGNORE")
