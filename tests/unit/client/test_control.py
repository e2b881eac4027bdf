"""An operator's handle: what it refuses, and a destination that does not run."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest

from ray_canal.client import control
from ray_canal.errors import ConfigError, NotSubscribed
from ray_canal.meta.subscribers import kept_subscribers
from ray_canal.model.position import EntryPosition
from tests.unit.meta.test_subscribers import filled


@pytest.fixture(autouse=True)
def _nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "is_running", lambda *_, **__: False)


def test_a_kept_subscriber_is_operated_on_durably(tmp_path: Path) -> None:
    config = filled(tmp_path)
    handle = control.subscriber("orders", 7, config=config)
    assert handle.label("billing")["label"] == "billing"
    assert handle.copy(9)["client_id"] == 9
    handle.remove()
    found = {each["client_id"]: each for each in kept_subscribers(config, "orders")}
    assert set(found) == {8, 9}
    assert found[9]["filter"] == "shop"
    with pytest.raises(NotSubscribed):
        handle.show()


@pytest.mark.parametrize(
    ("to", "text"),
    [
        ("tail", "tail"),
        (EntryPosition("bin.000007", 4711), "bin.000007:4711"),
        (datetime(2026, 10, 1, 8, tzinfo=timezone.utc), "2026-10-01T08:00:00+00:00"),
    ],
)
def test_places_travel_as_text(
    tmp_path: Path, to: object, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr(control, "operate_kept", lambda *given: asked.append(given[3:]) or {})
    control.subscriber("orders", 7, config=filled(tmp_path)).seek(to)  # type: ignore[arg-type]
    assert asked == [("seek", text)]


def test_a_time_without_its_zone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no time zone"):
        control.subscriber("orders", 7, config=filled(tmp_path)).seek(datetime(2026, 10, 1))
