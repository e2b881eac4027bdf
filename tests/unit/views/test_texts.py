"""Columns of text, put together by vectors."""

from __future__ import annotations

import base64
import json
from decimal import Decimal

import pyarrow as pa
import pytest

from ray_canal.views import texts

VALUES = ["a", None, 'quote " and \\', "tab\tnewline\n\x00", "", "語"]


def test_null_is_not_wrapped() -> None:
    found = texts.wrapped(pa.array([b"a", None], texts.BYTES), b"X'", b"'")
    assert found.to_pylist() == [b"X'a'", None]


def test_json_texts_are_read_back() -> None:
    found = texts.json_texts(pa.array(VALUES)).to_pylist()
    assert [None if text is None else json.loads(text) for text in found] == VALUES


@pytest.mark.parametrize("numbers", [pa.decimal256(65, 30), pa.decimal128(38, 30)])
def test_decimals_have_all_digits(numbers: pa.DataType) -> None:
    values = ["0", None, "-0.000001", "-0.0000001", "12345678.5", "0"]
    given = pa.array([value and Decimal(value) for value in values], numbers)
    assert texts.decimal_texts(given).to_pylist() == [
        None if value is None else f"{Decimal(value):.30f}" for value in values
    ]
    assert texts.decimal_texts(given.slice(1, 3)).to_pylist() == [
        None,
        "-0.000001" + 24 * "0",
        "-0.0000001" + 23 * "0",
    ]
    assert texts.decimal_texts(pa.array([], numbers)).to_pylist() == []


def test_base64_of_values_also_in_a_slice() -> None:
    values = [b"", b"a", None, bytes(range(256)), b"four"]
    found = texts.base64_texts(pa.array([b"skipped", *values], pa.binary()).slice(1)).to_pylist()
    assert found == [None if value is None else base64.b64encode(value) for value in values]
