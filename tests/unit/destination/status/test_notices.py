"""What is told of destinations, look after look."""

from __future__ import annotations

from typing import Any

import pytest

from ray_canal.config.notify import NotifyConfig
from ray_canal.destination.status.notices import Notice, Notices
from ray_canal.source.retention import PurgeDistance
from tests.unit.destination.status.test_diagnosis import place, running


class Watched:
    """One destination, looked at again and again."""

    def __init__(self) -> None:
        self._notices = Notices(NotifyConfig(lag_seconds=600, purge_seconds=7200, full_seconds=60))

    def look(self, **changes: Any) -> list[Notice]:
        return self._notices.look({"orders": running(**changes)})

    def kinds(self, **changes: Any) -> list[tuple[str, str]]:
        return [(one.event, one.kind) for one in self.look(**changes)]


def test_what_is_well_is_not_told() -> None:
    watched = Watched()
    assert watched.look() == []
    assert watched.look() == []
    assert Notices(NotifyConfig()).look({"orders": {"state": "starting"}}) == []


def test_changes_of_state_are_told_once_with_their_reason() -> None:
    watched = Watched()
    watched.look()
    failed = {"state": "failed", "error": "PositionPurged: it is gone", "connected": False}
    (one,) = watched.look(**failed)
    assert (one.event, one.kind) == ("state", "changed")
    assert "orders is failed, it was running" in one.text
    assert "PositionPurged: it is gone" in one.text
    assert watched.look(**failed) == []
    assert [each.text for each in watched.look()] == ["orders is running, it was failed"]
    assert watched.kinds(connected=False) == [("state", "changed")]
    assert watched.kinds(state="failed", error="Fenced: epoch 1") == [("takeover", "changed")]


def test_what_is_wrong_at_the_first_look_is_told() -> None:
    """After its own restart the notifier knows nothing of what it told before."""
    assert Watched().kinds(state="failed", error="x", connected=False) == [("state", "changed")]
    assert Watched().kinds(lag_seconds=700.0) == [("lag", "raised")]


@pytest.mark.parametrize(
    ("event", "on", "off"),
    [
        ("lag", {"lag_seconds": 600.0}, {"lag_seconds": 299.0}),
        ("purge", {"purge": PurgeDistance(1, 7000.0)}, {"purge": PurgeDistance(1, 15000.0)}),
        ("purge", {"purge": PurgeDistance(1, None, "soon")}, {"purge": PurgeDistance(1)}),
        ("log_full", {"store": {"full_s": 61.0, "held_by": [7]}}, {}),
        ("disk", {"store": {"disk_error": "no space", "disk_failing_s": 1.0}}, {}),
        ("quarantine", {"quarantined": ["shop.t"]}, {}),
        ("subscriber", {"store": {"subscribers": {"7": place(failure="gone")}}}, {}),
    ],
)
def test_a_threshold_is_told_when_it_is_passed_and_when_it_is_left(
    event: str, on: dict[str, Any], off: dict[str, Any]
) -> None:
    watched = Watched()
    assert watched.look() == []
    assert watched.kinds(**on) == [(event, "raised")]
    assert watched.kinds(**on) == []
    assert watched.kinds(**off) == [(event, "resolved")]
    assert watched.kinds(**off) == []


def test_a_value_about_its_threshold_is_told_once() -> None:
    watched = Watched()
    told = [watched.kinds(lag_seconds=lag) for lag in (599.0, 601.0, 599.0, 601.0, 301.0)]
    assert told == [[], [("lag", "raised")], [], [], []]
    seconds = (7300.0, 7100.0, 7300.0, 7100.0, 14000.0)  # the cursor moves from file to file
    purges = [{"purge": PurgeDistance(1, left_s)} for left_s in seconds]
    told = [watched.kinds(lag_seconds=301.0, **purge) for purge in purges]
    assert told == [[], [("purge", "raised")], [], [], []]


def test_what_is_not_known_changes_nothing() -> None:
    watched = Watched()
    assert watched.kinds(lag_seconds=601.0) == [("lag", "raised")]
    away = {"orders": {"state": "restarting"}}
    assert [one.event for one in watched._notices.look(away)] == ["state"]
    assert watched.kinds(lag_seconds=601.0) == [("state", "changed")]


def test_a_destination_that_is_stopped() -> None:
    watched = Watched()
    watched.look(lag_seconds=601.0)
    assert [one.text for one in watched._notices.look({})] == ["orders was stopped"]
    assert watched._notices.look({}) == []


def test_plain_values() -> None:
    assert Notice("orders", "lag", "raised", "text").as_dict() == {
        "destination": "orders", "event": "lag", "kind": "raised", "text": "text", "subject": "",
    }  # fmt: skip
