"""Canal's own names: which there are, and that what boards compute of them is right."""

from __future__ import annotations

import copy
from typing import Any

from ray_canal.console.canal_metrics import CANAL_METRICS, LEFT_OUT
from tests.unit.console.played import STATUS
from tests.unit.test_tidy import ROOT

CANALS = {
    # alibaba/canal, prometheus/src/main/java/.../impl: Meta-, Entry-, Parser-, Sink- and
    # StoreCollector, PrometheusClientInstanceProfiler.
    "canal_instance": "gauge",
    "canal_instance_subscriptions": "gauge",
    "canal_instance_traffic_delay": "gauge",
    "canal_instance_transactions": "counter",
    "canal_instance_received_binlog_bytes": "counter",
    "canal_instance_parser_mode": "gauge",
    "canal_instance_publish_blocking_time": "counter",
    "canal_instance_sink_blocking_time": "counter",
    "canal_instance_store_produce_seq": "counter",
    "canal_instance_store_consume_seq": "counter",
    "canal_instance_store": "gauge",
    "canal_instance_store_produce_mem": "counter",
    "canal_instance_store_consume_mem": "counter",
    "canal_instance_put_delay": "gauge",
    "canal_instance_get_delay": "gauge",
    "canal_instance_ack_delay": "gauge",
    "canal_instance_put_rows": "counter",
    "canal_instance_get_rows": "counter",
    "canal_instance_ack_rows": "counter",
    "canal_instance_client_packets": "counter",
    "canal_instance_client_bytes": "counter",
    "canal_instance_client_empty_batches": "counter",
    "canal_instance_client_request_error": "counter",
    "canal_instance_client_request_latency": "histogram",
}


def values(**changes: Any) -> dict[str, float | None]:
    status = {**copy.deepcopy(STATUS), **changes}
    return {each.name: each.value(status) for each in CANAL_METRICS}


def test_each_of_canals_names_is_here_or_said_to_be_left_out() -> None:
    ours = {each.name: each.kind for each in CANAL_METRICS}
    assert ours.items() <= CANALS.items()
    assert CANALS.keys() - ours.keys() == set(LEFT_OUT)
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    for name in CANALS:
        shown = "canal_instance_client_*" if "_client_" in name else name
        assert f"`{shown}`" in page


def test_what_boards_compute() -> None:
    found = values(entries=10.0, bytes=5000.0, transactions=4)
    assert found["canal_instance_traffic_delay"] == 1500.0
    assert found["canal_instance_transactions"] == 4
    produced = found["canal_instance_store_produce_seq"]
    consumed = found["canal_instance_store_consume_seq"]
    assert produced is not None
    assert consumed is not None
    assert (produced, produced - consumed) == (10.0, 3.0)
    # Since its restart less was put than waits: the difference is right all the same.
    found = values(entries=1.0, bytes=0.0)
    assert found["canal_instance_store_consume_seq"] == 0.0
    assert found["canal_instance_store_produce_seq"] == 3.0
    assert found["canal_instance_store_produce_mem"] == 1723.0


def test_what_is_not_known_is_left_out() -> None:
    assert values(lag_seconds=None)["canal_instance_traffic_delay"] is None
