"""Keys of rows in few bytes: the number that the bytes of a short column make, of any other key a
hash of 128 bits.

Ten million keys that one transaction touches are 10 to 160 MB; as Python's bytes they would be
ten times as much. Two keys of a billion have the same hash once in 10^20 snapshots.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ray_canal.model.arrays import Bools, Bytes, Int64s, UInt64s

Keys = npt.NDArray[Any]
"""Keys, one a column: [1, keys] numbers, or [2, keys] halves of hashes."""

_WORD = 8
_MASKS: UInt64s = np.array([(1 << 8 * size) - 1 for size in range(_WORD + 1)], np.uint64)
_SEEDS = (0x9E3779B97F4A7C15, 0xD1B54A32D192ED03)
_FACTORS = (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_FEW = 1 << 16
"""Runs of fewer keys are looked through together."""


class Hasher:
    """The hashes of so many keys: of their columns' values, given one column after the other."""

    def __init__(self, count: int) -> None:
        self._halves = [np.full(count, seed, np.uint64) for seed in _SEEDS]

    def fixed(self, values: Bytes) -> None:
        """Take a column whose values have one size: uint8[keys, size]."""
        count, size = values.shape
        words = np.zeros((count, -(-size // _WORD) * _WORD), np.uint8)
        words[:, :size] = values
        for number in range(0, words.shape[1], _WORD):
            self._mix(words[:, number : number + _WORD].copy().view("<u8")[:, 0], None)

    def texts(self, data: Bytes, starts: Int64s, sizes: Int64s) -> None:
        """Take a column whose values lie in `data`, each from its start on."""
        padded = np.zeros(data.size + _WORD, np.uint8)
        padded[: data.size] = data
        at_any = np.ndarray((data.size + 1,), "<u8", padded.data, strides=(1,))
        self._mix(sizes.astype(np.uint64), None)
        for done in range(0, int(sizes.max(initial=0)), _WORD):
            left = sizes - done
            longer = None if left.min() > 0 else np.flatnonzero(left > 0)
            chosen = slice(None) if longer is None else longer
            words = at_any[starts[chosen] + done] & _MASKS[np.minimum(left[chosen], _WORD)]
            self._mix(words, longer)

    def _mix(self, words: UInt64s, chosen: Int64s | None) -> None:
        """Mix a word into each of the chosen keys; None: into all. Of two words, or two states,
        never the same comes of it."""
        first, second, third, fourth = (np.uint64(factor) for factor in _FACTORS)
        low, high = (half if chosen is None else half[chosen] for half in self._halves)
        low = (low ^ words) * first
        low ^= low >> np.uint64(33)
        low *= second
        low ^= low >> np.uint64(29)
        high = (high + words) * third
        high ^= high >> np.uint64(31)
        high *= fourth
        high ^= high >> np.uint64(27)
        if chosen is None:
            self._halves = [low, high]
        else:
            self._halves[0][chosen], self._halves[1][chosen] = low, high

    def hashes(self) -> Keys:
        """Return one hash each."""
        return np.stack(self._halves)


def joined(parts: Sequence[Keys]) -> Keys:
    """Return the keys of several arrays as one run, sorted by the first half, each once (or twice,
    where other keys have its first half)."""
    keys = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
    keys = keys[:, np.argsort(keys[0], kind="stable")]
    is_first = np.ones(keys.shape[1], np.bool_)
    is_first[1:] = (keys[:, 1:] != keys[:, :-1]).any(axis=0)
    return keys[:, is_first]


def are_among(keys: Keys, runs: Sequence[Keys]) -> Bools:
    """Return which of the keys are in one of these runs."""
    found = np.zeros(keys.shape[1], np.bool_)
    if not found.size:
        return found
    few = [run for run in runs if run.shape[1] < _FEW]
    long = [run for run in runs if run.shape[1] >= _FEW]
    if few:
        together = few[0] if len(few) == 1 else np.concatenate(few, axis=1)
        mine = np.sort(keys[0])
        at = np.minimum(np.searchsorted(mine, together[0]), mine.size - 1)
        long.append(joined([together[:, mine[at] == together[0]]]))
    for run in long:
        found |= _are_in(keys, run)
    return found


def _are_in(keys: Keys, run: Keys) -> Bools:
    found, count = np.zeros(keys.shape[1], np.bool_), run.shape[1]
    rows, at = np.arange(keys.shape[1]), np.searchsorted(run[0], keys[0])
    while True:  # once, but for other keys that have the same first half
        inside = at < count
        rows, at = rows[inside], at[inside]
        alike = run[0, at] == keys[0, rows]
        rows, at = rows[alike], at[alike]
        if not rows.size:
            return found
        same = (run[:, at] == keys[:, rows]).all(axis=0)
        found[rows[same]] = True
        rows, at = rows[~same], at[~same] + 1
