"""Rates: totals count everything, the window forgets."""

from __future__ import annotations

import pytest

from ray_canal.destination.status import rates


def test_window_forgets_and_totals_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(rates.time, "monotonic", lambda: now[0])
    meter = rates.Rates()
    now[0] += 10
    meter.add(1000, 20, 5)
    assert meter.per_second()["bytes_per_second"] == pytest.approx(100)
    assert meter.per_second()["rows_per_second"] == pytest.approx(2)
    now[0] += 11
    assert meter.per_second()["bytes_per_second"] == 0
    assert meter.per_second()["rows"] == 20
