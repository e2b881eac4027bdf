"""What people are told about destinations: changes of state, and thresholds that are passed.

Pure, over statuses as `status` returns them. A threshold is told when it is passed and again when
the value is well below it; a value that is not known changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ray_canal.destination.diagnosis import diagnose, value_at
from ray_canal.model.quantities import duration_text

Kind = Literal["changed", "raised", "resolved"]

_RESOLVED_PART = 0.5
"""A threshold counts as left at half of it, so that a value that swings about it is told once."""


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing to tell. `event`: state, takeover, lag, purge, log_full, disk, quarantine or
    subscriber. `subject`: the subscriber's client id, else empty."""

    destination: str
    event: str
    kind: Kind
    text: str
    subject: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """In seconds; 0: never."""

    lag_s: float = 600.0
    purge_s: float = 7200.0
    full_s: float = 60.0


class Alarms:
    """The destinations of a cluster, as they were when they were looked at last."""

    def __init__(self, thresholds: Thresholds) -> None:
        self._thresholds = thresholds
        self._states: dict[str, str] = {}
        self._raised: dict[tuple[str, str, str], str] = {}

    def look(self, statuses: Mapping[str, Mapping[str, Any]]) -> list[Notice]:
        """Return what is new since the last look. At the first one, only what is wrong."""
        found: list[Notice] = []
        for name in self._states.keys() - statuses.keys():
            del self._states[name]
            found.append(Notice(name, "state", "changed", f"{name} was stopped"))
            for key in [key for key in self._raised if key[0] == name]:
                del self._raised[key]
        for name, status in statuses.items():
            found += self._of_state(name, status)
            for event, subject, is_on, text in self._conditions(status):
                found += self._of_condition((name, event, subject), is_on, text)
        return found

    def _of_state(self, name: str, status: Mapping[str, Any]) -> Iterator[Notice]:
        state = str(status.get("state"))
        if state == "running" and not status.get("connected"):
            state = "disconnected"
        before = self._states.get(name)
        self._states[name] = state
        if state == before or (before is None and state not in ("failed", "disconnected")):
            return
        is_fenced = state == "failed" and str(status.get("error")).startswith("Fenced")
        text = f"{name} is {state}" + (f", it was {before}" if before else "")
        if state in ("failed", "disconnected"):
            text += f". {diagnose({'destination': name, **status})}"
        yield Notice(name, "takeover" if is_fenced else "state", "changed", text)

    def _conditions(
        self, status: Mapping[str, Any]
    ) -> Iterator[tuple[str, str, bool | None, str]]:
        """(event, subject, whether it is so, text); None: that is not known, or between on and
        off."""
        limits = self._thresholds
        lag_s = value_at(status, "lag_seconds")
        if lag_s is not None and limits.lag_s:
            on = _passed(lag_s, limits.lag_s)
            yield "lag", "", on, f"its rows are {duration_text(lag_s)} old"
        purge_s, warning = value_at(status, "purge.seconds"), value_at(status, "purge.warning", "")
        if value_at(status, "purge") is not None:
            soon = purge_s is not None and bool(limits.purge_s) and purge_s < limits.purge_s
            when = "" if purge_s is None else f" in {duration_text(max(purge_s, 0.0))}"
            text = warning or f"the server purges what a subscriber needs{when}"
            yield "purge", "", bool(warning) or soon, text
        full_s, held_by = value_at(status, "store.full_s"), value_at(status, "store.held_by", [])
        if full_s is not None and limits.full_s:
            who = ", ".join(map(str, held_by)) or "that is gone"
            text = f"the log is full for {duration_text(full_s)} and waits for client {who}"
            yield "log_full", "", full_s >= limits.full_s, text
        if value_at(status, "store") is not None and "disk_failing_s" in status["store"]:
            error = value_at(status, "store.disk_error")
            yield "disk", "", error is not None, f"the log cannot go to disk: {error}"
        tables = value_at(status, "quarantined")
        if tables is not None:
            names = ", ".join(map(str, list(tables)[:5]))
            yield "quarantine", "", bool(tables), f"tables in quarantine: {names}"
        for client_id, place in value_at(status, "store.subscribers", {}).items():
            failure = place.get("failure")
            yield "subscriber", client_id, failure is not None, f"client {client_id}: {failure}"

    def _of_condition(
        self, key: tuple[str, str, str], is_on: bool | None, text: str
    ) -> Iterator[Notice]:
        name, event, subject = key
        if is_on is None or is_on == (key in self._raised):
            return
        if is_on:
            self._raised[key] = text
            yield Notice(name, event, "raised", f"{name}: {text}", subject)
        else:
            before = self._raised.pop(key)
            yield Notice(name, event, "resolved", f"{name}: no longer so: {before}", subject)


def _passed(value: float, limit: float) -> bool | None:
    if value >= limit:
        return True
    return False if value < limit * _RESOLVED_PART else None
