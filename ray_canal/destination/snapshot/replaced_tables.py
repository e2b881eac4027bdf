"""Notes in a snapshot's record which of its tables have other rows than before: those are read from
the first row on.

An attempt that reads sees such a statement itself (snapshot_placer.py). Here it is noted before its
chunk goes into the log, so before anybody can ack it: also while a snapshot is paused, has failed
or waits for its next attempt, and whatever is killed afterwards.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from ray_canal.binlog.chunk import ChunkInfo, DecodedChunk
from ray_canal.destination.log_pipeline import LogPipeline
from ray_canal.destination.state import DestinationState
from ray_canal.log.transaction_buffer import LogChunk
from ray_canal.model.canal_types import ROWDATA
from ray_canal.model.message import Payload
from ray_canal.model.position import EntryPosition, LogPosition
from ray_canal.model.snapshot_ledger import CANCELLED, DONE, Ledger
from ray_canal.model.snapshot_wish import KEYED
from ray_canal.model.table_event import ANY_TABLE, ERASE, RENAME, STATEMENT
from ray_canal.schema.names import Name

Restart = Callable[[int, Collection[Name], LogPipeline], Awaitable[None]]
_KINDS = (ERASE, RENAME, STATEMENT)


def replaced_by(chunk: DecodedChunk, names: Collection[Name]) -> set[Name]:
    """Return which of these tables have other rows after a chunk, which has none of those rows:
    they were renamed, dropped, got a partition with rows, or were changed by a statement."""
    effects = [event.effect for event in chunk.layout.table_events]
    gone = {(one.schema, one.table) for one in effects if one.kind in _KINDS}
    return set(names) if ANY_TABLE in gone else gone & set(names)


class ReplacedTables:
    """Those of the snapshots of one destination. `restart`: lets a subscriber's snapshot read
    tables from the first row on, for which a log has a statement."""

    def __init__(self, state: DestinationState, restart: Restart) -> None:
        self._state = state
        self._restart = restart

    async def note(
        self, log: LogPipeline, clients: Collection[int], chunk: LogChunk, payload: Payload
    ) -> None:
        """Note what a chunk does to tables of snapshots of these subscribers, which this log has or
        may get. Durable on return. Raises Fenced, MetaUnavailable."""
        if not _has_statements(chunk.info):
            return
        end = EntryPosition(chunk.info.head.journal_name, chunk.info.head.end_position)
        for client_id in clients:
            known = self._state.subscribers.known.get(client_id)
            if known is None or not known.snapshot or _is_behind(known.cursor, log, end):
                continue
            names = begun_tables(Ledger.from_json(known.snapshot))
            if not any(name == ANY_TABLE or name in names for name in chunk.info.tables):
                continue
            decoded = await self._state.runtime.load(payload)
            if replaced := replaced_by(decoded, names):
                await self._restart(client_id, replaced, log)


def begun_tables(ledger: Ledger) -> set[Name]:
    """Return the tables of which a snapshot may have read some rows, and is to read the others."""
    if ledger.mode != KEYED or ledger.state in (DONE, CANCELLED):
        return set()
    return {(table.schema, table.table) for table in ledger.tables if not table.finished}


def _has_statements(info: ChunkInfo) -> bool:
    entries = info.entries
    return bool(((entries["kind"] == ROWDATA) & (entries["rows"] == 0)).any())


def _is_behind(cursor: LogPosition | None, log: LogPipeline, end: EntryPosition) -> bool:
    """Return whether the subscriber has acked a place of this log already: it was noted then."""
    return (
        cursor is not None
        and not cursor.is_foreign(log.identity)
        and cursor.position >= end
    )
