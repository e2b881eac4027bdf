"""How many ranges may be read at once next to what else the server does.

One more each few seconds, half as many when the server has too much to do; none: reading waits.
Pure: readings and the time are the caller's.
"""

from __future__ import annotations

from dataclasses import dataclass

from ray_canal.config import SnapshotConfig

_RISE_S = 5.0


@dataclass(frozen=True, slots=True)
class LoadReading:
    """Load of a server; None: it does not say. `slower`: how many times as long a row
    takes to read as it did at first; `backlog_s`: for how long rows that were read wait until the
    log comes to their place."""

    threads_running: int | None = None
    history_list: int | None = None
    replica_lag_s: float | None = None
    slower: float | None = None
    backlog_s: float | None = None


class Governor:
    """`allowed`: so many ranges may be read now. `why`: what kept it from more, last; empty:
    nothing does."""

    def __init__(self, config: SnapshotConfig) -> None:
        self._config = config
        self.allowed = config.readers
        self.why = ""
        self._changed_s = 0.0

    def observe(self, reading: LoadReading, now_s: float) -> None:
        """Take a reading."""
        why = self._breach(reading)
        if why:
            self.why = why
            self.allowed //= 2
            self._changed_s = now_s
        elif now_s - self._changed_s >= _RISE_S and self.allowed < self._config.readers:
            self.allowed += 1
            self._changed_s = now_s
            self.why = "" if self.allowed == self._config.readers else self.why

    def _breach(self, reading: LoadReading) -> str:
        config = self._config
        threads, history = reading.threads_running, reading.history_list
        if config.threads_running and (threads or 0) > config.threads_running:
            return f"the server, which runs {threads} threads (snapshot.threads_running)"
        if config.history_list and (history or 0) > config.history_list:
            return f"InnoDB's purge: {history:,} old row versions (snapshot.history_list)"
        lag_s = reading.replica_lag_s or 0.0
        if config.replica_lag_s and lag_s > config.replica_lag_s:
            return f"the replica that is read, {lag_s:.0f} s behind (snapshot.replica_lag_s)"
        if config.slower and (reading.slower or 0.0) > config.slower:
            return f"the server: a row takes {reading.slower:.1f} times as long as at first " + (
                "(snapshot.slower)"
            )
        backlog_s = reading.backlog_s or 0.0
        if config.backlog_s and backlog_s > config.backlog_s:
            return f"the log, which is {backlog_s:.0f} s behind the rows (snapshot.backlog_s)"
        return ""
