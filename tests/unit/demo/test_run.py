"""What the demo counts and prints while it replays."""

from __future__ import annotations

from collections import Counter

import ray_canal as canal
from ray_canal.demo import binlog_files, expected
from ray_canal.demo.run import _bytes_before, _count, _line
from ray_canal.model.position import EntryPosition


def test_it_counts_every_change() -> None:
    counts: Counter[tuple[str, str]] = Counter()
    _count(list(canal.decode_files(binlog_files())), counts)
    assert sum(counts.values()) == expected()["changes"]
    assert {kind for _, kind in counts} >= {"INSERT", "UPDATE", "DELETE"}


def test_the_bar_goes_by_bytes_over_all_files() -> None:
    sizes = {"b.000009": 100, "b.000010": 200}
    assert _bytes_before(EntryPosition("b.000010", 50), sizes) == 150
    assert _bytes_before(EntryPosition("b.000009", 50), sizes) == 50


def test_a_line_is_of_the_image_that_there_is() -> None:
    change = {"journal_name": "b.1", "position": 4, "row": 0, "event_type": "DELETE",
              "table": "shop.item", "before": {"id": 7}, "after": None}  # fmt: skip
    assert _line(change) == "   b.1:4+0  DELETE shop.item  id=7"
