"""The status of a destination: state, positions, lag, rates, log and subscribers."""

from __future__ import annotations

import dataclasses
import time

from ray_canal.destination.admission import oldest_cursor, waited_for
from ray_canal.destination.catch_ups import CatchUps
from ray_canal.destination.failures import error_text
from ray_canal.destination.log_pipeline import LogPipeline
from ray_canal.destination.snapshot.snapshots import Snapshots
from ray_canal.destination.state import DestinationState
from ray_canal.destination.status.activity import Activity
from ray_canal.destination.status.log_stats import LogStats
from ray_canal.destination.status.source_contact import SourceContact
from ray_canal.destination.status.stages import Stages
from ray_canal.destination.status.status_record import DestinationStatus
from ray_canal.destination.supervisor import FAILED, FINISHED, IDLE, STOPPED
from ray_canal.limits import limits
from ray_canal.model.reports import StageReport
from ray_canal.source.port import SourceStatus


class StatusReport:
    """Reports on one destination. `gets`: the times of its clients' gets."""

    def __init__(
        self,
        state: DestinationState,
        catch_ups: CatchUps,
        activity: Activity,
        stats: LogStats,
        gets: Stages,
        snapshots: Snapshots,
    ) -> None:
        self._state = state
        self._catch_ups = catch_ups
        self._activity = activity
        self._stats = stats
        self._gets = gets
        self._snapshots = snapshots
        self._contact = SourceContact()
        self._started_at = time.time()

    async def source(self) -> SourceStatus | None:
        """Return the state of the source; None if it is not known now."""
        log = self._state.log
        oldest = oldest_cursor(waited_for(self._state.subscribers.known), log.start)
        pipeline = log.newest
        found = None if pipeline is None else await pipeline.pump.source_status(oldest)
        state = self._state.supervisor.state
        if state in (IDLE, FINISHED, STOPPED):
            self._contact.end(at_end=state == FINISHED)
        else:
            newest = self._activity.last_event_time
            self._contact.note(found, newest, failed=state == FAILED)
        return found

    async def status(self) -> DestinationStatus:
        """Return everything as plain values, without secrets."""
        state, log, activity = self._state, self._state.log, self._activity
        pipeline, source = log.newest, await self.source()
        config, failure = state.config.now, state.supervisor.failure
        quarantined = state.records.schemas.quarantined()
        return {
            "destination": state.destination,
            "state": state.supervisor.state,
            "error": None if failure is None else error_text(failure),
            "source": config.source.address or ", ".join(config.source.files),
            "address": log.identity.address,
            "server": log.identity.server_uuid,
            "start": None if log.start is None else f"{log.start}: {log.start_reason}",
            "epoch": state.guard.epoch,
            "timeline": state.records.timeline.number,
            "generations": activity.generations,
            "uptime_s": time.time() - self._started_at,
            "decoders": None if pipeline is None else pipeline.pump.decoders,
            "decoders_now": None if pipeline is None else pipeline.pump.window.size,
            "held_back_percent": 0.0 if pipeline is None else pipeline.pump.held_back_percent,
            "fetched": source,
            "lag_bytes": None if source is None else source.lag_bytes,
            "purge": None if source is None else source.purge,
            "lag_seconds": self._contact.lag_seconds,
            "connected": self._contact.connected,
            "source_error": None if source is None else source.last_error or None,
            **activity.rates.per_second(),
            "transactions": activity.traffic.transactions,
            "tables": activity.traffic.tables(),
            "largest_transactions": activity.traffic.largest(),
            "stages": self._stages(pipeline),
            "errors": activity.errors,
            "records_error": state.records.problem or None,
            "quarantined": quarantined,
            "quarantine_bytes": state.records.schemas.quarantine_bytes,
            "quarantined_tables": len(quarantined),
            "quarantined_chunks": activity.quarantined_chunks,
            "dead_letters": state.records.schemas.dead_letters,
            "skipped_events": activity.skipped.count,
            "last_skipped_event": activity.skipped.last or None,
            "filter": config.filter.model_dump(),
            "bytes_max": None if pipeline is None else self._bytes_max(pipeline.pump.decoders),
            "store": self._stats.report(),
            "snapshots": self._snapshots.report(),
            "snapshot": self._snapshots.sums(),
        }

    def _stages(self, pipeline: LogPipeline | None) -> dict[str, StageReport]:
        upstream = {} if pipeline is None else pipeline.pump.stages.report()
        return {**upstream, **self._gets.report()}

    def _bytes_max(self, decoders: int) -> dict[str, int] | None:
        """See limits.py."""
        config, subscribers = self._state.config.now, len(self._state.subscribers.known)
        pipelines = 1 + len(self._catch_ups.places())
        found = limits(config, decoders=decoders, subscribers=subscribers, logs=pipelines)
        return None if found is None else dataclasses.asdict(found)
