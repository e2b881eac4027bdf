"""Rows that an UPDATE moves to another partition, as a DELETE in one and an INSERT in the other.

So each key's changes are in one partition, in their order, and the DELETE comes before the INSERT
in what is sent.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ray_canal.kernels.base.jit import read_only
from ray_canal.model.arrays import Int32s, Int64s

_OWN, _INSERT, _DELETE = 0, 1, 3


def split_moves(lines: Int64s, order: Int32s, moves: Int64s) -> tuple[Int64s, Int32s, Int64s]:
    """Return the messages of `Split` with their kinds, those of the entries in `moves` made again.

    `moves` has all rows of an entry: entry, row, partition before and after. A row that stays goes
    with the one before it in its partition; one that moves is two messages of its own."""
    used, rows = len(order), moves[:, 1].astype(np.int32)
    made: dict[int, list[list[int]]] = {}
    chosen: list[int] = []
    for number in np.unique(moves[:, 0]).tolist():
        mine = moves[moves[:, 0] == number]
        parts: list[tuple[int, int, list[int]]] = []
        last: dict[int, tuple[int, int, list[int]]] = {}
        for row, before, after in mine[:, 1:].tolist():
            if before != after:
                parts.append((_DELETE, before, [row]))
                last[before] = parts[-1]
                parts.append((_INSERT, after, [row]))
                last[after] = parts[-1]
            elif after in last and last[after][0] == _OWN:
                last[after][2].append(row)
            else:
                parts.append((_OWN, after, [row]))
                last[after] = parts[-1]
        made[number] = []
        for kind, partition, listed in parts:
            made[number].append([number, used + len(chosen), len(listed), partition, kind])
            chosen += listed
    del rows
    kept = lines[~np.isin(lines[:, 0], moves[:, 0])]
    own: Int64s = np.zeros((len(kept), 5), np.int64)
    own[:, :4] = kept
    every: Int64s = np.concatenate([own, *(np.array(each, np.int64) for each in made.values())])
    every = every[np.argsort(every[:, 0], kind="stable")]
    longer: Int32s = np.concatenate([order, np.array(chosen, np.int32)])
    return np.ascontiguousarray(every[:, :4]), longer, np.ascontiguousarray(every[:, 4])


def of_kinds(events: Any, entries: Int64s, kinds: Int64s) -> tuple[Any, Int64s]:
    """Return events with copies behind them that have other kinds, and the numbers of those that
    messages are rendered from."""
    changed = np.flatnonzero(kinds != _OWN)
    copies = events[entries[changed]].copy()
    copies["event_type"] = kinds[changed]
    numbers = entries.copy()
    numbers[changed] = len(events) + np.arange(len(changed))
    return read_only(np.concatenate([events, copies])), numbers
