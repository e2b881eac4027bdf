"""The console's own Prometheus page: what each destination's last status says, by the table of
model/metrics.py. The names are those that Ray exports, so rules and boards fit both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ray_canal.console.alerts import answers
from ray_canal.console.canal_metrics import CANAL_METRICS, CanalMetric
from ray_canal.console.collector import KnownDestination
from ray_canal.model.metrics import (
    ANSWERS,
    CONNECTED,
    METRICS,
    PREFIX,
    UP,
    Metric,
    sink_value,
    up,
    value_at,
)

Sinks = Mapping[str, Mapping[str, Any]]
Sample = tuple[dict[str, str], float]


def exposition(
    all_known: Sequence[KnownDestination], sinks: Sinks | None = None, *, canal_names: bool = False
) -> str:
    """Return the metrics of all destinations, and of sinks by name, in Prometheus' text format."""
    lines: list[str] = []
    _add(lines, PREFIX + ANSWERS, "gauge", "1 while the destination answers", _answers(all_known))
    lively = [known for known in all_known if known.status and answers(known)]
    text = "1 while the destination reads its source"
    _add(lines, PREFIX + UP, "gauge", text, _up(all_known))
    text = "1 while the source's connection stands"
    _add(lines, PREFIX + CONNECTED, "gauge", text, _connected(lively))
    for metric in METRICS:
        if metric.of == "sink":
            samples = _of_sinks(metric, sinks or {})
        else:
            samples = _measured(metric, lively)
        _add(lines, metric.exported, metric.kind, metric.text, samples)
    if canal_names:
        for each in CANAL_METRICS:
            _add(lines, each.name, each.kind, each.text, _of_canal(each, lively))
    return "\n".join(lines) + "\n"


def _add(lines: list[str], name: str, kind: str, text: str, samples: Iterator[Sample]) -> None:
    head = [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    for labels, value in samples:
        lines += head
        head = []
        told = ",".join(f'{key}="{_escaped(label)}"' for key, label in labels.items())
        lines.append(f"{name}{{{told}}} {value:.17g}")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _answers(all_known: Sequence[KnownDestination]) -> Iterator[Sample]:
    for known in all_known:
        yield {"destination": known.name}, answers(known)


def _up(all_known: Sequence[KnownDestination]) -> Iterator[Sample]:
    """A destination that does not answer is down."""
    for known in all_known:
        value = up(known.status) if known.status and answers(known) else 0.0
        if value is not None:
            yield {"destination": known.name}, value


def _connected(all_known: Sequence[KnownDestination]) -> Iterator[Sample]:
    for known in all_known:
        yield {"destination": known.name}, float(bool(known.status.get("connected")))


def _of_canal(metric: CanalMetric, all_known: Sequence[KnownDestination]) -> Iterator[Sample]:
    for known in all_known:
        value = metric.value(known.status)
        if value is not None:
            yield {"destination": known.name, **metric.labels}, value


def _of_sinks(metric: Metric, sinks: Sinks) -> Iterator[Sample]:
    for name, record in sorted(sinks.items()):
        value = sink_value(metric.key, record)
        if value is not None:
            yield {"destination": record["destination"], metric.label: name}, value


def _measured(metric: Metric, all_known: Sequence[KnownDestination]) -> Iterator[Sample]:
    for known in all_known:
        if metric.of == "destination":
            value = value_at(known.status, metric.key)
            if value is not None:
                yield {"destination": known.name}, float(value)
            continue
        place = "stages" if metric.of == "stage" else "store.subscribers"
        for each, record in value_at(known.status, place, {}).items():
            value = record.get(metric.key)
            if value is not None:
                yield {"destination": known.name, metric.label: each}, float(value)
