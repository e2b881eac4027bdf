"""What stands in place of values: constants, a few characters, hashes."""

from __future__ import annotations

import datetime
import hashlib
import hmac
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from ray_canal.errors import ConfigError
from ray_canal.views.masking import Hashing, Keep, Mask, masked

STATES = pa.DictionaryArray.from_arrays(
    pa.array([1, None, 2], pa.uint16()), pa.array(["", "open", "shut"])
)


@pytest.mark.parametrize(
    ("column", "mask", "shown"),
    [
        (pa.array(["a", None, ""]), "***", ["***", None, "***"]),
        (pa.array(["a", None]), None, [None, None]),
        (pa.array([1, None], pa.int8()), 0, [0, None]),
        (pa.array([1, None], pa.uint64()), 2**64 - 1, [2**64 - 1, None]),
        (pa.array([Decimal("1.50"), None], pa.decimal128(5, 2)), "0", [Decimal("0.00"), None]),
        (pa.array([b"x", None]), "?", [b"?", None]),
        (pa.array([datetime.date(2026, 1, 2), None]), "1970-01-01",
         [datetime.date(1970, 1, 1), None]),
        (STATES, "hidden", ["hidden", None, "hidden"]),
        (STATES, None, [None, None, None]),
        (pa.array([["a"], None], pa.list_(pa.string())), None, [None, None]),
    ],
)  # fmt: skip
def test_constants(column: pa.Array, mask: Mask, shown: list[Any]) -> None:
    found = masked(column, mask, "c")
    assert found.to_pylist() == shown
    assert pa.types.is_dictionary(found.type) or found.type == column.type
    found.validate(full=True)


@pytest.mark.parametrize(
    ("keep", "shown"),
    [
        (Keep(), ["********", "**", "", None, "****"]),
        (Keep(last=4), ["****5678", "**", "", None, "****"]),
        (Keep(first=2), ["12******", "**", "", None, "日本**"]),
        (Keep(first=1, last=2, fill="•"), ["1•••••78", "••", "", None, "日•の犬"]),
        (Keep(first=1, last=1), ["1******8", "**", "", None, "日**犬"]),
    ],
)
def test_a_few_characters(keep: Keep, shown: list[Any]) -> None:
    column = pa.array(["12345678", "ab", "", None, "日本の犬"])
    assert masked(column, keep, "c").to_pylist() == shown
    assert masked(column.slice(1, 3), keep, "c").to_pylist() == shown[1:4]


def test_masks_that_do_not_fit() -> None:
    for column, mask, message in (
        (pa.array([1]), "many", "mask of c: 'many' is no int64"),
        (pa.array([1], pa.int8()), 300, "mask of c: 300 is no int8"),
        (pa.array([1]), Keep(1), "Keep is for text, the column is int64"),
        (pa.array([["a"]]), "x", "is no list"),
    ):
        with pytest.raises(ConfigError, match=message):
            masked(column, mask, "c")
    for bad in ({"first": -1}, {"last": -1}, {"fill": ""}, {"fill": "ab"}):
        with pytest.raises(ConfigError, match="counts from 0 on"):
            Keep(**bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("key", [b"", b"a key"])
def test_hashes_of_each_type_are_those_of_its_text(key: bytes) -> None:
    columns = {
        "ann@example.com": pa.array(["x", "ann@example.com", None, ""]),
        "bytes": pa.array([b"x", b"bytes", None]),
        "42": pa.array([1, 42, None], pa.uint16()),
        "1.50": pa.array([Decimal("0.00"), Decimal("1.50"), None], pa.decimal128(9, 2)),
        "0.0000000001": pa.array(
            [Decimal("0.0000000000"), Decimal("0.0000000001"), None], pa.decimal128(20, 10)
        ),
        "2026-01-31": pa.array([None, datetime.date(2026, 1, 31), None]),
        "open": pa.DictionaryArray.from_arrays(
            pa.array([1, 0, None], pa.uint16()), pa.array(["open", "shut"])
        ),
    }
    for text, column in columns.items():
        data = text.encode()
        one = hmac.new(key, data, hashlib.sha256) if key else hashlib.sha256(data)
        hashing = Hashing(key)
        found = hashing.hashed(column, "c")
        assert found.type == pa.string()
        found.validate(full=True)
        assert found[1].as_py() == one.hexdigest(), text
        assert found[2].as_py() is None
        assert hashing.hashed(column.slice(1, 1), "c").to_pylist() == [one.hexdigest()]
        assert hashing.hashed(column.slice(0, 0), "c").to_pylist() == []
    assert Hashing(key).hashed(pa.nulls(2, pa.string()), "c").to_pylist() == [None, None]


def test_what_has_no_one_text_is_not_hashed() -> None:
    for column in (pa.array([1.5]), pa.array([["a"]])):
        with pytest.raises(ConfigError, match="hash of c: there is one text"):
            Hashing(b"").hashed(column, "c")
