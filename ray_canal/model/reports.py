"""Reports of a destination as plain values, by key: for `status`, `subscribers`,
`snapshot status` and the schema history, their `--json`, REST and metrics.

Times are seconds since the epoch, durations (`_s`) seconds, sizes bytes. None: not known, or there
is none.
"""

from __future__ import annotations

from typing import TypedDict


class PlaceReport(TypedDict, total=False):
    """Where a subscriber is in its log. `waiting_since`: when the oldest entry that it has not
    acked was put there; of `status` it is `seconds_behind`. `detached`: it reads a log of its own
    until it has caught up."""

    filter: str
    policy: str
    transactions: bool
    acked: str | None
    unacked_batches: int
    entries_behind: int | None
    bytes_behind: int | None
    waiting_since: float | None
    seconds_behind: float | None
    last_call_s: float | None
    failure: str | None
    failed: bool
    expired: int | None
    detached: bool


class DiskReport(TypedDict, total=False):
    """Why chunks cannot be written to disk, and for how long they could not."""

    disk_error: str | None
    disk_failing_s: float


class LogReport(DiskReport, total=False):
    """How full a log is; empty while there is none. `capacity` is in bytes or entries, by
    `batch_mode`, and `fill` the part of it that is used, from 0 to 1. `full_s`: for so long it
    takes nothing, because of the clients in `held_by`. `subscribers` is by client id."""

    chunks: int
    entries: int
    bytes: int
    bytes_on_disk: int
    index_bytes: int
    capacity: int
    batch_mode: str
    fill: float
    first_position: str
    last_position: str
    gtid_set: str
    full_s: float
    held_by: list[int]
    subscribers: dict[str, PlaceReport]


class SubscriberReport(TypedDict):
    """A subscriber, also of a destination that does not run. `held_by`: "ray" or "tcp", by what it
    subscribed last. `called_at`: when its last subscription or ack was written. `mark`: the last
    row that a streaming query of Spark has acked."""

    client_id: int
    label: str
    ephemeral: bool
    filter: str
    cursor: str | None
    cursor_gtid: str
    cursor_time: int | None
    server: str
    held_by: str | None
    called_at: int | None
    last_call_s: float | None
    expired_at: int | None
    paused_at: int | None
    policy: str | None
    transactions: bool | None
    entries_behind: int | None
    bytes_behind: int | None
    seconds_behind: float | None
    unacked_batches: int | None
    detached: bool
    failure: str | None
    mark: str | None


class TableProgress(TypedDict):
    """Rows of a table that a snapshot has delivered and the subscriber has acked."""

    rows: int
    estimate: int
    done: bool


class SnapshotPace(TypedDict, total=False):
    """How the run of a snapshot goes; empty while there is none."""

    rows_per_s: float
    waits_for: str
    chunks_waiting: int
    bytes_unacked: int
    readers: int


class SnapshotReport(TypedDict):
    """A subscriber's snapshot. `place`: the place of the log where its rows are consistent.
    `left_s`: an estimate of the time that is left."""

    client_id: int
    id: str
    mode: str
    state: str
    reason: str | None
    error: str | None
    rows: int
    rows_estimate: int
    tables: int
    tables_done: int
    table_rows: dict[str, TableProgress]
    began_at: int | None
    ended_at: int | None
    place: str | None
    rows_per_s: float
    left_s: float | None
    waits_for: str | None
    chunks_waiting: int
    bytes_unacked: int
    readers: int


class TableChangeReport(TypedDict):
    """A version of a table; see schema/table_changes.py."""

    journal_name: str
    position: int
    recorded_at: float
    kind: str
    sql: str
    columns: list[tuple[str, str]] | None
    problem: str


class SchemaHistoryReport(TypedDict):
    """The tables whose schemas are known (schema.table), and the versions of one of them."""

    tables: list[str]
    changes: list[TableChangeReport]


class TableTraffic(TypedDict):
    """Rows and bytes of a table (schema.table) lately, a second, and in all."""

    table: str
    rows_per_second: float
    bytes_per_second: float
    rows: int
    bytes: int


class TransactionReport(TypedDict):
    """One of the largest transactions. `time`: of its commit."""

    position: str
    rows: int
    bytes: int
    time: int


class StageReport(TypedDict):
    """Sums in seconds, and the parts of the last ten seconds, in percent of a core."""

    busy_s: float
    waiting_s: float
    busy_percent: float
    waiting_percent: float


class RateReport(TypedDict, total=False):
    """Rates of the last seconds, and sums since the process began."""

    bytes_per_second: float
    rows_per_second: float
    entries_per_second: float
    bytes: float
    rows: float
    entries: float
