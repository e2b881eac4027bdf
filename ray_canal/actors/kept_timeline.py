"""The destination's timeline (protocol/timeline.py) and its record, which is kept with the
cursors."""

from __future__ import annotations

import logging
import time

from ray_canal.meta.manager import MetaManager
from ray_canal.protocol.position import SourceIdentity
from ray_canal.protocol.timeline import Timeline, timeline_in

logger = logging.getLogger(__name__)


class KeptTimeline:
    """One destination's. `number` is what counts; 0: it was not at its source yet."""

    def __init__(self, destination: str) -> None:
        self._destination = destination
        self.number = 0

    def enter(
        self, meta: MetaManager, epoch: int, identity: SourceIdentity, same_log: bool
    ) -> None:
        """A log was opened, of which nothing was delivered yet. Durable when it returns. Raises
        Fenced, ConfigError: the record is damaged."""
        known = meta.load_timeline(self._destination)
        if known is not None and known.number < self.number:  # it is of a copy that was put back
            known = Timeline(self.number, SourceIdentity(""))
            same_log = False
        now = timeline_in(known, identity, same_log, int(time.time()))
        if now != known:
            meta.save_timeline(self._destination, epoch, now)
        if known is not None and now.number != known.number:
            logger.info(
                "destination %s: timeline %d begins, behind %d: row ids of %s",
                self._destination, now.number, known.number, identity.address,
            )  # fmt: skip
        self.number = now.number
