"""The rate of readers that read side by side."""

from __future__ import annotations

import pytest

from benchmarks.growth import Samples, total_rate


def steady(begin_s: float, rows_per_s: float, rows: int) -> Samples:
    """A reader that gets ten messages at an even rate."""
    step = rows // 10
    return [(begin_s + k * step / rows_per_s, k * step) for k in range(1, 11)]


def test_rates_add_up_while_all_read() -> None:
    one, two = steady(0.0, 100.0, 1000), steady(2.0, 300.0, 3000)
    assert total_rate([one]) == pytest.approx(100.0)
    assert total_rate([one, two]) == pytest.approx(400.0)


def test_a_reader_that_begins_when_another_is_done_is_no_rate() -> None:
    with pytest.raises(ValueError, match="at the same time"):
        total_rate([steady(0.0, 100.0, 1000), steady(30.0, 100.0, 1000)])
