"""GTID sets as text, of both kinds."""

from __future__ import annotations

import pytest

from ray_canal.source.gtid_sets import common, union

A, B = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562"


@pytest.mark.parametrize(
    ("sets", "either", "both"),
    [
        ([f"{A}:1-5", f"{A}:3-9"], f"{A}:1-9", f"{A}:3-5"),
        ([f"{A}:1-5,{B}:1-2", f"{A}:1-5"], f"{A}:1-5,{B}:1-2", f"{A}:1-5"),
        ([f"{A}:1-5", ""], f"{A}:1-5", ""),
        (["0-1-5,1-1-9", "0-2-7"], "0-2-7,1-1-9", "0-1-5"),
        (["0-1-5", "0-1-5"], "0-1-5", "0-1-5"),
        (["0-1-5", ""], "0-1-5", ""),
    ],
)
def test_what_either_has_and_what_both_have(sets: list[str], either: str, both: str) -> None:
    assert union(*sets) == union(*reversed(sets)) == either
    assert common(sets) == common([*reversed(sets)]) == both
    assert common(sets[:1]) == sets[0]
