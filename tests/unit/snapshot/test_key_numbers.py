"""Hashes of keys against the keys themselves: equal where those are, and only there."""

from __future__ import annotations

import random

import numpy as np

from ray_canal.snapshot.key_numbers import Hasher, Keys, are_among, joined

WORDS = (b"", b"\0", b"\0\0", b"a", b"b", b"a\0", b"seven77", b"eight888", b"nine99999")


def hashes_of(keys: list[tuple[bytes, ...]]) -> Keys:
    """Of texts, given as one column after the other, as they lie in a chunk."""
    hasher = Hasher(len(keys))
    for values in zip(*keys, strict=True):
        ends = np.cumsum([0, *map(len, values)])
        data = np.frombuffer(b"".join(values), np.uint8)
        hasher.texts(data, ends[:-1], np.diff(ends))
    return hasher.hashes()


def test_keys_have_the_same_hash_if_they_are_the_same() -> None:
    r = random.Random(5)
    keys: set[tuple[bytes, ...]] = {(first, second) for first in WORDS for second in WORDS}
    for size in range(64):
        text = r.randbytes(size)
        keys |= {(text, b""), (b"", text), (text + b"\0", b""), (text[:-1], text[-1:])}
    for _ in range(20_000):  # few characters, so that many are nearly the same
        keys.add(tuple(bytes(r.choices(b"\0\x01a", k=r.randrange(20))) for _ in range(2)))
    mine = sorted(keys)
    found = hashes_of(mine)
    assert joined([found]).shape == (2, len(mine))
    r.shuffle(mine)
    chosen = mine[:500]
    at = dict(zip(sorted(keys), found.T.tolist(), strict=True))
    assert hashes_of(chosen).T.tolist() == [at[key] for key in chosen]


def test_values_of_one_size_have_the_same_hash_if_they_are_the_same() -> None:
    r = np.random.default_rng(5)
    for size in (3, 8, 13, 32):
        values = r.integers(0, 3, (5000, size), np.uint8)
        values[:, :-3] //= 2
        hasher = Hasher(len(values))
        hasher.fixed(values)
        found = hasher.hashes()
        assert joined([found]).shape[1] == len(np.unique(values, axis=0))
        again = Hasher(1)
        again.fixed(values[77:78])
        assert again.hashes()[:, 0].tolist() == found[:, 77].tolist()


def test_it_is_known_which_keys_are_in_runs_of_any_length() -> None:
    r = np.random.default_rng(6)
    for kind, halves in (("<u1", 1), ("<u4", 1), ("<u8", 2)):
        keys = r.integers(0, 15, (halves, 3000)).astype(kind)  # many have the same first half
        touched = r.integers(0, 15, (halves, 70)).astype(kind)
        runs = [
            joined([touched[:, :30], touched[:, 20:40]]), joined([touched[:, 40:]]), touched[:, :0]
        ]  # fmt: skip
        expected = set(map(tuple, touched.T.tolist()))
        assert are_among(keys, runs).tolist() == [tuple(key) in expected for key in keys.T.tolist()]
        assert joined([touched]).shape[1] >= len(expected)
    keys = r.integers(0, 1 << 20, (1, 5000)).astype("<u4")
    long = joined([r.integers(0, 1 << 20, (1, 150_000)).astype("<u4")])
    few = joined([r.integers(0, 1 << 20, (1, 9)).astype("<u4")])
    expected_long = np.isin(keys[0], np.concatenate([long[0], few[0]]))
    assert are_among(keys, [few, long]).tolist() == expected_long.tolist()
    assert not are_among(keys, []).any()
    assert not are_among(keys[:, :0], [long]).size
