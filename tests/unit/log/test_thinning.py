"""Which entries are shown: silent ones never, of BEGIN and END with little between them only some,
held against a reading of the rules entry by entry."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ray_canal.binlog.chunk import ENTRY, EVENT_SILENT
from ray_canal.log.thinning import THIN_COUNT, THIN_SECONDS, Thinning

BEGIN, ROWDATA, END = 1, 2, 3


def made(transactions: list[tuple[int, str]]) -> np.ndarray:
    """Transactions as (seconds, what is in it): r a row event, s a silent one."""
    rows = []
    for seconds, inside in transactions:
        rows.append((BEGIN, 0, seconds))
        rows += [(ROWDATA, EVENT_SILENT if kind == "s" else 0, seconds) for kind in inside]
        rows.append((END, 0, seconds))
    entries = np.zeros(len(rows), ENTRY)
    for field, values in zip(("kind", "flags", "timestamp"), zip(*rows, strict=True), strict=True):
        entries[field] = values
    return entries


def shown(thinning: Thinning, entries: np.ndarray, cut: int) -> list[int]:
    """Numbers of what is shown, the log cut into chunks of so many entries."""
    found: list[int] = []
    for at in range(0, len(entries), cut):
        part = entries[at : at + cut]
        mask = thinning.visible(part)
        found += [at + k for k in range(len(part)) if mask is None or mask[k]]
    return found


def by_reading(entries: np.ndarray, count: int, only_empty: bool) -> list[int]:
    """The same, one transaction after the other."""
    found: list[int] = []
    thinned, thinned_at, place = 0, 0, 0
    while place < len(entries):
        end = next(k for k in range(place, len(entries)) if entries["kind"][k] == END)
        inside = [
            k for k in range(place + 1, end) if not int(entries["flags"][k]) & EVENT_SILENT
        ]
        if only_empty and inside:
            passes = True
        else:
            seconds = int(entries["timestamp"][place])
            thinned += 1
            passes = thinned > count or abs(seconds - thinned_at) > THIN_SECONDS
            if passes:
                thinned, thinned_at = 0, seconds
        found += sorted([*inside, *((place, end) if passes else ())])
        place = end + 1
    return found


@pytest.mark.parametrize("seed", range(8))
def test_as_the_rules_read(seed: int) -> None:
    random_ = random.Random(seed)
    seconds = 1_700_000_000
    transactions = []
    for _ in range(400):
        seconds += random_.choice((0, 0, 0, 1, 2, 7))
        transactions.append((seconds, random_.choice(("", "", "s", "ss", "r", "rs", "srr"))))
    entries = made(transactions)
    whole = len(entries)
    assert shown(Thinning(True, False), entries, whole) == by_reading(entries, THIN_COUNT, True)
    pairs = by_reading(entries, THIN_COUNT // 2, False)
    assert shown(Thinning(False, True), entries, whole) == pairs
    for cut in (1, 2, 3, random_.randrange(4, 90)):
        assert shown(Thinning(True, True), entries, cut) == pairs, f"seed {seed}, cut {cut}"


def test_begin_and_end_are_dropped_but_for_a_pair_at_times() -> None:
    entries = made([(1_700_000_000 + k // 2, "r") for k in range(20)])
    found = shown(Thinning(True, True), entries, 7)
    kinds = entries["kind"][found].tolist()
    # The first, then the one that is more than 5 s behind it.
    assert [k for k in range(len(kinds)) if kinds[k] == BEGIN] == [0, 14]
    assert kinds.count(BEGIN) == kinds.count(END) == 2
    assert kinds.count(ROWDATA) == 20


def test_one_pair_passes_after_many_at_one_time() -> None:
    entries = made([(1_700_000_000, "")] * (THIN_COUNT // 2 + 2))
    again = 2 * (THIN_COUNT // 2 + 1)
    assert shown(Thinning(True, True), entries, 1000) == [0, 1, again, again + 1]


def test_silent_entries_are_never_shown_and_nothing_else_is_hidden_without_thinning() -> None:
    entries = made([(1, "rs"), (1, ""), (1, "s")])
    assert shown(Thinning(False, False), entries, 99) == [0, 1, 3, 4, 5, 6, 8]
    assert Thinning(False, False).visible(made([(1, ""), (1, "r")])) is None
