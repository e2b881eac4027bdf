"""The destination's timeline (model/timeline.py) and its record, which is kept with the
cursors."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time

from ray_canal.destination.ownership import Ownership
from ray_canal.errors import MetaUnavailable
from ray_canal.meta.manager import MetaManager
from ray_canal.model.position import SourceIdentity
from ray_canal.model.timeline import NO_FILE, LogFile, Timeline, timeline_in

logger = logging.getLogger(__name__)

_AGAIN_S = 0.5


class TimelineRecord:
    """One destination's. `number` is what counts; 0: it was not at its source yet."""

    def __init__(self, destination: str) -> None:
        self._destination = destination
        self.number = 0
        self.problem = ""
        """Why the log waits with a new file of the server; empty: it does not."""
        self._now = Timeline(0, SourceIdentity(""))

    def newest(self, meta: MetaManager) -> LogFile:
        """Return the last file of which something was handed out. Raises ConfigError: the record
        is damaged."""
        known = meta.load_timeline(self._destination)
        return NO_FILE if known is None else known.newest

    @property
    def reached(self) -> LogFile:
        """Return the last file of which something was handed out, of the log that is read."""
        return self._now.newest

    async def reach(
        self, cursors: Ownership, epoch: int, file: LogFile, *, is_own: bool = True
    ) -> None:
        """Note a file before anything of it is handed out, durably, if it is a newer one.
        `is_own` false: of a log next to the destination's own, in which files may be of an older
        base name. Waits while the cursors' server is away. Raises Fenced."""
        newest = self._now.newest
        if not file.created_s or not file.is_behind(newest):
            return
        if not (is_own or newest == NO_FILE or file.has_base_of(newest)):
            return
        try:
            while file.is_behind(self._now.newest):
                try:
                    await cursors.run(self._note, epoch, file)
                except MetaUnavailable as error:
                    self.problem = str(error)
                    await asyncio.sleep(_AGAIN_S)
        finally:
            self.problem = ""

    def _note(self, meta: MetaManager, epoch: int, file: LogFile) -> None:
        if not file.is_behind(self._now.newest):
            return  # another log has noted a later one meanwhile
        now = dataclasses.replace(self._now, newest=file)
        meta.save_timeline(self._destination, epoch, now)
        self._now = now

    def enter(
        self,
        meta: MetaManager,
        epoch: int,
        identity: SourceIdentity,
        same_log: bool,
        reached: LogFile = NO_FILE,
    ) -> None:
        """A log was opened, of which nothing was delivered yet. `reached`: of the destination's own
        log, which goes on next to it. Durable when it returns. Raises Fenced, ConfigError: the
        record is damaged."""
        known = meta.load_timeline(self._destination)
        if known is not None and known.number < self.number:  # it is of a copy that was put back
            known = Timeline(self.number, SourceIdentity(""))
            same_log = False
        now = timeline_in(known, identity, same_log, int(time.time()))
        if known is not None and now.number != known.number:
            now = dataclasses.replace(now, newest=reached)
        if now != known:
            meta.save_timeline(self._destination, epoch, now)
        if known is not None and now.number != known.number:
            logger.info(
                "destination %s: timeline %d begins, behind %d: row ids of %s",
                self._destination, now.number, known.number, identity.address,
            )  # fmt: skip
        self.number, self._now = now.number, now
