"""Operators of row predicates that Arrow lacks."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ray_canal.errors import ConfigError
from ray_canal.views.sql_functions import arrow_pattern, chosen, nonzero, remainder, same


def test_null_is_the_same_as_null_alone() -> None:
    left, right = pa.array([1, None, None, 2]), pa.array([1, None, 1, 3])
    assert same(left, right).to_pylist() == [True, True, False, False]


def test_division_by_zero_is_null() -> None:
    assert nonzero(pa.array([0, 2])).to_pylist() == [None, 2]
    found = remainder(pa.array([7, -7, 7]), pa.array([3, 3, 0]))
    assert found.to_pylist() == [1, -1, None]


def test_a_condition_that_is_null_chooses_the_other() -> None:
    found = chosen(pa.array([True, None, False]), pa.array([1, 1, 1]), pa.array([2, 2, 2]))
    assert found.to_pylist() == [1, 2, 2]


@pytest.mark.parametrize(
    ("pattern", "escape", "arrow"),
    [("a%", "\\", "a%"), ("a|%", "|", "a\\%"), ("a\\b", "|", "a\\\\b"), ("a||", "|", "a|")],
)
def test_a_pattern_keeps_its_meaning(pattern: str, escape: str, arrow: str) -> None:
    assert arrow_pattern(pattern, escape) == arrow


def test_an_escape_is_one_character() -> None:
    with pytest.raises(ConfigError, match="expected one character"):
        arrow_pattern("a", "ab")
