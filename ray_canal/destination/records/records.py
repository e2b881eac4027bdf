"""Records of a destination in the backends of meta: its cursors and the records next to them."""

from __future__ import annotations

import asyncio

from ray_canal.config import InstanceConfig, MetaConfig
from ray_canal.destination.ownership import Claim, Ownership
from ray_canal.destination.records.batch_id_record import BatchIdRecord
from ray_canal.destination.records.filter_record import FilterRecord
from ray_canal.destination.records.schema_records import SchemaRecords
from ray_canal.destination.records.start_record import StartRecord
from ray_canal.destination.records.timeline_record import TimelineRecord


class DestinationRecords:
    """`cursors` has the connection that the others are written over, under the owner's epoch; the
    schemas have one of their own."""

    def __init__(self, config: InstanceConfig, meta: MetaConfig, claim: Claim) -> None:
        name = config.destination
        self.cursors = Ownership(name, meta, claim)
        self.schemas = SchemaRecords(meta, config)
        self.filter = FilterRecord(config)
        self.start = StartRecord(name, config.source)
        self.timeline = TimelineRecord(name)
        self.batch_ids = BatchIdRecord(name)
        self._opened = False
        self._opening = asyncio.Lock()

    async def open(self) -> bool:
        """Open the backends; again where one was damaged or replaced meanwhile. Return whether the
        filter was read. Raises ConfigError: damaged, refused; MetaUnavailable."""
        async with self._opening:
            if not self._opened or self.schemas.damaged:
                await self.schemas.open()
            if self._opened and not self.cursors.damaged:
                return False
            await self.cursors.open()
            await self.cursors.run(self.filter.load)
            self._opened = True
            return True

    @property
    def problem(self) -> str:
        """Return why the log waits for a record to be written; empty: it does not."""
        return self.schemas.problem or self.timeline.problem

    async def close(self) -> None:
        """Release the backends."""
        await self.cursors.close()
        await self.schemas.close()
