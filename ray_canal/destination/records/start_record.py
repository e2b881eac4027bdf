"""Where the log of a destination began that nobody has subscribed to, kept with the cursors.

Whoever subscribes first gets what the log has from its beginning on. So a process that takes over
begins there again, and not where `source.start` says by then. The record also has what the
configuration said: where that has changed since, the configuration counts.
"""

from __future__ import annotations

import logging

from ray_canal.config import SourceConfig
from ray_canal.errors import ConfigError
from ray_canal.meta.manager import MetaManager
from ray_canal.model.position import LogPosition

logger = logging.getLogger(__name__)


class StartRecord:
    """One destination's."""

    def __init__(self, destination: str, source: SourceConfig) -> None:
        self._destination = destination
        self._configured = repr(
            (source.start, source.journal_name, source.position, source.timestamp, source.gtid_set)
        )
        self._known: LogPosition | None = None

    def load(self, meta: MetaManager) -> LogPosition | None:
        """Return the start that is kept; None: there is none that counts."""
        try:
            record = meta.load_start(self._destination)
        except ConfigError as error:
            logger.warning("%s", error)  # nobody has missed anything
            return None
        if record is None or record[0] != self._configured:
            return None
        self._known = record[1]
        return self._known

    def save(self, meta: MetaManager, epoch: int, place: LogPosition) -> None:
        """Nobody has subscribed, and the log begins there. Raises Fenced."""
        if place != self._known or not meta.has_start(self._destination):
            meta.save_start(self._destination, epoch, (self._configured, place))
            self._known = place

    def forget(self, meta: MetaManager, epoch: int) -> None:
        """Cursors count, or the destination was stopped. Raises Fenced."""
        if self._known is not None or meta.has_start(self._destination):
            meta.save_start(self._destination, epoch, None)
            self._known = None
