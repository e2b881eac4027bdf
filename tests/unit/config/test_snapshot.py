"""Hours of the day, as a snapshot's settings have them."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from ray_canal.config import SnapshotConfig


def test_hours_are_minutes_of_the_day() -> None:
    assert SnapshotConfig().minutes is None
    assert SnapshotConfig(hours="22:00-06:30").minutes == (1320, 390)


@pytest.mark.parametrize("hours", ["22-6", "25:00-06:00", "10:61-11:00", "06:00-06:00"])
def test_other_hours_are_refused(hours: str) -> None:
    with pytest.raises(ValidationError, match="hours"):
        SnapshotConfig(hours=hours)
