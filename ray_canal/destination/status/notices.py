"""Notices for people about destinations: changes of state, and thresholds that are passed.

Pure, over statuses as `status` returns them: the table of model/conditions.py, with the thresholds
of [notify]. A threshold is told when it is passed and again when the value is well on its other
side; a lag that is not known changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ray_canal.config.notify import NotifyConfig
from ray_canal.destination.status.diagnosis import diagnose
from ray_canal.model.conditions import CONDITIONS, Finding

Kind = Literal["changed", "raised", "resolved"]

_RESOLVED_PART = 0.5
"""Lag counts as left at half of its threshold, time to purge at twice that, so that a value that
swings about it is told once."""


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


class Notices:
    """The destinations of a cluster, as they were when they were looked at last."""

    def __init__(self, thresholds: NotifyConfig) -> None:
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
            for event, is_on, finding in self._findings(status):
                found += self._of_condition((name, event, finding.subject), is_on, finding.text)
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

    def _findings(self, status: Mapping[str, Any]) -> Iterator[tuple[str, bool | None, Finding]]:
        """(event, whether it is so, what says it); None: it is between on and off."""
        for condition in CONDITIONS:
            if condition.event and condition.find is not None:
                for finding in condition.find(status):
                    yield condition.event, self._is_on(condition.event, finding), finding

    def _is_on(self, event: str, finding: Finding) -> bool | None:
        limits, value = self._thresholds, finding.value
        if event == "lag":
            return _passed(value, limits.lag_seconds)
        if event == "log_full":
            return bool(limits.full_seconds) and value is not None and value >= limits.full_seconds
        if event == "purge" and not finding.is_on:
            return _is_near(value, limits.purge_seconds)
        return finding.is_on

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


def _passed(value: float | None, limit: float) -> bool | None:
    if value is None or not limit:
        return None if limit else False
    if value >= limit:
        return True
    return False if value < limit * _RESOLVED_PART else None


def _is_near(value: float | None, limit: float) -> bool | None:
    if value is None or value >= limit / _RESOLVED_PART:
        return False
    return True if value < limit else None
