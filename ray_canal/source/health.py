"""Check if the server that is read is still well, by a thread next to the dump.

A dump tells only that a connection is there; a server whose disk is full or whose threads hang
keeps it open and sends heartbeats. So the thread runs `detect_sql` (Canal:
canal.instance.detecting.sql) at an interval, over a connection of its own, asks whether the server
is in its cluster (membership.py), and takes it for dead after so many failures in a row, if there
is a standby to go to. Else (source.detect) failures
are counted, and a statement that writes is a heartbeat in the log of an idle server.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from ray_canal.config import SourceConfig
from ray_canal.errors import CanalError, ConnectionLost
from ray_canal.source.catalog import Catalog
from ray_canal.source.membership import why_apart

log = logging.getLogger(__name__)


def probe(config: SourceConfig) -> str:
    """The server's uuid, if it answers `detect_sql` soon, and is in its cluster. Raises SourceError
    kinds."""
    catalog = Catalog(_hasty(config))
    try:
        look_at(config, catalog)
        return catalog.server_uuid()
    finally:
        catalog.close()


def look_at(config: SourceConfig, catalog: Catalog) -> None:
    """Return if a server is well. Raises SourceError kinds."""
    catalog.rows(config.detect_sql)
    if why := why_apart(catalog):
        raise ConnectionLost(f"MySQL at {config.address}: {why}")


class HealthCheck:
    """Checks one server until it is closed. `failure` is None while the server is taken for alive,
    then what the last check met."""

    def __init__(self, config: SourceConfig, on_dead: Callable[[], None]) -> None:
        """Begin the checks. `on_dead` is called once, for a server that has a standby."""
        self._config = config
        self._catalog = Catalog(_hasty(config))
        self._on_dead = on_dead
        self._closed = threading.Event()
        self._telling = threading.Lock()
        self.failure: CanalError | None = None
        self.failures = 0  # all of them
        self._thread = threading.Thread(target=self._run, name="health check", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        failures = 0
        while not self._closed.wait(self._config.detect_interval_s):
            try:
                look_at(self._config, self._catalog)
                if failures:
                    log.warning("%s is well after %d failed checks", self._config.address, failures)
                failures = 0
            except CanalError as error:
                failures += 1
                self.failures += 1
                if failures <= self._config.detect_failures:
                    log.warning(
                        "health check %d of %d failed: %s",
                        failures, self._config.detect_failures, error,
                    )  # fmt: skip
                if failures >= self._config.detect_failures and self._config.standby:
                    self._tell(error)
                    break
        self._catalog.close()

    def _tell(self, failure: CanalError) -> None:
        with self._telling:
            if not self._closed.is_set():
                self.failure = failure
                self._on_dead()

    def close(self) -> None:
        """Check no more, tell no more. A check that is under way ends by itself."""
        with self._telling:
            self._closed.set()


def _hasty(config: SourceConfig) -> SourceConfig:
    """Return the same server, not waited for longer than between two checks (a second at least)."""
    limit_s = max(1.0, config.detect_interval_s)
    return config.model_copy(
        update={
            "connect_timeout_s": min(config.connect_timeout_s, limit_s),
            "read_timeout_s": min(config.read_timeout_s, limit_s),
        }
    )
