"""State that the services of one destination share: its configuration, its records and what runs
now."""

from __future__ import annotations

from dataclasses import dataclass

from ray_canal.config import InstanceConfig, MetaConfig
from ray_canal.destination.current_config import CurrentConfig
from ray_canal.destination.current_log import CurrentLog
from ray_canal.destination.epoch_guard import EpochGuard
from ray_canal.destination.log_folders import LogFolders
from ray_canal.destination.ownership import Claim
from ray_canal.destination.ports import Runtime
from ray_canal.destination.records.records import DestinationRecords
from ray_canal.destination.records.subscriber_table import SubscriberTable
from ray_canal.destination.skipped import SkippedEvents
from ray_canal.destination.supervisor import Supervisor
from ray_canal.destination.wakeup import Wakeup
from ray_canal.model.position import SourceIdentity


@dataclass(frozen=True, kw_only=True)
class DestinationState:
    """`changed` wakes whoever waits for a change of any of these."""

    config: CurrentConfig
    runtime: Runtime
    changed: Wakeup
    supervisor: Supervisor
    records: DestinationRecords
    guard: EpochGuard
    subscribers: SubscriberTable
    log: CurrentLog
    folders: LogFolders
    skipped: SkippedEvents

    @property
    def destination(self) -> str:
        """Name of the destination."""
        return self.config.destination

    async def begin_timeline(self, identity: SourceIdentity) -> None:
        """Begin a timeline next to the log that is read, for what comes from this server now. It is
        in the next message of every subscriber: whoever comes back finds no lower one. Raises
        Fenced, MetaUnavailable."""
        cursors, timeline = self.records.cursors, self.records.timeline
        # What the destination's own log hands out until it is opened again is of that one, too.
        reached = timeline.reached
        await self.guard.run(
            cursors.keep(self.guard.epoch, timeline.enter, identity, False, reached)
        )


def new_state(
    config: InstanceConfig, meta: MetaConfig, runtime: Runtime, claim: Claim | None = None
) -> DestinationState:
    """Return the state of a destination that has not begun. `claim`: what it knows of its ownership
    from its life before."""
    changed, log = Wakeup(), CurrentLog()
    current = CurrentConfig(config, meta.own_tables)
    supervisor = Supervisor(changed, config.source.reconnect_max_s)
    records = DestinationRecords(config, meta, claim or Claim())
    guard = EpochGuard(records.cursors, supervisor, log)
    return DestinationState(
        config=current,
        runtime=runtime,
        changed=changed,
        supervisor=supervisor,
        records=records,
        guard=guard,
        subscribers=SubscriberTable(current, records, guard),
        log=log,
        folders=LogFolders(config, meta),
        skipped=SkippedEvents(config.destination),
    )
