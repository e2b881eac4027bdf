"""[instance.snapshot]: how the rows that tables hold are read into a subscriber's log."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, model_validator

from ray_canal.config.node import NodeText
from ray_canal.config.section import Section, host_port_of

_HOURS = re.compile(r"(\d{2}):(\d{2})-(\d{2}):(\d{2})")
_MINUTES_MAX = 24 * 60


class SnapshotConfig(Section):
    """Settings of [instance.snapshot]. A limit of 0 is none."""

    address: str = ""  # a replica whose rows are read; empty: the source's own
    mode: Literal["keyed", "consistent"] = "keyed"  # of snapshots that do not say
    may_lock: bool = False  # "consistent" may begin under FLUSH TABLES WITH READ LOCK
    signal_table: str = ""  # "shop.canal_signal": its rows start, pause, ... snapshots
    readers: int = Field(default=2, ge=1, le=64)
    node: NodeText = ""  # where they run; empty: in the destination's process if that decodes, too
    chunk_bytes: int = Field(default=8 << 20, ge=64 << 10)
    # Rows that were read and that the subscriber has not acked.
    bytes: int = Field(default=64 << 20, ge=1 << 20)
    rows_per_s: int = Field(default=0, ge=0)
    hours: str = ""  # "22:00-06:00", UTC: rows are read then only
    # Fewer rows are read while the server runs more threads, has more history to purge, or is a
    # replica that is further behind.
    threads_running: int = Field(default=25, ge=0)
    history_list: int = Field(default=1_000_000, ge=0)
    replica_lag_s: float = Field(default=5.0, ge=0)
    # ... while a row takes so many times as long to read as it did at first.
    slower: float = Field(default=3.0, ge=0)
    # ... while the destination's own log is so far behind that rows that were read wait longer.
    backlog_s: float = Field(default=10.0, ge=0)
    # A snapshot of mode "consistent", which keeps history, fails at so much of it.
    history_max: int = Field(default=10_000_000, ge=0)

    @model_validator(mode="after")
    def _formats_are_right(self) -> SnapshotConfig:
        _ = self.minutes
        if self.signal_table and not re.fullmatch(r"[^.]+\.[^.]+", self.signal_table):
            raise ValueError(f"signal_table {self.signal_table!r}: expected schema.table")
        if self.address:
            host_port_of(self.address, 3306, "snapshot.address")
        return self

    @property
    def minutes(self) -> tuple[int, int] | None:
        """`hours` as minutes of the day. Raises ValueError."""
        if not self.hours:
            return None
        match = _HOURS.fullmatch(self.hours.strip())
        if match is None:
            raise ValueError(f'hours {self.hours!r}: expected "22:00-06:00"')
        first, second, third, fourth = map(int, match.groups())
        begin, end = 60 * first + second, 60 * third + fourth
        if max(begin, end) > _MINUTES_MAX or second > 59 or fourth > 59 or begin == end:
            raise ValueError(f"hours {self.hours!r}: no such time of the day, or none between")
        return begin, end
