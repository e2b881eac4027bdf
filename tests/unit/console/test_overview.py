"""Rows of the overview, problems, and the size and time of a page of 200 destinations."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ray_canal.console.access import Visitor
from ray_canal.console.alerts import problems
from ray_canal.console.collector import SAMPLE_S, SAMPLES_MAX, KnownDestination, Sample
from ray_canal.console.overview import limit, rows, stages, why
from ray_canal.console.pages import rendered
from ray_canal.console.text import clock, count, duration, size, sparkline
from ray_canal.model.conditions import CONDITIONS
from ray_canal.server.access import EVERYBODY
from tests.pace import calls_of
from tests.unit.console.played import STATUS, SUBSCRIBER

PAGE_BYTES_MAX = 100_000
PAGE_CALLS_MAX = 400_000  # 235,000 in November 2026


def known(name: str = "orders", **changes: Any) -> KnownDestination:
    """A destination with an hour of samples; `changes` are of its status."""
    status = {**copy.deepcopy(STATUS), "destination": name, **changes}
    samples = tuple(
        Sample(
            at=i * SAMPLE_S,
            lag_seconds=float(i % 7),
            lag_bytes=i * 1000.0,
            rows_per_s=1000.0 * (i % 11),
            fill=0.5,
        )
        for i in range(SAMPLES_MAX)
    )
    return KnownDestination(
        name=name, status=status, subscribers=[SUBSCRIBER], answered_at=1.0, samples=samples
    )


def test_a_page_of_200_destinations_is_small_and_fast() -> None:
    visitor = Visitor(EVERYBODY, "")
    every = [known(f"shop-{i:03d}", source=f"db{i}.example.internal:3306") for i in range(200)]

    def page_of_all() -> str:
        return rendered("overview.html", visitor, rows=rows(every), wrong=[], error="")

    page = page_of_all()
    assert page.count("<path d=\"M0 ") == 400
    assert len(page.encode()) < PAGE_BYTES_MAX
    assert calls_of(page_of_all) < PAGE_CALLS_MAX
    one = rendered(
        "destination.html",
        visitor,
        known=every[0],
        status=every[0].status,
        subscribers=every[0].subscribers,
        first=0,
        lines_max=20,
        snapshots=[],
        problems=[],
        stages=stages(every[0].status),
        sinks={},
        limit="decode",
        why=why(every[0]),
        state="running",
        csrf="",
    )
    assert len(one.encode()) < PAGE_BYTES_MAX


def test_what_is_wrong_comes_first() -> None:
    bad = known("z", connected=False, source_error="connection refused")
    late = known("y", lag_seconds=90.0)
    shown = rows([known("a"), late, bad])
    assert [row.known.name for row in shown] == ["z", "y", "a"]
    assert [row.level for row in shown] == ["critical", "warning", "ok"]
    assert shown[0].problems[0].detail == "connection refused"


def test_problems_of_one_that_does_not_answer_are_not_told_twice() -> None:
    silent = KnownDestination(name="a", status={**STATUS, "connected": False}, silent_since=5.0)
    assert [each.alert for each in problems(silent)] == ["CanalNoAnswer"]
    assert silent.state == "no answer"


def test_why_nothing_comes_from_one_that_does_not_answer() -> None:
    """What it said before it fell silent was that all is well."""
    silent = why(KnownDestination(name="a", status=STATUS, silent_since=1795490063.0))
    gone = why(KnownDestination(name="a", status=STATUS, error="the actor died", answered_at=9.0))
    assert silent is not None
    assert gone is not None
    assert (silent.stage, silent.severity) == (gone.stage, gone.severity) == ("process", "problem")
    assert "2026-11-24 03:14:23Z" in str(silent)
    assert "the actor died" in str(gone)
    assert "ray status" in str(silent)
    assert why(KnownDestination(name="a")) is None
    alive = why(known(), 7)
    assert alive is not None
    assert alive.stage != "process"


def test_a_subscriber_that_failed_is_named() -> None:
    store = copy.deepcopy(STATUS["store"])
    store["subscribers"]["7"] |= {"failed": True, "failure": "purged"}
    (found,) = problems(known(store=store))
    assert (found.alert, found.detail) == ("CanalSubscriberFailed", "client 7: purged")


@pytest.mark.parametrize("state", ["idle", "finished"])
def test_nothing_to_read_is_no_problem(state: str) -> None:
    assert problems(known(state=state, connected=False)) == []


def test_every_alert_says_what_to_do() -> None:
    assert len({alert.alert for alert in CONDITIONS}) == len(CONDITIONS)
    assert all(alert.summary.endswith(".") and alert.advice.endswith(".") for alert in CONDITIONS)


def test_the_limit() -> None:
    assert limit(STATUS) == "decode"
    assert limit({**STATUS, "store": {**STATUS["store"], "full_s": 3.0}}) == "subscribers"
    assert limit({**STATUS, "lag_bytes": 0, "stages": {"get": STATUS["stages"]["fetch"]}}) == ""
    assert [each.name for each in stages(STATUS)] == ["fetch", "decode"]


def test_values_as_people_read_them() -> None:
    assert [size(v) for v in (None, 0, 1023, 1536, 2e9)] == [
        "–", "0 B", "1.0 kB", "1.5 kB", "2.0 GB",
    ]  # fmt: skip
    assert [duration(v) for v in (None, 0.25, 12, 300, 86400 * 3)] == [
        "–", "0.2 s", "12 s", "5.0 min", "3.0 d",
    ]  # fmt: skip
    assert [count(v) for v in (None, 950, 9999, 12345, 6.1e6)] == [
        "–", "950", "9,999", "12.3 k", "6.1 M",
    ]  # fmt: skip
    assert clock(0) == "–"
    assert clock(1795490063) == "2026-11-24 03:14:23Z"


def test_a_sparkline_has_few_points_and_needs_two() -> None:
    assert sparkline([]) == sparkline([1.0]) == sparkline([None, 1.0]) == ""
    assert sparkline([0.0, 0.0]) == "M0 15l45 0"
    assert sparkline([0.0, 4.0, 2.0]) == "M0 15l22-14 22 7"
    rising = sparkline([float(i) for i in range(SAMPLES_MAX)])
    assert rising.count("3-") + rising.count("3 0") == 14
