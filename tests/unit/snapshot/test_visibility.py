"""Waiting until a log's transactions show: by place, by GTIDs, until somebody stops it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ray_canal.config import InstanceConfig
from ray_canal.errors import ConnectionLost
from ray_canal.model.gtid import GtidSet
from ray_canal.model.position import EntryPosition
from ray_canal.snapshot import visibility
from ray_canal.snapshot.marks import ExecutedLow, PlaceLow
from ray_canal.snapshot.visibility import wait_until_visible

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
CONFIG = InstanceConfig.model_validate({"destination": "x", "source": {"address": "db:3306"}})


class Shown:
    """A server that shows more each time that it is asked; every `low` has its `high`."""

    def __init__(self, lows: Sequence[ExecutedLow | PlaceLow]) -> None:
        self.lows, self.asked, self.open = list(lows), 0, 0

    def low(self) -> ExecutedLow | PlaceLow:
        self.asked += 1
        self.open += 1
        return self.lows.pop(0) if len(self.lows) > 1 else self.lows[0]

    def high(self) -> None:
        self.open -= 1


def at(position: int) -> EntryPosition:
    return EntryPosition("b.000001", position)


def waited(marks: Shown, stopped: Any = lambda: False) -> None:
    catalog: Any = None
    wait_until_visible(CONFIG, catalog, marks, at(500), stopped)  # type: ignore[arg-type]


def test_by_place() -> None:
    marks = Shown([PlaceLow(at(n)) for n in (300, 499, 500)])
    waited(marks)
    assert (marks.asked, marks.open) == (3, 0)


def test_by_gtids_of_the_log_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the log has up to the place is asked once, and has to show."""
    monkeypatch.setattr(visibility, "_logged_up_to", lambda *_: f"{UUID}:1-9")
    marks = Shown([ExecutedLow(GtidSet.parse(f"{UUID}:{n}")) for n in ("1-7", "1-7:9", "1-10")])
    waited(marks)
    assert (marks.asked, marks.open) == (3, 0)


def test_what_does_not_show_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visibility, "_LIMIT_S", 0.05)
    marks = Shown([PlaceLow(at(499))])
    with pytest.raises(ConnectionLost, match=r"before b\.000001:500 .* do not show yet"):
        waited(marks)
    assert marks.open == 0


def test_who_is_stopped_waits_no_longer() -> None:
    marks = Shown([PlaceLow(at(499))])
    waited(marks, stopped=lambda: marks.asked > 2)
    assert marks.asked == 3
