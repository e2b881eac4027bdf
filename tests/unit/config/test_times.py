"""Times as people write them, on every Python."""

from __future__ import annotations

import datetime as dt

import pytest

from ray_canal.config.times import iso_time


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("2026-10-01T08:00:00Z", "2026-10-01T08:00:00+00:00"),
        (" 2026-10-01 08:00:00z", "2026-10-01T08:00:00+00:00"),
        ("2026-10-01 08:00:00.5+08:00", "2026-10-01T08:00:00.500000+08:00"),
        ("2026-10-01T08:00:00.123456789-02:30", "2026-10-01T08:00:00.123456-02:30"),
        ("2026-10-01T08:00:00.25", "2026-10-01T08:00:00.250000"),
    ],
)
def test_zones_and_fractions(text: str, wanted: str) -> None:
    assert iso_time(text) == dt.datetime.fromisoformat(wanted)


@pytest.mark.parametrize("text", ["", "now", "2026-10-01T08:00:00.x", "2026-13-01T08:00:00Z"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match=r"isoformat|month"):
        iso_time(text)
