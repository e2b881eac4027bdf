"""Seconds of work and of waiting, by stage."""

from __future__ import annotations

import time

import pytest

from ray_canal.destination.status.stages import Stages


def test_sums_and_the_busy_part(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    stages = Stages()
    assert stages.report() == {}
    for _ in range(20):
        now[0] += 1
        stages.add("fetch", 0.25, 0.75)
        stages.add_chunk({"decode": 0.5, "fetch_wait": 1.0})
    report = stages.report()
    assert (report["fetch"]["busy_s"], report["fetch"]["waiting_s"]) == (5, 35)
    assert report["fetch"]["busy_percent"] == pytest.approx(25)
    assert report["fetch"]["waiting_percent"] == pytest.approx(175, abs=10.1)  # of two calls
    assert report["decode"]["busy_s"] == 10
    # Samples are a second apart, and a chunk's times come at once.
    assert report["decode"]["busy_percent"] == pytest.approx(50, abs=5.1)
    now[0] += 5  # half of the window without work
    assert stages.report()["decode"]["busy_percent"] == pytest.approx(25, abs=5.1)
    now[0] += 20
    stages.report()
    ended = {"busy_s": 10.0, "waiting_s": 0.0, "busy_percent": 0.0, "waiting_percent": 0.0}
    assert stages.report()["decode"] == ended
