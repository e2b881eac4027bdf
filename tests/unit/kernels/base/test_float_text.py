"""Shortest float text: Python's repr has the same digits, and what is printed reads back."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ray_canal.kernels.base.float_text import MAX_TEXT_BYTES, java_text, mysql_json_text

OUT = np.zeros(MAX_TEXT_BYTES, np.uint8)


def bits_of(value: float) -> int:
    return int(np.float64(value).view(np.int64))


def double(value: float) -> str:
    return OUT[: java_text(bits_of(value), 52, 11, OUT, 0)].tobytes().decode()


def single(value: np.float32) -> str:
    return OUT[: java_text(int(value.view(np.uint32)), 23, 8, OUT, 0)].tobytes().decode()


def json(value: float) -> str:
    return OUT[: mysql_json_text(bits_of(value), OUT, 0)].tobytes().decode()


def digits(text: str) -> str:
    return text.lower().partition("e")[0].replace(".", "").replace("-", "").strip("0")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        (1e7, "1.0E7"),
        (1234567.0, "1234567.0"),
        (9.999e-4, "9.999E-4"),
        (0.001, "0.001"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (5e-324, "4.9E-324"),
        (float("inf"), "Infinity"),
        (float("nan"), "NaN"),
    ],
)
def test_java(value: float, text: str) -> None:
    assert double(value) == text


def test_java_float() -> None:
    values = {"3.4028235E38": 3.4028235e38, "1.4E-45": 1.4e-45, "0.1": 0.1, "1.6777216E7": 2**24}
    for text, value in values.items():
        assert single(np.float32(value)) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0, "1.0"), (1e14, "100000000000000.0"), (1e15, "1e15"), (1e100, "1e100"),
     (1e-5, "0.00001"), (1e-16, "1e-16"), (-2.5, "-2.5"), (-0.0, "-0.0"),
     (1234567890123456.5, "1234567890123456.5"), (9007199254740993.0, "9.007199254740992e15"),
     (1e-15, "0.000000000000001"), (5e-324, "5e-324"), (-1e-323, "-1e-323")],
)  # fmt: skip
def test_mysql_json(value: float, text: str) -> None:
    """As MySQL 9.7 printed them: SELECT CAST(CAST('…' AS JSON) AS CHAR)."""
    assert json(value) == text


def test_random_bits() -> None:
    rng = random.Random(20261121)
    for _ in range(20_000):
        pattern = rng.getrandbits(64)
        value = float(np.uint64(pattern).view(np.float64))
        if np.isfinite(value) and abs(value) > 1e-320:
            assert float(double(value)) == float(json(value)) == value
            assert digits(double(value)) == digits(repr(value))
        small = np.uint32(pattern & 0xFFFFFFFF).view(np.float32)
        if np.isfinite(small):
            assert np.float32(single(small)) == small
