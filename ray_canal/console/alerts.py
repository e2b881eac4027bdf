"""Alerts of a destination now: the table of model/conditions.py, read for the pages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ray_canal.console.collector import KnownDestination
from ray_canal.model.conditions import CONDITIONS, Condition, Finding, Severity
from ray_canal.model.metrics import ANSWERS

_RANK = {"critical": 0, "warning": 1}


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong now."""

    alert: str
    severity: Severity
    summary: str
    detail: str
    advice: str


def problems(known: KnownDestination) -> list[Problem]:
    """Return what is wrong with a destination now, the worst first."""
    found = [
        Problem(each.alert, each.severity, each.summary, finding.text, each.advice)
        for each in CONDITIONS
        for finding in _findings(known, each)
        if finding.value is not None and each.beyond(finding.value)
    ]
    if any(each.alert == "CanalNoAnswer" for each in found):
        found = [each for each in found if each.alert == "CanalNoAnswer"]
    return sorted(found, key=lambda each: _RANK[each.severity])


def _findings(known: KnownDestination, condition: Condition) -> Iterator[Finding]:
    if condition.metric == ANSWERS:
        yield Finding(answers(known), known.error)
    elif known.status and condition.find is not None:
        yield from condition.find(known.status)


def answers(known: KnownDestination) -> float:
    """Return 1.0 while a destination answers."""
    return float(known.silent_since is None and not known.error)
