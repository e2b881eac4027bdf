"""Destinations whose answers are written down: for pages and rules, without a cluster."""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from typing import Any, cast

from ray_canal.config import CanalConfig, ConsoleConfig
from ray_canal.console.access import ConsoleLogins
from ray_canal.console.audit import Audit
from ray_canal.console.cluster import Cluster
from ray_canal.console.collector import Collector
from ray_canal.console.context import ConsoleContext
from ray_canal.console.first_source import SourceFiles
from ray_canal.errors import NotSubscribed

STATUS: dict[str, Any] = {
    "destination": "orders",
    "state": "running",
    "error": None,
    "source": "127.0.0.1:3306",
    "server": "d540d0cd-e56e-11f1-a38f-02fc00000001",
    "start": "mysql-bin.000001:4: latest",
    "epoch": 1795490063160,
    "timeline": 1795490063,
    "generations": 1,
    "uptime_s": 90.9,
    "decoders": 1,
    "fetched": {
        "journal_name": "mysql-bin.000001",
        "position": 469455,
        "master_position": 469455,
        "received_bytes": 469451,
        "connected": True,
        "reconnects": 0,
        "errors": 0,
        "failed_checks": 0,
        "server_gtid_set": "d540d0cd-e56e-11f1-a38f-02fc00000001:1-90",
    },
    "lag_bytes": 797822,
    "purge": None,
    "lag_seconds": 1.5,
    "connected": True,
    "source_error": None,
    "rows_per_second": 1250.0,
    "bytes_per_second": 98000.0,
    "bytes": 2649.0,
    "transactions": 2,
    "tables": [
        {
            "table": "shop.t",
            "rows_per_second": 1250.0,
            "bytes_per_second": 98000.0,
            "rows": 120000,
            "bytes": 9_800_000,
        }
    ],
    "largest_transactions": [
        {"position": "mysql-bin.000001:930", "rows": 9000, "bytes": 650_000, "time": 1795490000}
    ],
    "rows": 120000.0,
    "entries": 5.0,
    "stages": {
        "fetch": {"busy_s": 1.0, "waiting_s": 9.0, "busy_percent": 12.5},
        "decode": {"busy_s": 9.0, "waiting_s": 1.0, "busy_percent": 91.0},
    },
    "errors": 0,
    "records_error": None,
    "quarantined": [],
    "quarantine_bytes": 0,
    "quarantined_tables": 0,
    "quarantined_chunks": 0,
    "dead_letters": 0,
    "skipped_events": 0,
    "last_skipped_event": None,
    "filter": {"tables": r"shop\..*"},
    "store": {
        "chunks": 3,
        "entries": 3,
        "bytes": 1723,
        "bytes_on_disk": 0,
        "fill": 0.25,
        "first_position": "mysql-bin.000001:930",
        "last_position": "mysql-bin.000001:2653",
        "gtid_set": "d540d0cd-e56e-11f1-a38f-02fc00000001:1-88",
        "subscribers": {
            "7": {
                "entries_behind": 3,
                "bytes_behind": 1723,
                "seconds_behind": 4.0,
                "unacked_batches": 0,
                "failure": None,
                "last_call_s": 0.5,
                "failed": False,
            }
        },
        "disk_error": None,
        "disk_failing_s": 0.0,
        "full_s": 0.0,
    },
}
SUBSCRIBER: dict[str, Any] = {
    "client_id": 7,
    "ephemeral": False,
    "filter": r"shop\..*",
    "cursor": "mysql-bin.000001:930",
    "last_call_s": 0.5,
    "expired_at": None,
    "policy": "block",
    "entries_behind": 3,
    "bytes_behind": 1723,
    "seconds_behind": 4.0,
    "unacked_batches": 0,
    "detached": False,
    "failure": None,
    "label": "",
    "paused_at": None,
}

SINK: dict[str, Any] = {
    "type": "delta",
    "client_id": 2001,
    "state": "running",
    "rows": 120_000,
    "skipped_entries": 0,
    "commits": 41,
    "commit_seconds": 3.1,
    "retries": 0,
    "dead_letters": 0,
    "error": "",
    "cursor": "mysql-bin.000001:930",
    "node": "10.0.0.2",
}
SNAPSHOT: dict[str, Any] = {
    "client_id": 7,
    "id": "s1",
    "state": "running",
    "reason": None,
    "error": None,
    "rows": 1_200_000,
    "rows_estimate": 4_000_000,
    "tables": 3,
    "tables_done": 1,
    "table_rows": {},
    "began_at": 1795490000,
    "ended_at": None,
    "place": None,
    "rows_per_s": 41_000.0,
    "left_s": 68.3,
    "waits_for": None,
    "chunks_waiting": 0,
    "bytes_unacked": 0,
    "readers": 2,
}
SCHEMA_CHANGE: dict[str, Any] = {
    "journal_name": "mysql-bin.000001",
    "position": 930,
    "recorded_at": 1795490063.0,
    "kind": "ddl",
    "sql": "alter table t add note text",
    "columns": [("id", "int"), ("note", "text")],
    "problem": "",
}


class Played:
    """A cluster of `count` destinations, d000 and so on; what it was told to do is in `done`."""

    def __init__(self, count: int = 2) -> None:
        self.statuses = {
            f"d{i:03d}": {**copy.deepcopy(STATUS), "destination": f"d{i:03d}"} for i in range(count)
        }
        self.silent: set[str] = set()
        self.done: list[tuple[Any, ...]] = []
        self.release = threading.Event()

    def destinations(self) -> list[str]:
        return sorted(self.statuses)

    def status(self, destination: str) -> dict[str, Any]:
        if destination in self.silent:
            self.release.wait()
        return self.statuses[destination]

    def subscribers(self, destination: str) -> list[dict[str, Any]]:
        return [SUBSCRIBER]

    def sinks(self) -> dict[str, dict[str, Any]]:
        return {"lake": {**SINK, "destination": "d000"}}

    def steer_sink(self, name: str, action: str, to: str) -> None:
        self.done.append((f"{action} sink", name, to))

    def compact(self, name: str, *how: Any) -> dict[str, str]:
        self.done.append(("compact", name, *how))
        return {"shop.t": "2 files of 9"}

    def nodes(self) -> list[dict[str, Any]]:
        return [{"node": "a" * 56, "destinations": self.destinations()}]

    def plan(self, config: CanalConfig) -> dict[str, Any]:
        names = [each.destination for each in config.instance]
        return {"add": names, "change": {}, "ports": {}, "sinks": {}}

    def apply(self, config: CanalConfig, *, remove: bool) -> dict[str, Any]:
        self.done.append(("apply", config, remove))
        return self.plan(config)

    def start_sinks(self, config: CanalConfig, names: Sequence[str]) -> list[str]:
        self.done.append(("start sinks", *names))
        return list(names)

    def subscriber(self, destination: str, client_id: int) -> dict[str, Any]:
        return {**SUBSCRIBER, "client_id": client_id}

    def snapshot(self, destination: str, client_id: int) -> dict[str, Any]:
        return SNAPSHOT

    def start_snapshot(self, destination: str, client_id: int, *how: Any) -> dict[str, Any]:
        self.done.append(("start snapshot", destination, client_id, *how))
        return SNAPSHOT

    def steer_snapshot(self, destination: str, client_id: int, action: str) -> dict[str, Any]:
        self.done.append((f"{action} snapshot", destination, client_id))
        return SNAPSHOT

    def schema_history(self, destination: str, table: str) -> dict[str, Any]:
        return {"tables": ["shop.t"], "changes": [SCHEMA_CHANGE] if table == "shop.t" else []}

    def stop(self, destination: str) -> None:
        self.done.append(("stop", destination))
        del self.statuses[destination]

    def unsubscribe(self, destination: str, client_id: int) -> None:
        if client_id != 7:
            raise NotSubscribed(f"there is no subscriber {client_id}")
        self.done.append(("unsubscribe", destination, client_id))

    def steer(self, destination: str, client_id: int, action: str, to: str) -> dict[str, Any]:
        self.done.append((action, destination, client_id, to))
        return SUBSCRIBER

    def set_filter(self, destination: str, client_id: int, tables: str) -> None:
        self.done.append(("filter", destination, client_id, tables))


def context_over(cluster: Played, **console: Any) -> ConsoleContext:
    """Return a console's parts over a played cluster; its collector runs."""
    config = ConsoleConfig.model_validate({"refresh_s": 0.2, **console})
    context = ConsoleContext(
        config=config,
        cluster=cast(Cluster, cluster),
        collector=Collector(cluster, config.refresh_s),
        logins=ConsoleLogins(config),
        audit=Audit(config.audit_log),
        files=SourceFiles("canal.toml"),
    )
    context.collector.start()
    return context
