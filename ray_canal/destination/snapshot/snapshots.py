"""Snapshots of one destination: who has one, what is asked of them, how they go.

What is durable of a snapshot is in its subscriber's record, next to the cursor, and is written
with it. From there a run (snapshot_run.py) is begun, and begun again after a restart.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, cast

from ray_canal.config import InstanceConfig
from ray_canal.destination.catch_ups import CatchUps
from ray_canal.destination.log_pipeline import LogPipeline
from ray_canal.destination.operations import SubscriberOperations
from ray_canal.destination.pipeline_lookup import PipelineLookup
from ray_canal.destination.snapshot.snapshot_home import (
    AttemptVoid,
    after_acks,
    ledger_of,
    new_ledger,
)
from ray_canal.destination.state import DestinationState
from ray_canal.destination.wakeup import wait_with_timeout
from ray_canal.errors import CanalError, ConfigError
from ray_canal.filter import TableFilter
from ray_canal.log.snapshot_tag import SnapshotTag
from ray_canal.meta.manager import SubscriberMeta
from ray_canal.model.position import EntryPosition, LogPosition
from ray_canal.model.reports import SnapshotPace, SnapshotReport
from ray_canal.model.snapshot_ledger import CANCELLED, FAILED, PAUSED, RUNNING, Ledger, State
from ray_canal.model.snapshot_wish import (
    CONSISTENT,
    SnapshotMode,
    SnapshotWish,
    refuse_mode,
)
from ray_canal.model.timeline import LogFile

if TYPE_CHECKING:
    from ray_canal.destination.snapshot.snapshot_run import SnapshotRun

logger = logging.getLogger(__name__)

ACTIONS = ("start", "status", "pause", "resume", "cancel")
_TICK_S = 1.0
_STATES: dict[str, State] = {"pause": PAUSED, "resume": RUNNING, "cancel": CANCELLED}


class Snapshots:
    """See `SnapshotHome`, which it is."""

    def __init__(
        self,
        state: DestinationState,
        lookup: PipelineLookup,
        catch_ups: CatchUps,
        operations: SubscriberOperations,
    ) -> None:
        self._state = state
        self._lookup = lookup
        self._catch_ups = catch_ups
        self._operations = operations
        self._runs: dict[int, tuple[SnapshotRun, asyncio.Task[None]]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._wanted = asyncio.Event()
        self.changed = state.changed

    # --- a home for runs --------------------------------------------------------------------------

    def source_config(self) -> InstanceConfig:
        config, address = self._state.config.now, self._state.log.identity.address
        return config.at(address) if address else config

    def log_of(self, client_id: int) -> LogPipeline | None:
        log, held = self._lookup.now(client_id), self._catch_ups.rows_logs().get(client_id)
        if held is not None and not held.has_begun:
            return None
        if log is None or log.lost or log.ended or log.store.attempt_name_of(client_id) is None:
            return None
        return log

    def table_filter(self, client_id: int) -> TableFilter:
        """Return a subscriber's table filter. Raises NotSubscribed."""
        table = self._state.subscribers
        return table.terms(table.get(client_id)).filter

    def followed(self, client_id: int, ledger: Ledger) -> Ledger:
        known = self._state.subscribers.known.get(client_id)
        record = None if known is None else ledger_of(known)
        return ledger if record is None else ledger.follow(record)

    async def keep(self, client_id: int, ledger: Ledger) -> None:
        table = self._state.subscribers
        async with table.turn(client_id):
            known = table.get(client_id)
            there = ledger_of(known)
            if there is None or there.id != ledger.id or there.state != RUNNING:
                raise AttemptVoid("the snapshot is not to go on")
            if ledger.follow(there) != ledger:
                raise AttemptVoid("the subscriber was moved")
            await table.save(dataclasses.replace(known, snapshot=ledger.to_json()))

    def begin_rows_log(self, client_id: int) -> None:
        if self._state.log.pipeline is None:
            raise AttemptVoid("the destination has no log now")
        self._catch_ups.begin_rows_log(client_id)

    async def begin_rows(
        self, client_id: int, ledger: Ledger, server: str, place: EntryPosition
    ) -> LogPipeline:
        table, identity = self._state.subscribers, self._state.log.identity
        if server == identity.server_uuid:
            await self._reach(place)
        async with table.turn(client_id):
            known, held = table.get(client_id), self._catch_ups.rows_logs().get(client_id)
            there = ledger_of(known)
            goes_on = there is not None and there.id == ledger.id and there.state == RUNNING
            if held is None or not goes_on or server != identity.server_uuid:
                raise AttemptVoid("the snapshot is not to go on, or not on this server")
            cursor = LogPosition(identity, place)
            moved = dataclasses.replace(known, cursor=cursor, snapshot=ledger.to_json())
            await table.save(moved)
            log = held.begin(cursor)
        await self.changed.wake()
        return log

    async def _reach(self, place: EntryPosition) -> None:
        """Let rows of this place have higher ids than all that was handed out. Raises Fenced,
        MetaUnavailable."""
        records, file = self._state.records, LogFile(place.journal_name, place.created_s)
        if records.timeline.reached.cannot_lead_to(file):
            await self._state.begin_timeline(self._state.log.identity)
        await records.timeline.reach(
            records.cursors, self._state.guard.epoch, file, is_own=False
        )

    async def _release(self, client_id: int) -> None:
        """Let a subscriber go on from its cursor: its snapshot has ended."""
        table = self._state.subscribers
        async with table.turn(client_id):
            if client_id in self._catch_ups.rows_logs():
                await self._operations.move(table.get(client_id), self._state.log.pipeline)
        await self.changed.wake()

    # --- acks -------------------------------------------------------------------------------------

    def after(self, known: SubscriberMeta, tags: list[SnapshotTag]) -> str:
        """Return what a subscriber's record says of its snapshot once these chunks are acked."""
        if not tags:
            return known.snapshot
        run = self._run_of(known.client_id, tags)
        if run is not None:
            return run.after(tags).to_json()
        ledger = ledger_of(known)  # it was paused, and its last rows are acked now
        if ledger is None or ledger.attempt_name_of(known.client_id) != tags[-1].attempt_name:
            return known.snapshot
        return after_acks(ledger, tags).to_json()

    def acked(self, client_id: int, tags: list[SnapshotTag]) -> None:
        """These chunks are acked, and the record is written."""
        run = self._run_of(client_id, tags)
        if run is not None:
            run.acked(tags)

    def _run_of(self, client_id: int, tags: list[SnapshotTag]) -> SnapshotRun | None:
        found = self._runs.get(client_id)
        if not tags or found is None or found[0].attempt_name != tags[-1].attempt_name:
            return None
        return found[0]

    # --- what is asked ----------------------------------------------------------------------------

    async def operate(
        self,
        client_id: int,
        action: str,
        wishes: Sequence[SnapshotWish] = (),
        snapshot_id: str = "",
        mode: str = "",
    ) -> SnapshotReport:
        """Start, pause, resume or cancel a subscriber's snapshot, or show it; return how it goes.
        Durable when it returns. Start is idempotent by id; `mode` empty: what the configuration
        says. Raises NotSubscribed, ConfigError: there is none, or another one goes on; Fenced,
        MetaUnavailable."""
        return await self._operated(client_id, action, wishes, snapshot_id, mode)

    async def signalled(
        self,
        client_id: int,
        action: str,
        wishes: Sequence[SnapshotWish],
        signal_id: str,
        mode: str = "",
    ) -> None:
        """Do what a signal asks for, once. Raises as `operate`."""
        await self._operated(
            client_id, action, wishes, signal_id if action == "start" else "", mode, signal_id
        )

    async def _operated(
        self,
        client_id: int,
        action: str,
        wishes: Sequence[SnapshotWish],
        snapshot_id: str,
        mode: str,
        signal_id: str = "",
    ) -> SnapshotReport:
        if action not in ACTIONS:
            raise ConfigError(f"{action!r} is nothing to do: expected {', '.join(ACTIONS)}")
        table = self._state.subscribers
        async with table.turn(client_id):
            known = await table.recorded(client_id)
            ledger = self._newest(known)
            if ledger is not None and signal_id and signal_id in ledger.signals:
                return self._report(client_id, ledger)
            if action == "start":
                now = self._started(client_id, ledger, wishes, snapshot_id, mode)
            elif ledger is None:
                raise ConfigError(
                    f"client {client_id} has no snapshot; start one with `ray-canal snapshot start`"
                ).at(destination=self._state.destination)
            else:
                now = _after_action(ledger, action)
            if signal_id:
                now = now.signalled(signal_id)
            if now != ledger:
                if ledger is not None and ledger.state == RUNNING and action != "start":
                    self._end(client_id)
                now = self.followed(client_id, now)
                epoch = await self._state.guard.for_writing()
                changed = dataclasses.replace(known, snapshot=now.to_json())
                await table.save(changed, epoch, of=known)
        self._wanted.set()
        await self.changed.wake()
        return self._report(client_id, now)

    async def restart_tables(
        self, client_id: int, names: Collection[tuple[str, str]], log: LogPipeline
    ) -> None:
        """Let a subscriber's snapshot read these tables from the first row on, which have other
        rows than before from a chunk of this log on. Raises Fenced, MetaUnavailable."""
        table, found = self._state.subscribers, self._runs.get(client_id)
        if found is not None and found[0].looks_elsewhere(log):
            return
        async with table.turn(client_id):
            known = table.known.get(client_id)
            ledger = None if known is None else self._newest(known)
            if known is None or ledger is None:
                return
            now = ledger.with_restarted(names)
            if now != ledger:
                now = self.followed(client_id, now)
                epoch = await self._state.guard.for_writing()
                changed = dataclasses.replace(known, snapshot=now.to_json())
                await table.save(changed, epoch, of=known)
            if found is not None and found[0].ledger.id == ledger.id:
                found[0].restart_tables(names)

    def _started(
        self,
        client_id: int,
        ledger: Ledger | None,
        wishes: Sequence[SnapshotWish],
        snapshot_id: str,
        mode: str,
    ) -> Ledger:
        refuse_mode(mode)
        if not self._state.config.now.source.address:
            raise ConfigError(
                "the source is binlog files: a snapshot is read from a server (source.address)"
            ).at(destination=self._state.destination)
        if ledger is not None and snapshot_id and ledger.id == snapshot_id:
            return ledger
        if ledger is not None and not ledger.is_over:
            raise ConfigError(
                f"client {client_id} has snapshot {ledger.id}, which is {ledger.state}: cancel it "
                "first"
            ).at(destination=self._state.destination)
        for wish in wishes:
            TableFilter(wish.tables)  # refused before anything is written
        attempts = self._state.subscribers.attempts()
        by_default = self._state.config.now.snapshot.mode
        chosen: SnapshotMode = cast(SnapshotMode, mode or by_default)
        return new_ledger(wishes, snapshot_id, "", chosen, ledger, attempts)

    def _newest(self, known: SubscriberMeta) -> Ledger | None:
        ledger, found = ledger_of(known), self._runs.get(known.client_id)
        if found is None or ledger is None or found[0].ledger.id != ledger.id:
            return ledger
        if ledger.is_over:  # its run may not know it yet, nor why
            return ledger
        return dataclasses.replace(found[0].ledger, state=ledger.state)

    def _end(self, client_id: int) -> None:
        """Begin to end a run; a SELECT of it may take its time."""
        found = self._runs.pop(client_id, None)
        if found is not None:
            found[1].cancel()
            self._ending.add(found[1])
            found[1].add_done_callback(self._ending.discard)

    # --- how they go ------------------------------------------------------------------------------

    def poke(self) -> None:
        """A record was written that may want a snapshot."""
        self._wanted.set()

    async def watch(self) -> None:
        """Keep a run for each snapshot that goes on by the records, until it is cancelled."""
        try:
            while True:
                await self._reconcile()
                self._wanted.clear()
                with contextlib.suppress(asyncio.TimeoutError):
                    await wait_with_timeout(_TICK_S, self._wanted.wait())
        finally:
            for client_id in list(self._runs):
                self._end(client_id)
            await asyncio.gather(*self._ending, return_exceptions=True)

    async def _reconcile(self) -> None:
        known = self._state.subscribers.known
        for client_id, (run, task) in list(self._runs.items()):
            one = known.get(client_id)
            ledger = None if one is None else ledger_of(one)
            goes_on = ledger is not None and ledger.id == run.ledger.id and ledger.state == RUNNING
            if ledger is None or not goes_on or ledger.attempt > run.attempt:  # that: it was moved
                self._end(client_id)
            elif task.done():
                self._runs.pop(client_id)
        for client_id, one in list(known.items()):
            ledger = ledger_of(one)
            if ledger is not None and ledger.state == RUNNING and client_id not in self._runs:
                run = self._new_run(client_id, ledger)
                self._runs[client_id] = run, asyncio.create_task(self._live(run))

        for client_id in self._catch_ups.rows_logs():
            held = known.get(client_id)
            ledger = None if held is None else ledger_of(held)
            if ledger is None or ledger.state != RUNNING or ledger.mode != CONSISTENT:
                try:
                    await self._release(client_id)
                except CanalError as error:  # the next time, then
                    logger.warning("destination %s: %s", self._state.destination, error)

    def _new_run(self, client_id: int, ledger: Ledger) -> SnapshotRun:
        # A store loads what reads rows only when it does: its start is quicker without.
        if ledger.mode == CONSISTENT:
            from ray_canal.destination.snapshot.snapshot_moment import MomentRun

            return MomentRun(self, client_id, ledger, self._state.runtime)
        from ray_canal.destination.snapshot.snapshot_run import SnapshotRun

        return SnapshotRun(self, client_id, ledger, self._state.runtime)

    async def _live(self, run: SnapshotRun) -> None:
        try:
            await run.run()
        except CanalError as error:  # another owner has the destination
            logger.warning("destination %s: %s", self._state.destination, error)
        finally:
            self._wanted.set()

    def report(self) -> list[SnapshotReport]:
        """Return each subscriber's newest snapshot as plain values."""
        found = []
        for client_id, known in sorted(self._state.subscribers.known.items()):
            ledger = self._newest(known)
            if ledger is not None:
                found.append(self._report(client_id, ledger))
        return found

    def sums(self) -> dict[str, int]:
        """Return the report in numbers, for metrics."""
        found = self.report()
        return {
            "running": sum(one["state"] == RUNNING for one in found),
            "failed": sum(one["state"] == FAILED for one in found),
            "rows": sum(one["rows"] for one in found),
        }

    def _report(self, client_id: int, ledger: Ledger) -> SnapshotReport:
        found = self._runs.get(client_id)
        goes_on = ledger.state == RUNNING and found is not None
        now = found[0].status() if found is not None and goes_on else {}
        return snapshot_report(client_id, ledger, now)


def _after_action(ledger: Ledger, action: str) -> Ledger:
    """Raises ConfigError: what has ended neither goes on nor ends again."""
    if action == "status":
        return ledger
    if action == "pause" and ledger.mode == CONSISTENT and not ledger.is_over:
        raise ConfigError(
            f"snapshot {ledger.id} is of one moment, which the server keeps until it is read: "
            "cancel it, and start another one later"
        )
    state = _STATES[action]
    failed_before = ledger.state == FAILED and action in ("resume", "cancel")
    if ledger.is_over and not failed_before and ledger.state != state:
        raise ConfigError(f"snapshot {ledger.id} is {ledger.state}: start another one")
    ended = int(time.time()) if state == CANCELLED else 0
    return dataclasses.replace(ledger, state=state, ended=ended, error="")


def snapshot_report(client_id: int, ledger: Ledger, now: SnapshotPace) -> SnapshotReport:
    """Return a snapshot as plain values. `now`: how its run goes; nothing without one."""
    rows_per_s = float(now.get("rows_per_s") or 0.0)
    left = max(ledger.estimate - ledger.rows, 0)
    return {
        "client_id": client_id,
        "id": ledger.id,
        "mode": ledger.mode,
        "state": ledger.state,
        "reason": ledger.reason or None,
        "error": ledger.error or None,
        "rows": ledger.rows,
        "rows_estimate": ledger.estimate,
        "tables": len(ledger.tables),
        "tables_done": sum(table.finished for table in ledger.tables),
        "table_rows": {
            table.full_name: {
                "rows": table.acked_rows, "estimate": max(table.estimate, table.acked_rows),
                "done": table.finished,
            }
            for table in ledger.tables
        },
        "began_at": ledger.began or None,
        "ended_at": ledger.ended or None,
        "place": ledger.place or None,
        "rows_per_s": rows_per_s,
        "left_s": left / rows_per_s if rows_per_s and ledger.state == RUNNING else None,
        "waits_for": now.get("waits_for") or None,
        "chunks_waiting": now.get("chunks_waiting", 0),
        "bytes_unacked": now.get("bytes_unacked", 0),
        "readers": now.get("readers", 0),
    }  # fmt: skip
