"""The table of differences: in order, of known sets, and of codes that Python reads otherwise."""

from __future__ import annotations

import itertools

import pytest

from ray_canal.types.charset_data import DIFFERENCES
from ray_canal.types.charsets import CHARSETS

UNDEFINED = 0xFFFD


@pytest.mark.parametrize("name", sorted(DIFFERENCES))
def test_runs_follow_each_other_and_differ_from_the_codec(name: str) -> None:
    codec = CHARSETS[name][0]
    runs = DIFFERENCES[name]
    for (first, count, _), (after, _, _) in itertools.pairwise(runs):
        assert first + count <= after
    for first, count, point in runs:
        for step in range(count):
            code = first + step
            data = code.to_bytes(max(1, (code.bit_length() + 7) // 8), "big")
            ours = chr(UNDEFINED if point == UNDEFINED else point + step)
            assert data.decode(codec, "replace") != ours, hex(code)
