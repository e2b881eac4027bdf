"""Conditions that can be wrong with a destination, and what to do: one table for pages, Prometheus
rules and notices.

A condition is about one metric of model/metrics.py. Pages show what is beyond its threshold now,
Prometheus waits for `for_s` first, notices (destination/status/notices.py) have thresholds too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ray_canal.model.metrics import ANSWERS, PREFIX, UP, up, value_at
from ray_canal.model.quantities import duration_text

Severity = Literal["critical", "warning"]
Status = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Finding:
    """A condition in a status: its metric's value (None: there is none now), and that in
    words. `subject`: the subscriber's client id, else empty. `is_on`: so, whatever the value."""

    value: float | None
    text: str = ""
    subject: str = ""
    is_on: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """`alert` is its name for Prometheus, `event` that of its notices (empty: none). `find` looks
    for it in a status, and finds nothing where nothing is known; None: no status can say it.
    `increase_s`: the metric counts, and what it gained in so long is compared."""

    alert: str
    metric: str
    compare: Literal[">", "<", "=="]
    threshold: float
    for_s: int
    severity: Severity
    summary: str
    advice: str
    event: str = ""
    find: Callable[[Status], Iterator[Finding]] | None = None
    increase_s: int = 0

    @property
    def expression(self) -> str:
        """The rule in PromQL."""
        name = PREFIX + self.metric
        left = f"increase({name}[{self.increase_s}s])" if self.increase_s else name
        return f"{left} {self.compare} {self.threshold:g}"

    def beyond(self, value: float) -> bool:
        """Return whether a value is what the condition is about."""
        if self.compare == ">":
            return value > self.threshold
        return value < self.threshold if self.compare == "<" else value == self.threshold


def _down(status: Status) -> Iterator[Finding]:
    value = up(status)
    if value is not None:
        yield Finding(value, str(status.get("error") or status.get("source_error") or ""))


def _lag(status: Status) -> Iterator[Finding]:
    lag_s = value_at(status, "lag_seconds")
    if lag_s is not None:
        yield Finding(lag_s, f"its rows are {duration_text(lag_s)} old")


def _purge(status: Status) -> Iterator[Finding]:
    if value_at(status, "purge") is None:
        return
    seconds, warning = value_at(status, "purge.seconds"), value_at(status, "purge.warning", "")
    when = "" if seconds is None else f" in {duration_text(max(seconds, 0.0))}"
    text = warning or f"the server purges what a subscriber needs{when}"
    yield Finding(seconds, text, is_on=bool(warning))


def _log_full(status: Status) -> Iterator[Finding]:
    full_s = value_at(status, "store.full_s")
    if full_s is not None:
        who = ", ".join(map(str, value_at(status, "store.held_by", []))) or "that is gone"
        text = f"the log is full for {duration_text(full_s)} and waits for client {who}"
        yield Finding(full_s, text)


def _nearly_full(status: Status) -> Iterator[Finding]:
    fill = value_at(status, "store.fill")
    if fill is not None:
        yield Finding(fill, f"{100 * fill:.0f} % of the log is used")


def _disk(status: Status) -> Iterator[Finding]:
    if "disk_failing_s" in (status.get("store") or {}):
        error = value_at(status, "store.disk_error")
        failing_s = value_at(status, "store.disk_failing_s")
        yield Finding(failing_s, f"the log cannot go to disk: {error}", is_on=error is not None)


def _quarantine(status: Status) -> Iterator[Finding]:
    tables = value_at(status, "quarantined")
    if tables is not None:
        names = ", ".join(map(str, list(tables)[:5]))
        yield Finding(len(tables), f"tables in quarantine: {names}", is_on=bool(tables))


def _dead_letters(status: Status) -> Iterator[Finding]:
    count = value_at(status, "dead_letters")
    if count is not None:
        yield Finding(count, f"{count} events could not be decoded and are kept", is_on=count > 0)


def _subscribers(status: Status) -> Iterator[Finding]:
    for client_id, place in value_at(status, "store.subscribers", {}).items():
        failure = place.get("failure")
        text = f"client {client_id}: {failure}"
        yield Finding(float(failure is not None), text, client_id, failure is not None)


CONDITIONS = (
    Condition(
        alert="CanalNoAnswer",
        metric=ANSWERS,
        compare="==",
        threshold=0,
        for_s=60,
        severity="critical",
        summary="The destination does not answer.",
        advice="See whether its node and process live (`ray status`, `ray list actors`); Ray "
        "starts the process again by itself if it has died.",
    ),
    Condition(
        alert="CanalDown",
        find=_down,
        metric=UP,
        compare="==",
        threshold=0,
        for_s=60,
        severity="critical",
        summary="The destination does not read its source.",
        advice="Read its error; `ray-canal check CONFIG` says what the server lacks.",
    ),
    Condition(
        alert="CanalPurgeNear",
        event="purge",
        find=_purge,
        metric="canal_purge_seconds",
        compare="<",
        threshold=7200,
        for_s=300,
        severity="critical",
        summary="The server may soon purge what the oldest cursor needs.",
        advice="Let the slowest subscriber catch up or remove it, or raise "
        "binlog_expire_logs_seconds on the server.",
    ),
    Condition(
        alert="CanalSubscriberFailed",
        event="subscriber",
        find=_subscribers,
        metric="canal_subscriber_failed",
        compare="==",
        threshold=1,
        for_s=60,
        severity="critical",
        summary="A subscriber's cursor cannot be served.",
        advice="Its failure says why; remove it and subscribe again where it should go on.",
    ),
    Condition(
        alert="CanalLogFull",
        event="log_full",
        find=_log_full,
        metric="canal_store_full_seconds",
        compare=">",
        threshold=600,
        for_s=0,
        severity="critical",
        summary="The log is full and waits for a subscriber, so nothing is read.",
        advice='Start the subscriber, remove it, or give it the policy "spill" or "detach".',
    ),
    Condition(
        alert="CanalDiskFailing",
        event="disk",
        find=_disk,
        metric="canal_store_disk_failing_seconds",
        compare=">",
        threshold=60,
        for_s=0,
        severity="critical",
        summary="The log cannot go to disk.",
        advice="Make room on the disk of store.spill_path, or give it another folder.",
    ),
    Condition(
        alert="CanalSinkDown",
        metric="canal_sink_up",
        compare="==",
        threshold=0,
        for_s=300,
        severity="critical",
        summary="A sink does not write to its target.",
        advice="`ray-canal sink status` has its error; fix the target, and it goes on by itself. "
        "One that has failed is started again by `ray-canal sink start CONFIG NAME`.",
    ),
    Condition(
        alert="CanalLagging",
        event="lag",
        find=_lag,
        metric="canal_lag_seconds",
        compare=">",
        threshold=60,
        for_s=300,
        severity="warning",
        summary="Events arrive more than a minute late.",
        advice="The busiest stage is the limit; docs/how-to/tuning.md says what widens it.",
    ),
    Condition(
        alert="CanalLogNearlyFull",
        find=_nearly_full,
        metric="canal_store_fill_ratio",
        compare=">",
        threshold=0.9,
        for_s=300,
        severity="warning",
        summary="The log is nearly full: a subscriber does not keep up.",
        advice="See which subscriber is the slowest; make it faster, or the log larger.",
    ),
    Condition(
        alert="CanalQuarantine",
        event="quarantine",
        find=_quarantine,
        metric="canal_quarantined_tables",
        compare=">",
        threshold=0,
        for_s=0,
        severity="warning",
        summary="Events of tables whose columns are not known are in quarantine.",
        advice="`ray-canal redrive CONFIG NAME --schema FILE` decodes them.",
    ),
    Condition(
        alert="CanalDeadLetters",
        event="dead_letters",
        find=_dead_letters,
        metric="canal_dead_letters",
        compare=">",
        threshold=0,
        for_s=0,
        severity="warning",
        summary="Events could not be decoded and are kept as dead letters.",
        advice="`ray-canal redrive CONFIG NAME` decodes them with a version that can.",
    ),
    Condition(
        alert="CanalSinkDeadLetters",
        metric="canal_sink_dead_letters_total",
        compare=">",
        threshold=0,
        for_s=0,
        severity="warning",
        summary="A sink's target refused entries for good; they are kept aside.",
        advice="`ray-canal sink status` has the last error; docs/how-to/sinks.md says where they "
        "are.",
        increase_s=900,
    ),
    Condition(
        alert="CanalErrors",
        metric="canal_errors_total",
        compare=">",
        threshold=0,
        for_s=0,
        severity="warning",
        summary="The upstream failed and was started again.",
        advice="The destination's log on Ray says why.",
        increase_s=900,
    ),
    Condition(
        alert="CanalSourceErrors",
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
