"""Conditions find in a status what Prometheus finds in its metrics."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ray_canal.model.conditions import CONDITIONS, Condition
from ray_canal.model.metrics import METRICS, UP, up, value_at

STATUS: dict[str, Any] = {
    "state": "running",
    "connected": False,
    "source_error": "refused",
    "lag_seconds": 90.0,
    "purge": {"seconds": 50.0, "warning": ""},
    "quarantined": ["shop.t", "shop.u"],
    "quarantined_tables": 2,
    "dead_letters": 3,
    "store": {
        "fill": 0.95,
        "full_s": 700.0,
        "held_by": [7],
        "disk_error": "no space",
        "disk_failing_s": 61.0,
        "subscribers": {"7": {"failure": "purged", "failed": True}},
    },
}
FOUND = [each for each in CONDITIONS if each.find is not None]
_KEYS = {metric.name: metric.key for metric in METRICS}


def value_of(condition: Condition, status: dict[str, Any]) -> Any:
    if condition.metric == UP:
        return up(status)
    if condition.event == "subscriber":
        return value_at(status, "store.subscribers.7")[_KEYS[condition.metric]]
    return value_at(status, _KEYS[condition.metric])


@pytest.mark.parametrize("condition", FOUND, ids=lambda each: each.alert)
def test_a_condition_has_the_value_of_its_metric(condition: Condition) -> None:
    assert condition.find is not None
    (finding,) = condition.find(copy.deepcopy(STATUS))
    assert finding.value == value_of(condition, STATUS)
    assert condition.beyond(finding.value)
    assert finding.text


def test_where_nothing_is_known_nothing_is_found() -> None:
    for condition in FOUND:
        assert condition.find is not None
        assert list(condition.find({"state": "idle"})) == []


def test_events_are_told_once() -> None:
    events = [each.event for each in CONDITIONS if each.event]
    assert sorted(events) == [
        "dead_letters", "disk", "lag", "log_full", "purge", "quarantine", "subscriber",
    ]  # fmt: skip


def test_a_rule_says_what_a_page_shows() -> None:
    by_name = {each.alert: each for each in CONDITIONS}
    assert by_name["CanalLagging"].expression == "ray_canal_lag_seconds > 60"
    assert by_name["CanalErrors"].expression == "increase(ray_canal_errors_total[900s]) > 0"
    assert not by_name["CanalPurgeNear"].beyond(7200.0)
