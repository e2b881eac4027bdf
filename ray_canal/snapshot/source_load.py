"""Load of a server, by its own counters."""

from __future__ import annotations

import contextlib
from typing import Any

from ray_canal.config import SourceConfig
from ray_canal.errors import SourceError
from ray_canal.snapshot.governor import LoadReading
from ray_canal.snapshot.session import close
from ray_canal.source.connection import connect, query

_HISTORY = (
    "SELECT `COUNT` AS value FROM information_schema.INNODB_METRICS"
    " WHERE NAME = 'trx_rseg_history_len'"
)
_LAGS = ("Seconds_Behind_Source", "Seconds_Behind_Master")


class SourceLoad:
    """Over a connection of its own, made when it is first asked; one thread calls."""

    def __init__(self, config: SourceConfig) -> None:
        self._config = config
        self._connection: Any = None

    def read(self) -> LoadReading:
        """Ask the server. Raises SourceError kinds: it does not answer."""
        if self._connection is None:
            self._connection = connect(self._config)
        try:
            threads = query(
                self._connection, self._config, "SHOW GLOBAL STATUS LIKE 'Threads_running'"
            )
            return LoadReading(int(threads[0]["Value"]), self._history(), self._lag_s())
        except BaseException:
            self.close()
            raise

    def _history(self) -> int | None:
        """Return the length of InnoDB's history list; None: the account may not see it."""
        with contextlib.suppress(SourceError):
            rows = query(self._connection, self._config, _HISTORY)
            return int(rows[0]["value"]) if rows else None
        return None

    def _lag_s(self) -> float | None:
        """Return how far a replica is behind; None: the server is no replica, or one that does not
        know."""
        for statement in ("SHOW REPLICA STATUS", "SHOW SLAVE STATUS"):
            with contextlib.suppress(SourceError):
                rows = query(self._connection, self._config, statement)
                lags = [row.get(name) for row in rows for name in _LAGS]
                known = [float(lag) for lag in lags if lag is not None]
                return max(known, default=None)
        return None

    def close(self) -> None:
        if self._connection is not None:
            close(self._connection)
            self._connection = None
