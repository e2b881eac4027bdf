"""Prometheus rules and a Grafana board, made of the tables of metrics and conditions."""

from __future__ import annotations

import json
from typing import Any

from ray_canal.model.conditions import CONDITIONS
from ray_canal.model.metrics import ANSWERS, CONNECTED, METRICS, PREFIX, UP, Metric

_WIDTH, _HEIGHT, _COLUMNS = 8, 7, 24


def rules() -> str:
    """Return the alert rules as a Prometheus rules file (YAML; each text is a JSON string)."""
    lines = ["groups:", "  - name: ray_canal", "    rules:"]
    for condition in CONDITIONS:
        lines += [
            f"      - alert: {condition.alert}",
            f"        expr: {json.dumps(condition.expression)}",
            f"        for: {condition.for_s}s",
            f"        labels: {{severity: {condition.severity}}}",
            "        annotations:",
            f"          summary: {json.dumps('{{ $labels.destination }}: ' + condition.summary)}",
            f"          description: {json.dumps(condition.advice)}",
        ]
    return "\n".join(lines) + "\n"


def dashboard() -> str:
    """Return the board as Grafana's JSON: a panel for each metric."""
    states = [
        Metric(ANSWERS, "", "1 while the destination answers (the console's own metric)"),
        Metric(UP, "", "1 while the destination reads its source"),
        Metric(CONNECTED, "", "1 while the source's connection stands"),
    ]
    board = {
        "uid": "ray-canal",
        "title": "ray_canal",
        "tags": ["ray_canal"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_source(), _destinations()]},
        "panels": [_panel(i, metric) for i, metric in enumerate((*states, *METRICS))],
    }
    return json.dumps(board, indent=1) + "\n"


def _source() -> dict[str, Any]:
    return {"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus"}


def _destinations() -> dict[str, Any]:
    return {
        "name": "destination",
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "query": f"label_values({PREFIX + UP}, destination)",
        "multi": True,
        "includeAll": True,
        "refresh": 2,
    }


def _panel(index: int, metric: Metric) -> dict[str, Any]:
    series = f'{metric.exported}{{destination=~"$destination"}}'
    counts = metric.kind == "counter"
    legend = "{{destination}}" + (f" {{{{{metric.label}}}}}" if metric.label else "")
    across = _COLUMNS // _WIDTH
    return {
        "id": index + 1,
        "type": "timeseries",
        "title": metric.exported,
        "description": metric.text + (", per second" if counts else ""),
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "gridPos": {
            "x": index % across * _WIDTH,
            "y": index // across * _HEIGHT,
            "w": _WIDTH,
            "h": _HEIGHT,
        },
        "fieldConfig": {"defaults": {"unit": _unit(metric)}, "overrides": []},
        "targets": [
            {"expr": f"rate({series}[5m])" if counts else series, "legendFormat": legend}
        ],
    }


def _unit(metric: Metric) -> str:
    """Grafana's name of the unit."""
    if metric.name.endswith("_ratio"):
        return "percentunit"
    if "bytes" in metric.name:
        return "Bps" if metric.kind == "counter" else "bytes"
    if "seconds" in metric.name:
        return "percentunit" if metric.kind == "counter" else "s"
    return "short"
