"""Which sender has a row: by its key's bytes, alike in every run."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ray_canal.sinks.key_shares import key_hash, shared_out

TEXTS = [
    0, 10619736428036550479, 17472325703306854270,
    507601525916423645, 14891318324172729762, 7560726868800414453,
]
NUMBERS = [
    14533240249799309223, 11521041141411581710, 14067409277301988646,
    9176131092378684422,
]


def hashes(*columns: pa.Array) -> list[int]:
    return [int(each) for each in key_hash(columns)]


def test_hashes_are_those_of_the_run_before() -> None:
    """Another hash would leave out what a sender has not written and another one is ahead of."""
    texts = pa.array(["", "a", "ab", "ba", "é😀", "a" * 300])
    assert hashes(texts) == TEXTS
    assert hashes(pa.array([0, 1, -1, 1 << 40])) == NUMBERS


def test_slices_spaces_at_the_end_and_widths_of_numbers() -> None:
    texts = pa.array(["x", "a", "a  ", "", " ", "a\\0"])
    found = hashes(texts)
    assert found[1] == found[2]
    assert found[3] == found[4]
    assert found[1] != found[5]
    assert hashes(texts.slice(2, 3)) == found[2:5]
    assert hashes(pa.array([5, -7], pa.int32())) == hashes(pa.array([5, -7], pa.int64()))
    assert hashes(pa.array([], pa.string())) == []


@pytest.mark.parametrize(
    "column",
    [
        pa.array(range(3000), pa.uint64()),
        pa.array([f"user-{n}" for n in range(3000)]),
        pa.array([n.to_bytes(4, "big") for n in range(3000)], pa.binary()),
        pa.array([n.to_bytes(4, "big") for n in range(3000)], pa.binary(4)),
        pa.array([decimal.Decimal(n) / 100 for n in range(3000)], pa.decimal128(9, 2)),
        pa.array([datetime.datetime(2026, 1, 1) + n * datetime.timedelta(1) for n in range(3000)]),
        pa.array(range(3000), pa.duration("us")),
        pa.array([["x", "y"][: n % 3] for n in range(3000)], pa.list_(pa.string())),
        pa.array([f"e{n % 9}" for n in range(3000)]).dictionary_encode(),
    ],
    ids=lambda column: str(column.type)[:20],
)
def test_rows_are_shared_out_once_each(column: Any) -> None:
    other = pa.array(np.arange(3000) % 7)
    rows = pa.table({"key": column, "other": other, "n": range(3000)})
    parts = shared_out(rows, ["key", "other"], 4)
    assert sorted(n for part in parts for n in part["n"].to_pylist()) == list(range(3000))
    assert all(part["n"].to_pylist() == sorted(part["n"].to_pylist()) for part in parts)
    assert min(part.num_rows for part in parts) > 300
    assert [part.num_rows for part in shared_out(rows.slice(0, 0), ["key"], 2)] == [0, 0]
