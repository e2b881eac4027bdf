"""What a destination says of itself is at its node's Prometheus port, and in its status."""

from __future__ import annotations

import re
import urllib.request
from typing import Any

import pytest
import ray

import ray_canal as canal
from tests.processes import wait_for
from tests.proxy import Proxy
from tests.servers import Server

pytestmark = pytest.mark.usefixtures("local_ray")

NAME = "measured"
STAGES = {"fetch", "parse", "decode", "buffer", "store", "get"}
_WAITED = "ray_canal_stage_waiting_seconds_total:"
_LAG = "ray_canal_lag_bytes"


def scraped() -> dict[str, float]:
    """Metrics of this destination by name, with the labels `stage` and `client_id` behind it."""
    node = ray.nodes()[0]
    url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    with urllib.request.urlopen(url, timeout=10) as answer:
        text = answer.read().decode()
    found = {}
    for line in text.splitlines():
        match = re.fullmatch(r"(ray_canal_\w+)\{(.*)\} (\S+)", line)
        if match is None or f'destination="{NAME}"' not in match[2]:
            continue
        labels = re.findall(r'(?:stage|client_id)="([^"]*)"', match[2])
        found[":".join([match[1], *labels])] = float(match[3])
    return found


def test_a_scrape_has_what_happened(
    mysql97: Server, tmp_path_factory: pytest.TempPathFactory
) -> None:
    mysql97.execute(
        f"drop database if exists {NAME}",
        f"create database {NAME}",
        f"create table {NAME}.t (id int primary key)",
    )
    source = {"address": mysql97.address, "username": "root"}
    canal.start(
        {
            "meta": {"path": str(tmp_path_factory.mktemp("metrics") / "meta.db")},
            "instance": [
                {"destination": NAME, "source": source, "filter": {"tables": rf"{NAME}\..*"}}
            ],
        }
    )
    try:
        with canal.connect(NAME, 7) as connector:
            connector.subscribe()
            mysql97.execute(f"insert into {NAME}.t values (1), (2), (3)")
            rows = 0
            while rows < 3:
                message = connector.get_without_ack(100, timeout=0.2)
                rows += sum(batch.num_rows for batch in message.batches)
        status = canal.status(NAME)[NAME]
        assert set(status["stages"]) == STAGES
        assert all(times["busy_s"] >= 0 for times in status["stages"].values())
        assert status["stages"]["fetch"]["busy_s"] > 0
        assert status["stages"]["get"]["waiting_s"] > 0

        def there() -> bool:
            now = scraped()
            waited = f"{_WAITED}get" in now  # a get that found rows at once has not waited
            return waited and now.get("ray_canal_rows_total", 0) >= 3 and _LAG in now

        wait_for(there, 180, "the metrics")
        now = scraped()
        assert now["ray_canal_up"] == 1
        assert now["ray_canal_rows_total"] == 3
        assert now["ray_canal_generations_total"] == 1
        assert now["ray_canal_subscriber_behind_entries:7"] > 0
        assert 0 < now["ray_canal_store_fill_ratio"] < 1
        assert now["ray_canal_purge_bytes"] > 0
        assert now["ray_canal_stage_busy_seconds_total:decode"] > 0
        assert f"{_WAITED}fetch" in now
    finally:
        canal.stop(NAME)


def test_an_outage_is_seen(mysql97: Server, tmp_path_factory: pytest.TempPathFactory) -> None:
    """b3: while the source is away, status and metrics say so: not connected, a lag that grows,
    errors that are counted; and they say when it is back."""
    folder = tmp_path_factory.mktemp("outage")
    with Proxy((mysql97.host, mysql97.port)) as proxy:
        source = {"address": proxy.address, "username": "root", "reconnect_max_s": 1.0}
        canal.start(
            {
                "meta": {"path": str(folder / "meta.db")},
                "instance": [{"destination": NAME, "source": source}],
            }
        )

        def now() -> dict[str, Any]:
            return canal.status(NAME)[NAME]

        try:
            wait_for(
                lambda: now()["connected"] and now()["lag_seconds"] == 0, 60, "it is at its end"
            )
            proxy.refuse(True)
            wait_for(lambda: not now()["connected"], 30, "the outage is seen")
            first = now()
            assert first["state"] == "running"
            wait_for(lambda: now()["lag_seconds"] > first["lag_seconds"] + 2, 30, "the lag grows")
            wait_for(lambda: now()["fetched"].errors >= 3, 30, "errors are counted")
            assert now()["lag_bytes"] is None
            assert now()["source_error"]

            def told() -> bool:
                found = scraped()
                return (
                    found.get("ray_canal_up") == 0
                    and found.get("ray_canal_source_connected") == 0
                    and found.get("ray_canal_lag_seconds", 0) > 2
                    and found.get("ray_canal_source_errors_total", 0) >= 3
                )

            wait_for(told, 120, "the metrics tell of the outage")
            proxy.refuse(False)
            wait_for(lambda: now()["connected"] and now()["lag_seconds"] == 0, 60, "it is back")
        finally:
            canal.stop(NAME)
