"""What a snapshot's run needs of its destination."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from ray_canal.config import InstanceConfig
from ray_canal.destination.log_pipeline import LogPipeline
from ray_canal.destination.wakeup import Wakeup
from ray_canal.errors import InstanceError
from ray_canal.filter import TableFilter
from ray_canal.log.snapshot_tag import SnapshotTag
from ray_canal.model.snapshot_ledger import DONE, Ledger


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

    async def keep(self, client_id: int, ledger: Ledger) -> None:
        """Write a ledger with the subscriber's record: durable when it returns. Raises Fenced,
        MetaUnavailable, NotSubscribed."""
        ...


def after_acks(ledger: Ledger, tags: Sequence[SnapshotTag]) -> Ledger:
    """Return the ledger once these chunks of its reading are acked."""
    for tag in tags:
        if tag.table >= 0:
            ledger = ledger.acked(tag.table, tag.upto, tag.rows)
        if tag.ended and not ledger.is_over:
            now_s = int(time.time())
            tables = tuple(replace(table, finished=True) for table in ledger.tables)
            ledger = replace(ledger, state=DONE, ended=now_s, place=tag.place, tables=tables)
    return ledger


class Void(InstanceError):
    """The attempt is over, and the next one begins at once."""
