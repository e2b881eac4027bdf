"""Columns of text, put together by vectors."""

from __future__ import annotations

import base64
import json

import pyarrow as pa

from ray_canal.views import texts

VALUES = ["a", None, 'quote " and \\', "tab\tnewline\n\x00", "", "語"]


def test_null_is_not_wrapped() -> None:
    found = texts.wrapped(pa.array([b"a", None], texts.BYTES), b"X'", b"'")
    assert found.to_pylist() == [b"X'a'", None]


def test_json_texts_are_read_back() -> None:
    found = texts.json_texts(pa.array(VALUES)).to_pylist()
    assert [None if text is None else json.loads(text) for text in found] == VALUES


def test_base64_of_values_also_in_a_slice() -> None:
    values = [b"", b"a", None, bytes(range(256)), b"four"]
    found = texts.base64_texts(pa.array([b"skipped", *values], pa.binary()).slice(1)).to_pylist()
    assert found == [None if value is None else base64.b64encode(value) for value in values]
