"""Transactions of random events, compiled and as plain Python, against their definition."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ray_canal.binlog.chunk import EVENT, GTID, GTID_MYSQL
from ray_canal.kernels.base.jit import read_only
from ray_canal.kernels.render import transactions as t
from tests.unit.kernels.rows.test_records import closes

pytestmark = pytest.mark.without_compiler


@pytest.mark.parametrize("count", [0, 1, 2, 40, 300])
@pytest.mark.parametrize("open_begin", [-1, 77])
def test_transactions_of_random_events(count: int, open_begin: int) -> None:
    random = np.random.default_rng(count)
    events, gtids = np.zeros(count, EVENT), np.zeros(count + 1, GTID)
    events["position"] = 1000 + np.cumsum(random.integers(0, 2, count))
    events["gtid"] = np.cumsum(random.integers(0, 2, count)) // 2 - 1
    events["rows"] = random.integers(0, 3, count)
    events["kind"] = random.integers(1, 4, count)
    events["flags"] = random.integers(0, 4, count)
    gtids["position"] = 500 + np.arange(count + 1)
    gtids["flavor"] = random.integers(0, 2, count + 1) * GTID_MYSQL
    texts = [f"u:{k}" if gtids["flavor"][k] else "" for k in range(count + 1)]

    ends = closes(events)
    wanted_numbers, wanted = [], []
    for i, event in enumerate(events):
        if i == 0 or ends[i - 1]:
            gtid = int(event["gtid"])
            begin = int(gtids["position"][gtid]) if gtid >= 0 else int(event["position"])
            goes_on = i == 0 and open_begin >= 0
            wanted.append([open_begin if goes_on else begin, gtid, -1, 9 if goes_on else 0])
        wanted_numbers.append(len(wanted) - 1)
        wanted[-1][t.T_ROWS] += int(event["rows"])
        wanted[-1][t.T_CLOSER] = i if ends[i] else -1

    numbers, found = np.empty(count, np.int32), np.empty((count, t.TRANSACTION_FIELDS), np.int64)
    rows = 9 if open_begin >= 0 else 0
    made = t.split_transactions(
        read_only(events), read_only(gtids), open_begin, rows, numbers, found
    )
    assert found[:made].tolist() == wanted
    assert numbers.tolist() == wanted_numbers
    texts_of = [texts[gtid] if gtid >= 0 else "" for _, gtid, *_ in wanted]
    names = [text or f"bin.7:{line[0]}" for text, line in zip(texts_of, wanted, strict=True)]
    assert named(found[:made], texts) == names


def named(found: np.ndarray, texts: list[str]) -> list[str]:
    text = np.frombuffer("".join(texts).encode(), np.uint8)
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int32).view(np.uint8)
    journal = np.frombuffer(b"bin.7", np.uint8)
    out = np.empty(text.size + len(found) * (journal.size + t.PLACE_BYTES_MAX), np.uint8)
    offsets = np.zeros(4 * (len(found) + 1), np.uint8)
    inputs = (read_only(each) for each in (found, journal, ends, text))
    used = t.name_transactions(*inputs, offsets, out)
    at = offsets.view(np.int32).tolist()
    assert at[-1] == used
    return [out[a:b].tobytes().decode() for a, b in itertools.pairwise(at)]


def test_the_longest_place_has_room() -> None:
    place = (1 << 63) - 1
    found = np.array([[place, -1, -1, 0]], np.int64)
    assert named(found, [""]) == [f"bin.7:{place}"]
