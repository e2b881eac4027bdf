"""Numbers of messages: they rise with the log's order, and are the same in every batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ray_canal.binlog.chunk import EVENT, ChunkLayout, DecodedChunk
from ray_canal.sinks.queues.publishing_ids import publishing_ids


def chunk_of(events: list[tuple[int, int, int]]) -> DecodedChunk:
    """A chunk of (position, inner, rows)."""
    records = np.zeros(len(events), EVENT)
    for name, values in zip(("position", "inner", "rows"), zip(*events, strict=True), strict=True):
        records[name] = values
    layout = ChunkLayout("b.000007", 0, len(events), 0, 0, 0, 0, ())
    return DecodedChunk(layout, records.view(np.uint8))


def keys(chunk: DecodedChunk, entries: list[int]) -> list[tuple[int, int, int]]:
    found = publishing_ids(chunk, np.array(entries, np.int32))
    columns = (found.positions, found.inners, found.numbers)
    return list(zip(*(column.tolist() for column in columns), strict=True))


EVENTS = [
    (4, 0, 3),
    (200, 0, 0), (200, 0, 0),  # DROP TABLE a, b
    (300, 0, 1), (300, 40, 2), (300, 90, 1),  # compressed together
    (1000, 0, 2), (1000, 0, 2),
    ((1 << 32) + 8, 0, 1),
]  # fmt: skip


def test_they_rise_with_entries_and_within_one() -> None:
    chunk = chunk_of(EVENTS)
    messages = [0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 4, 4, 4, 5, 6, 6, 6, 6, 7, 7, 8, 8]
    found = keys(chunk, messages)
    assert sorted(set(found)) == found
    assert {(high, inner) for high, inner, _ in found} == {(0, 0)}


def test_each_has_its_own_whatever_else_is_made() -> None:
    chunk = chunk_of(EVENTS)
    every = [0, 0, 1, 2, 3, 4, 4, 5, 6, 6, 7, 8]
    whole = keys(chunk, every)
    for first in range(len(every)):
        if first and every[first] == every[first - 1]:
            continue  # an entry's messages are made together
        assert keys(chunk, every[first:]) == whole[first:]
    # Those of one topic lie together, in whatever order of topics.
    assert keys(chunk, [4, 4, 6, 6, 0, 0, 7]) == [whole[n] for n in (5, 6, 8, 9, 0, 1, 10)]


@pytest.mark.parametrize(
    ("position", "inner", "lane"),
    [(1 << 33, 0, (1, 0)), (100, 1 << 31, (0, 1)), (100, (3 << 40) + 5, (0, 3 << 9))],
)
def test_what_does_not_fit_is_a_lane(position: int, inner: int, lane: tuple[int, int]) -> None:
    chunk = chunk_of([(100, 0, 1), (position, inner, 1), (position, inner + 1, 1)])
    found = keys(chunk, [0, 1, 2])
    assert [each[:2] for each in found] == [(0, 0), lane, lane]
    assert found[1][2] < found[2][2]
    ids = publishing_ids(chunk, np.array([0, 1, 2], np.int32))
    runs = [(each, run.tolist()) for each, run in ids.lanes(np.arange(3))]
    assert runs == [((0, 0), [0]), (lane, [1, 2])]


def test_no_messages() -> None:
    nothing: Any = np.empty(0, np.int32)
    found = publishing_ids(chunk_of(EVENTS), nothing)
    assert not len(found.numbers)
    assert list(found.lanes(np.arange(0))) == []
