"""Collation ids against PyMySQL's table."""

from __future__ import annotations

import pytest
from pymysql.charset import _charsets

from ray_canal.errors import UnsupportedEvent
from ray_canal.types.charset_tables import shared_characters
from ray_canal.types.charsets import canonical, charset_of_collation, decode_label, decode_text


def test_ids_that_pymysql_knows() -> None:
    for number, known in _charsets._by_id.items():
        assert charset_of_collation(number) == canonical(known.name), number
    assert len(_charsets._by_id) > 100


def test_mysql8_and_mariadb_ids() -> None:
    assert charset_of_collation(255) == charset_of_collation(309) == "utf8mb4"
    assert charset_of_collation(1070) == charset_of_collation(2304) == "utf8mb4"
    assert charset_of_collation(1032) == "latin1"
    assert charset_of_collation(2048) == "utf8mb3"
    with pytest.raises(UnsupportedEvent, match="collation id 999"):
        charset_of_collation(999)


def test_latin1_is_cp1252_without_holes() -> None:
    assert decode_text(b"\x80\x81\xe9", "latin1") == "€\x81é"


def test_labels_of_the_set_binary_are_utf8_where_they_can_be() -> None:
    assert decode_label("é ".encode(), "binary") == "é "
    assert decode_label(b"\xe9\xff", "binary") == "éÿ"
    assert decode_label(b"\xe9", "latin1") == "é"


def test_characters_that_a_set_has_twice() -> None:
    """Of them it cannot be told which bytes they were."""
    broken = "\ufffd"
    assert shared_characters("latin1") == shared_characters("gbk") == {broken}
    assert shared_characters("utf8") == shared_characters("utf16") == {broken}
    assert shared_characters("sjis") == {"\\", broken}
    assert {"℡", "纊", broken} <= shared_characters("cp932")
    assert "(" in shared_characters("armscii8")
