"""Port of a snapshot's run to its destination."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from ray_canal.config import InstanceConfig
from ray_canal.destination.log_pipeline import LogPipeline
from ray_canal.destination.wakeup import Wakeup
from ray_canal.errors import InstanceError
from ray_canal.filter import TableFilter
from ray_canal.log.snapshot_tag import SnapshotTag
from ray_canal.meta.manager import SubscriberMeta
from ray_canal.model.position import EntryPosition
from ray_canal.model.snapshot_ledger import DONE, Ledger
from ray_canal.model.snapshot_wish import KEYED, SnapshotMode, SnapshotWish


class SnapshotHome(Protocol):
    """A destination, for the runs of its snapshots."""

    changed: Wakeup

    def source_config(self) -> InstanceConfig:
        """The destination's configuration, at the server that it reads now."""
        ...

    def log_of(self, client_id: int) -> LogPipeline | None:
        """The pipeline that the subscriber is in now; None: it is in none."""
        ...

    def table_filter(self, client_id: int) -> TableFilter:
        """Return a subscriber's table filter."""
        ...

    def followed(self, client_id: int, ledger: Ledger) -> Ledger:
        """Return a ledger without what the subscriber's record has as not read: it was moved."""
        ...

    async def keep(self, client_id: int, ledger: Ledger) -> None:
        """Write a ledger with the subscriber's record: durable when it returns. Raises Fenced,
        MetaUnavailable, NotSubscribed; AttemptVoid: it is not to go on, or the subscriber was
        moved, so that what was read counts no more."""
        ...

    def begin_rows_log(self, client_id: int) -> None:
        """Let the subscriber get nothing but the rows of one moment from now on, until its snapshot
        has ended. Raises AttemptVoid: there is no log now."""
        ...

    async def begin_rows(
        self, client_id: int, ledger: Ledger, server: str, place: EntryPosition
    ) -> LogPipeline:
        """Move the subscriber that is held to the rows' place, which is of this server: durable
        when it returns, with the ledger. Return the log that gets the rows. Raises Fenced,
        MetaUnavailable, NotSubscribed; AttemptVoid: it is not to go on."""
        ...


def ledger_of(known: SubscriberMeta) -> Ledger | None:
    """Return the ledger of a subscriber's newest snapshot; None: it has had none."""
    return Ledger.from_json(known.snapshot) if known.snapshot else None


def new_ledger(
    wishes: Sequence[SnapshotWish] = (),
    snapshot_id: str = "",
    reason: str = "",
    mode: SnapshotMode = KEYED,
    earlier: Ledger | None = None,
    attempts: int = 0,
) -> Ledger:
    """Return the ledger of a snapshot that begins: of all that the subscriber sees, where nothing
    is wished. `earlier`: the subscriber's last one; signals that were done stay done. `attempts`:
    of the destination so far (SubscriberTable.attempts)."""
    name = snapshot_id or f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:6]}"
    wanted, signals = tuple(wishes) or (SnapshotWish(),), () if earlier is None else earlier.signals
    return Ledger(name, wanted, attempt=attempts, reason=reason, signals=signals, mode=mode)


def after_acks(ledger: Ledger, tags: Sequence[SnapshotTag]) -> Ledger:
    """Return the ledger once these chunks of its attempt are acked."""
    for tag in tags:
        if tag.table >= 0:
            ledger = ledger.acked(tag.table, tag.upto, tag.rows)
        if tag.ended and not ledger.is_over:
            now_s = int(time.time())
            tables = tuple(replace(table, finished=True) for table in ledger.tables)
            ledger = replace(ledger, state=DONE, ended=now_s, place=tag.place, tables=tables)
    return ledger


class AttemptVoid(InstanceError):
    """The attempt is over, and the next one begins at once."""
