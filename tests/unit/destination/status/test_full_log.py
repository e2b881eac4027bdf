"""Telling who holds a full log."""

from __future__ import annotations

import logging

import pytest

from ray_canal.destination.status.full_log import FullLogWarning


def test_it_is_told_after_a_minute_ten_an_hour_and_each_hour(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """B5: the warning names who holds the log, for how long, and what to do."""
    warning = FullLogWarning("orders")
    told = []
    for full_s in range(0, 3 * 3600, 10):
        caplog.clear()
        warning.look(float(full_s), [7], "7: last call 900 s ago")
        if caplog.records:
            told.append(full_s)
            text = caplog.records[0].getMessage()
            assert "waits for subscriber 7 (7: last call 900 s ago)" in text
            assert "ray-canal unsubscribe orders" in text
    assert told == [60, 600, 3600, 7200]
    warning.look(0.0, [], "")
    warning.look(60.0, [7, 8], "")
    assert "subscriber 7, 8" in caplog.records[-1].getMessage()


def test_back_pressure_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    warning = FullLogWarning("orders")
    for _ in range(100):
        for full_s in (5.0, 59.0, 0.0):
            warning.look(full_s, [7], "")
    assert not caplog.records


def test_a_log_that_nobody_reads_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        FullLogWarning("orders").look(100.0, [], "")
    assert caplog.records[0].levelno == logging.INFO
