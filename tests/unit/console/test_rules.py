"""Rules, board and the Prometheus page come from one table; promtool tries each alert."""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from ray_canal.console.collector import KnownDestination
from ray_canal.console.exposition import exposition
from ray_canal.console.rules import dashboard, rules
from ray_canal.destination.status.status_record import DestinationStatus
from ray_canal.model.conditions import CONDITIONS, Condition
from ray_canal.model.metrics import METRICS, PREFIX, sink_value
from ray_canal.model.reports import PlaceReport, StageReport
from ray_canal.sinks.runner import SinkStatus
from tests.record_outages import OUTAGES
from tests.servers.fetch import FetchError, fetch_tree
from tests.unit.console.played import STATUS
from tests.unit.test_tidy import ROOT

_STEP_S = 60


@pytest.fixture(scope="module")
def promtool() -> str:
    """The machine's own, else Debian's, fetched."""
    try:
        found = shutil.which("promtool")
        return found or str(fetch_tree("promtool") / "root" / "usr" / "bin" / "promtool")
    except FetchError as error:
        pytest.skip(f"no promtool: {error}")


def test_the_page_has_what_a_status_says() -> None:
    status = copy.deepcopy(STATUS)
    every = [
        KnownDestination(name="orders", status=status),
        KnownDestination(name='odd"name', status={**status, "connected": False, "state": "failed"}),
        KnownDestination(name="away", silent_since=1.0),
    ]
    sinks = {"lake": {"destination": "orders", "state": "waiting", "rows": 7, "error": "away"}}
    lines = exposition(every, sinks, canal_names=True).splitlines()
    assert 'ray_canal_sink_up{destination="orders",sink="lake"} 0' in lines
    assert 'ray_canal_sink_rows_total{destination="orders",sink="lake"} 7' in lines
    assert 'ray_canal_lag_seconds{destination="orders"} 1.5' in lines
    assert 'ray_canal_up{destination="orders"} 1' in lines
    assert 'ray_canal_up{destination="odd\\"name"} 0' in lines
    assert 'ray_canal_answers{destination="away"} 0' in lines
    assert 'ray_canal_up{destination="away"} 0' in lines
    assert 'ray_canal_stage_busy_seconds_total{destination="orders",stage="decode"} 9' in lines
    assert 'ray_canal_subscriber_behind_bytes{destination="orders",client_id="7"} 1723' in lines
    assert 'canal_instance_traffic_delay{destination="orders"} 1500' in lines
    assert "canal_instance_" not in exposition(every)
    names = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(names) == len(set(names))


def test_every_metric_is_on_the_board_and_in_the_documents() -> None:
    board = json.loads(dashboard())
    shown = {panel["title"] for panel in board["panels"]}
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    for metric in METRICS:
        assert metric.exported in shown
        assert f"`{metric.exported}`" in page
    places = {(p["gridPos"]["x"], p["gridPos"]["y"]) for p in board["panels"]}
    assert len(places) == len(board["panels"])


def test_every_alert_is_about_a_metric_of_the_table() -> None:
    known = {metric.name for metric in METRICS} | {"canal_up", "canal_answers"}
    for alert in CONDITIONS:
        assert alert.metric in known
        assert PREFIX + alert.metric in alert.expression


def test_every_alert_is_in_the_documents_as_it_fires() -> None:
    page = (ROOT / "docs" / "how-to" / "alerts.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(Canal\w+)` \| `([^`]+)`(?: for (\d+) min)? \|", page, re.MULTILINE)
    wanted = [(c.alert, c.expression, str(c.for_s // 60 or "")) for c in CONDITIONS]
    assert listed == wanted


def test_every_metric_is_the_place_of_a_value_that_is_declared() -> None:
    """A key that no status has would be NaN, and nobody would notice."""
    records = {
        "destination": DestinationStatus, "stage": StageReport, "subscriber": PlaceReport,
        "sink": SinkStatus,
    }  # fmt: skip
    sums = {"running", "failed", "rows"}  # of `snapshot`, see Snapshots.sums
    for metric in METRICS:
        keys = get_type_hints(records[metric.of])
        first, _, rest = ("state" if metric.key == "up" else metric.key).partition(".")
        assert first in keys, metric
        if rest:
            inner = get_args(keys[first])[0] if get_args(keys[first]) else keys[first]
            assert rest in (sums if first == "snapshot" else get_type_hints(inner)), metric


def _outage(alert: Condition) -> str:
    """Values of the metric a minute apart: ten of a quiet time, then what the alert is about."""
    if alert.increase_s:
        return "0x10 5+5x40"
    beyond = {">": alert.threshold * 2 + 1, "<": alert.threshold / 2, "==": alert.threshold}
    quiet = {">": 0.0, "<": alert.threshold * 2, "==": 1.0 - alert.threshold}
    return f"{quiet[alert.compare]:g}x10 {beyond[alert.compare]:g}x40"


def test_promtool_fires_each_alert_in_its_outage_and_in_no_quiet_time(
    promtool: str, tmp_path: Path
) -> None:
    (tmp_path / "rules.yml").write_text(rules())
    tests = []
    for alert in CONDITIONS:
        series = f'{PREFIX}{alert.metric}{{destination="orders"}}'
        after_s = 12 * _STEP_S + alert.for_s
        labels = {"severity": alert.severity, "destination": "orders"}
        annotations = {
            "summary": f"orders: {alert.summary}",
            "description": alert.advice,
        }
        fires = [{"exp_labels": labels, "exp_annotations": annotations}]
        tests.append(
            {
                "interval": f"{_STEP_S}s",
                "input_series": [{"series": series, "values": _outage(alert)}],
                "alert_rule_test": [
                    {"eval_time": "9m", "alertname": alert.alert, "exp_alerts": []},
                    {"eval_time": f"{after_s}s", "alertname": alert.alert, "exp_alerts": fires},
                ],
            }
        )
    # JSON is YAML.
    judged = {"rule_files": ["rules.yml"], "evaluation_interval": "60s", "tests": tests}
    (tmp_path / "tests.yml").write_text(json.dumps(judged))
    for command in (["check", "rules", "rules.yml"], ["test", "rules", "tests.yml"]):
        done = subprocess.run(
            [promtool, *command], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


FIRES = {
    "the source is away": {"CanalDown", "CanalLagging", "CanalSourceErrors"},
    "a subscriber does not read": {"CanalLogFull"},
    "a cursor lies in an old file": {"CanalPurgeNear"},
    "the log of a cursor is purged": {"CanalSubscriberFailed"},
    "the user is locked": {"CanalDown", "CanalErrors"},
    "the destination does not answer": {"CanalNoAnswer", "CanalDown"},
    "the disk is full": {"CanalDiskFailing"},
    "an event cannot be decoded": {"CanalDeadLetters"},
    "a subscriber reads too slowly": {"CanalLogNearlyFull"},
    "a table is not known": {"CanalQuarantine"},
}
"""In each recorded outage (tests/record_outages.py)."""
LASTS = {
    "an event cannot be decoded": {"CanalDeadLetters"},  # the damage goes on
}
"""What has not ended with the recording."""
MAY_FIRE_TOO = {
    "a subscriber does not read": {"CanalLagging", "CanalLogNearlyFull"},
    "the user is locked": {"CanalLagging", "CanalSourceErrors"},
    "the disk is full": {"CanalLagging", "CanalLogFull", "CanalLogNearlyFull"},
}


OF_SINKS = {"CanalSinkDown", "CanalSinkDeadLetters"}
"""The recorder runs none; tests/integration/test_sinks_cluster.py has their states."""


def test_each_alert_has_a_recorded_outage() -> None:
    recorded = set[str]().union(*FIRES.values())
    assert recorded == {condition.alert for condition in CONDITIONS} - OF_SINKS
    about = {c.alert for c in CONDITIONS if c.metric.startswith("canal_sink_")}
    assert about == OF_SINKS


def test_a_sink_that_waits_or_has_failed_is_down_and_a_paused_one_is_not() -> None:
    (down,) = (condition for condition in CONDITIONS if condition.alert == "CanalSinkDown")
    for state, is_down in (
        ("running", False), ("paused", False), ("waiting", True), ("failed", True),
        ("stopped", False),
    ):  # fmt: skip
        value = sink_value("up", {"state": state})
        assert value is not None
        assert down.beyond(value) is is_down


def test_promtool_fires_in_recorded_outages_what_is_wrong_and_nothing_else(
    promtool: str, tmp_path: Path
) -> None:
    (tmp_path / "rules.yml").write_text(rules())
    told = json.loads(OUTAGES.read_text())
    step_s, begins, ends = told["step_s"], told["begins"], told["ends"]
    assert told["outages"].keys() == FIRES.keys()
    tests = []
    for name, series in told["outages"].items():
        may = MAY_FIRE_TOO.get(name, set())
        judged: list[dict[str, object]] = []
        for condition in CONDITIONS:
            quiet = {"eval_time": f"{(begins - 1) * step_s}s", "alertname": condition.alert}
            judged.append({**quiet, "exp_alerts": []})
            if condition.alert not in may:
                fires = condition.alert in FIRES[name]
                about = [each for each in series if _is_wrong(condition, each, series, ends)]
                labels = [_labels_of(condition, each) for each in about] if fires else []
                assert bool(list(filter(None, labels))) is fires, (name, condition.alert)
                judged.append(
                    {
                        "eval_time": f"{(ends - 1) * step_s}s",
                        "alertname": condition.alert,
                        "exp_alerts": [_fired(condition, each) for each in labels if each],
                    }
                )
            lasts = condition.alert in LASTS.get(name, set())
            if not condition.increase_s and condition.alert not in may and not lasts:
                last = max(map(len, series.values())) - 1
                over = {"eval_time": f"{last * step_s}s", "alertname": condition.alert}
                judged.append({**over, "exp_alerts": []})
        values = [
            {"series": each, "values": " ".join("_" if v is None else f"{v:g}" for v in found)}
            for each, found in series.items()
        ]
        tests.append(
            {
                "name": name,
                "interval": f"{step_s}s",
                "input_series": values,
                "alert_rule_test": judged,
            }
        )
    judgement = {"rule_files": ["rules.yml"], "evaluation_interval": "30s", "tests": tests}
    (tmp_path / "tests.yml").write_text(json.dumps(judgement))
    done = subprocess.run(
        [promtool, "test", "rules", "tests.yml"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def _is_wrong(
    condition: Condition, name: str, series: dict[str, list[float | None]], ends: int
) -> bool:
    """Whether one of several series (a subscriber of two, say) is the one that is wrong."""
    value = series[name][ends - 1]
    return bool(condition.increase_s) or (value is not None and condition.beyond(value))


def _labels_of(condition: Condition, series: str) -> dict[str, str] | None:
    """The labels of a series, if the condition is about it."""
    name, _, rest = series.partition("{")
    if name != PREFIX + condition.metric:
        return None
    return dict(re.findall(r'(\w+)="([^"]*)"', rest))


def _fired(condition: Condition, labels: dict[str, str]) -> dict[str, dict[str, str]]:
    return {
        "exp_labels": {**labels, "severity": condition.severity},
        "exp_annotations": {
            "summary": f"{labels['destination']}: {condition.summary}",
            "description": condition.advice,
        },
    }


def test_promtool_reads_the_page(promtool: str) -> None:
    page = exposition([KnownDestination(name="orders", status=STATUS)], canal_names=True)
    done = subprocess.run(
        [promtool, "check", "metrics"], input=page, capture_output=True, text=True, check=False
    )
    found = [line for line in (done.stdout + done.stderr).splitlines() if line]
    # Canal's names are as Canal gave them.
    assert [line for line in found if not re.match(r"canal_instance_", line)] == []
