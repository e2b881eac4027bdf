"""Legs of MySQL's JSON paths: members, quoted ones as JSON reads them, cells from either end."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ray_canal.kernels.json.path import BAD, CELL, LAST, MEMBER, leg

ROOM = 400


def legs(path: str) -> list[tuple[int, object]]:
    """(kind, key or index) of each leg after `$`."""
    data = path.encode()
    doc = np.zeros(ROOM, np.uint8)
    doc[: len(data)] = np.frombuffer(data, np.uint8)
    at, found = 1, list[tuple[int, object]]()
    while at < len(data):
        kind, where, size, at = leg(doc, at, len(data), 200)
        if kind == BAD:
            return [*found, (BAD, None)]
        is_key = kind == MEMBER
        found.append((kind, doc[where : where + size].tobytes().decode() if is_key else where))
    return found


@pytest.mark.parametrize("key", ["", "a b", 'q"q', "\\", "\b\t\n\f\r/", "é漢", "😀", ".[0]"])
def test_a_quoted_key_is_what_json_reads(key: str) -> None:
    for text in (json.dumps(key), json.dumps(key, ensure_ascii=False)):
        assert legs(f"$.{text}[7]") == [(MEMBER, key), (CELL, 7)]


def test_plain_keys_and_cells_from_either_end() -> None:
    assert legs("$.a.bc[0][last][last-12]") == [
        (MEMBER, "a"),
        (MEMBER, "bc"),
        (CELL, 0),
        (LAST, 0),
        (LAST, 12),
    ]


@pytest.mark.parametrize(
    "path",
    ["$a", "$.", "$..a", '$."a', '$."\\u12"', '$."\\udc00x', "$[", "$[x]", "$[1", "$[-1]",
     "$[last+1]", "$[last-]", "$[99999999999999999999]"],
)  # fmt: skip
def test_what_is_no_leg_is_told(path: str) -> None:
    assert legs(path)[-1] == (BAD, None)
