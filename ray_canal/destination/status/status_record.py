"""The keys of a destination's status, as plain values without secrets."""

from __future__ import annotations

from typing import TypedDict

from ray_canal.model.reports import (
    LogReport,
    RateReport,
    SnapshotReport,
    StageReport,
    TableTraffic,
    TransactionReport,
)
from ray_canal.source.port import SourceStatus
from ray_canal.source.retention import PurgeDistance


class StateReport(TypedDict):
    """All there is of a destination whose process does not answer: state "restarting"."""

    state: str
    error: str | None


class DestinationStatus(StateReport, RateReport, total=False):
    """Units and what None means as in model/reports.py; `lag_bytes` and `fetched` as SourceStatus
    has them. `decoders_now`: how many chunks are decoded side by side at most; `held_back_percent`:
    for how much of the last ten seconds the fetcher waited for them. `bytes_max`: limits
    of memory and disk (limits.py). `snapshot`: sums over `snapshots`."""

    destination: str
    source: str
    address: str
    server: str
    start: str | None
    epoch: int
    timeline: int
    generations: int
    uptime_s: float
    decoders: int | None
    decoders_now: int | None
    held_back_percent: float
    fetched: SourceStatus | None
    lag_bytes: int | None
    purge: PurgeDistance | None
    lag_seconds: float | None
    connected: bool
    source_error: str | None
    transactions: int
    tables: list[TableTraffic]
    largest_transactions: list[TransactionReport]
    stages: dict[str, StageReport]
    errors: int
    records_error: str | None
    quarantined: list[str]
    quarantine_bytes: int
    quarantined_tables: int
    quarantined_chunks: int
    dead_letters: int
    skipped_events: int
    last_skipped_event: str | None
    filter: dict[str, object]
    bytes_max: dict[str, int] | None
    store: LogReport
    snapshots: list[SnapshotReport]
    snapshot: dict[str, int]
