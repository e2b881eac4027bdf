"""Durations and sizes for people."""

from __future__ import annotations

import pytest

from ray_canal.model.quantities import duration_text, rate_text, size_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.42, "0.4 s"), (12.4, "12 s"), (119, "119 s"), (150, "2.5 min"),
     (7300, "2.0 h"), (200_000, "2.3 d")],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (98_113_022, "98.1 MB"), (5e11, "500 GB"),
     (2e12, "2.0 TB")],
)  # fmt: skip
def test_sizes(size: float, text: str) -> None:
    assert size_text(size) == text


def test_rates() -> None:
    assert [rate_text(each) for each in (0, 0.34, 12345.6)] == ["0", "0.3", "12,346"]
