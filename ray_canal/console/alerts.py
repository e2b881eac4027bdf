"""What is wrong with a destination, and what to do: one table for pages and Prometheus rules.

A rule compares one metric of model/metrics.py with a threshold. The pages show what is beyond it
now; Prometheus waits for `for_s` first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from ray_canal.console.collector import Known
from ray_canal.model.metrics import ANSWERS, METRICS, PREFIX, UP, Metric, up, value_at

Severity = Literal["critical", "warning"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """`increase_s`: the metric counts, and what it gained in so long is compared."""

    name: str
    metric: str
    compare: Literal[">", "<", "=="]
    threshold: float
    for_s: int
    severity: Severity
    summary: str
    advice: str
    increase_s: int = 0

    @property
    def expression(self) -> str:
        """The rule in PromQL."""
        name = PREFIX + self.metric
        left = f"increase({name}[{self.increase_s}s])" if self.increase_s else name
        return f"{left} {self.compare} {self.threshold:g}"

    def beyond(self, value: float) -> bool:
        """Return whether a value is what the alert is about."""
        if self.compare == ">":
            return value > self.threshold
        return value < self.threshold if self.compare == "<" else value == self.threshold


ALERTS = (
    Alert(
        name="CanalNoAnswer",
        metric=ANSWERS,
        compare="==",
        threshold=0,
        for_s=60,
        severity="critical",
        summary="The destination does not answer.",
        advice="See whether its node and process live (`ray status`, `ray list actors`); Ray "
        "starts the process again by itself if it has died.",
    ),
    Alert(
        name="CanalDown",
        metric=UP,
        compare="==",
        threshold=0,
        for_s=60,
        severity="critical",
        summary="The destination does not read its source.",
        advice="Read its error; `ray-canal check CONFIG` says what the server lacks.",
    ),
    Alert(
        name="CanalPurgeNear",
        metric="canal_purge_seconds",
        compare="<",
        threshold=7200,
        for_s=300,
        severity="critical",
        summary="The server may soon purge what the oldest cursor needs.",
        advice="Let the slowest subscriber catch up or remove it, or raise "
        "binlog_expire_logs_seconds on the server.",
    ),
    Alert(
        name="CanalSubscriberFailed",
        metric="canal_subscriber_failed",
        compare="==",
        threshold=1,
        for_s=60,
        severity="critical",
        summary="A subscriber's cursor cannot be served.",
        advice="Its failure says why; remove it and subscribe again where it should go on.",
    ),
    Alert(
        name="CanalLogFull",
        metric="canal_store_full_seconds",
        compare=">",
        threshold=600,
        for_s=0,
        severity="critical",
        summary="The log is full and waits for a subscriber, so nothing is read.",
        advice='Start the subscriber, remove it, or give it the policy "spill" or "detach".',
    ),
    Alert(
        name="CanalDiskFailing",
        metric="canal_store_disk_failing_seconds",
        compare=">",
        threshold=60,
        for_s=0,
        severity="critical",
        summary="The log cannot go to disk.",
        advice="Make room on the disk of store.spill_path, or give it another folder.",
    ),
    Alert(
        name="CanalLagging",
        metric="canal_lag_seconds",
        compare=">",
        threshold=60,
        for_s=300,
        severity="warning",
        summary="Events arrive more than a minute late.",
        advice="The busiest stage is the limit; docs/how-to/tuning.md says what widens it.",
    ),
    Alert(
        name="CanalLogNearlyFull",
        metric="canal_store_fill_ratio",
        compare=">",
        threshold=0.9,
        for_s=300,
        severity="warning",
        summary="The log is nearly full: a subscriber does not keep up.",
        advice="See which subscriber is the slowest; make it faster, or the log larger.",
    ),
    Alert(
        name="CanalQuarantine",
        metric="canal_quarantined_tables",
        compare=">",
        threshold=0,
        for_s=0,
        severity="warning",
        summary="Events of tables whose columns are not known are in quarantine.",
        advice="`ray-canal redrive CONFIG NAME --schema FILE` decodes them.",
    ),
    Alert(
        name="CanalErrors",
        metric="canal_errors_total",
        compare=">",
        threshold=0,
        for_s=0,
        severity="warning",
        summary="The upstream failed and was started again.",
        advice="The destination's log on Ray says why.",
        increase_s=900,
    ),
    Alert(
        name="CanalSourceErrors",
        metric="canal_source_errors_total",
        compare=">",
        threshold=3,
        for_s=0,
        severity="warning",
        summary="Connections to the source fail again and again.",
        advice="See the source's error, the network, and the server's own log.",
        increase_s=900,
    ),
)

_BY_NAME = {metric.name: metric for metric in METRICS}
_RANK = {"critical": 0, "warning": 1}


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong now."""

    alert: str
    severity: Severity
    summary: str
    detail: str
    advice: str


def problems(known: Known) -> list[Problem]:
    """Return what is wrong with a destination now, the worst first."""
    found = [
        Problem(alert.name, alert.severity, alert.summary, detail, alert.advice)
        for alert in ALERTS
        if not alert.increase_s
        for value, detail in _values(known, alert.metric)
        if alert.beyond(value)
    ]
    if any(each.alert == "CanalNoAnswer" for each in found):
        found = [each for each in found if each.alert == "CanalNoAnswer"]
    return sorted(found, key=lambda each: _RANK[each.severity])


def _values(known: Known, name: str) -> Iterator[tuple[float, str]]:
    """Values of a metric that are known, each with what there is to say of it."""
    status = known.status
    if name == ANSWERS:
        yield answers(known), known.error
    elif not status:
        return
    elif name == UP:
        value = up(status)
        if value is not None:
            yield value, str(status.get("error") or status.get("source_error") or "")
    else:
        yield from _measured(_BY_NAME[name], status)


def _measured(metric: Metric, status: dict[str, Any]) -> Iterator[tuple[float, str]]:
    if metric.of == "destination":
        value = value_at(status, metric.key)
        if value is not None:
            yield float(value), ""
        return
    for client_id, place in value_at(status, "store.subscribers", {}).items():
        value = place.get(metric.key)
        if value is not None:
            failure = place.get("failure")
            yield float(value), f"client {client_id}" + (f": {failure}" if failure else "")


def answers(known: Known) -> float:
    """Return 1.0 while a destination answers."""
    return float(known.silent_since is None and not known.error)
