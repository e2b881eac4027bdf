"""Shares of a commit: every file and row is in one of them."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from ray_canal.sinks.lakes import file_shares
from ray_canal.sinks.lakes.file_shares import has_key_of, in_threads, shares_of


@pytest.mark.parametrize("seed", range(20))
def test_every_file_and_row_is_in_one_share(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_shares, "_SHARE_ROWS", 5)
    pick = random.Random(seed)
    files = [f"f{n}" for n in range(pick.randrange(12))]
    sizes = [pick.randrange(1, 3 << 20) for _ in files]
    upserts = pa.table({"id": pa.array(range(pick.randrange(60)), pa.int64())})
    shares = shares_of(files, sizes, upserts, ["id"], 4)
    assert len(shares) == min(4, 1 + max(len(upserts) // 5, sum(sizes) >> 20))
    assert [file for share in shares for file in share.files] == files
    assert sorted(i for share in shares for i in share.upserts["id"].to_pylist()) == [
        *range(len(upserts))
    ]
    largest = max((sum(sizes[files.index(f)] for f in share.files) for share in shares), default=0)
    assert largest <= sum(sizes) / len(shares) + max(sizes, default=0)


def test_few_rows_are_one_share() -> None:
    upserts = pa.table({"id": [1, 2, 3]})
    assert len(shares_of(["a", "b"], [100, 200], upserts, ["id"], 8)) == 1


@pytest.mark.parametrize("seed", range(10))
def test_keys_are_compared_as_a_whole(seed: int) -> None:
    pick = random.Random(seed)

    def keys(count: int) -> list[tuple[int, str]]:
        return [(pick.randrange(6), pick.choice("abcd")) for _ in range(count)]

    def table(found: list[tuple[int, str]]) -> pa.Table:
        a, b = [a for a, _ in found], [b for _, b in found]
        return pa.table({"a": pa.array(a, pa.int32()), "v": b, "b": pa.array(b, pa.string())})

    there, touched = keys(40), keys(5)
    found = has_key_of(table(there), table(touched).select(["a", "b"]))
    assert found.tolist() == [key in touched for key in there]
    found = has_key_of(table(there), table(touched).select(["b"]))
    assert found.tolist() == [key[1] in {b for _, b in touched} for key in there]
    assert not np.any(has_key_of(table([]), table(touched).select(["a", "b"])))


def test_answers_are_in_order_and_errors_raised() -> None:
    assert in_threads(lambda base, n: base + n, 10, [3, 1, 2]) == [13, 11, 12]
    with pytest.raises(ZeroDivisionError):
        in_threads(lambda base, n: base // n, 10, [3, 0])
