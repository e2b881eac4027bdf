"""The changes of a server's log from a place on, and how far the log has been read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ray_canal.binlog.chunk import ChunkInfo, DecodedChunk
from ray_canal.binlog.executed import gtid_set_after
from ray_canal.binlog.open_transactions import closing_entries
from ray_canal.config import FilterConfig, InstanceConfig
from ray_canal.errors import TableMetaMismatch, UnsupportedEvent
from ray_canal.model.canal_types import (
    ERASE,
    QUERY,
    ROWDATA,
    TRUNCATE,
    XACOMMIT,
    XAROLLBACK,
)
from ray_canal.model.position import EntryPosition
from ray_canal.model.savepoints import SavepointStatement
from ray_canal.model.table_event import ANY_TABLE
from ray_canal.model.table_meta import TableMeta
from ray_canal.schema.event_parser import EventParser
from ray_canal.schema.names import Name, Names
from ray_canal.schema.registry import SchemaRegistry
from ray_canal.snapshot.key_numbers import Keys, joined
from ray_canal.snapshot.keys import row_keys
from ray_canal.snapshot.session import second_replica
from ray_canal.source.catalog_tables import CatalogTables
from ray_canal.source.live import LiveSource
from ray_canal.views.transactions import (
    COMMIT_PREPARED,
    COMMITTED,
    PREPARED,
    outcomes,
)

_INSERT, _DELETE = 1, 3
_COMMITTED = COMMITTED, ""


@dataclass(frozen=True, slots=True)
class LogPart:
    """Entries [first, last) of a chunk of the log. `closed`: they end between transactions, at
    `end`."""

    info: ChunkInfo
    chunk: DecodedChunk
    first: int
    last: int
    closed: bool
    end: EntryPosition


class LogReader:
    """A stream of the log, decoded in this process, cut where transactions end."""

    def __init__(
        self, config: InstanceConfig, start: EntryPosition, described: CatalogTables, tables: str
    ) -> None:
        """`tables`: the patterns of those whose rows are of interest."""
        source = second_replica(config.source, gtid=bool(start.gtid))
        self._source = LiveSource(config.model_copy(update={"source": source}))

        def now(schema: str, table: str) -> TableMeta | None:
            state = described.table(schema, table)
            return None if state is None else state.meta

        # The catalog's columns are the log's: a DDL of these tables ends the snapshot.
        schemas = SchemaRegistry("", now)
        schemas.use_names(Names(described.lower_case_table_names()))
        wanted = FilterConfig(tables=tables).event_filter()
        self._parser = EventParser(schemas, wanted=wanted)
        self._is_open = False
        self._gtid = start.gtid
        try:
            self.reached = self._source.open(start)
        except BaseException:
            self._source.close()
            raise

    @property
    def server_uuid(self) -> str:
        """Return the UUID of the server whose log is read."""
        return self._source.identity.server_uuid

    def read(self, wait_s: float) -> list[LogPart]:
        """Return what comes next; nothing where nothing came in that time: then `reached` is how
        far the log is known to be read. Raises SourceError and DecodeError kinds."""
        raw = self._source.read(0.0, wait_s)
        if raw is None:
            status = self._source.status()
            if not self._is_open and status.connected:
                self.reached = EntryPosition(
                    status.journal_name, status.master_position or 0, gtid=self._gtid
                )
            return []
        info, chunk = self._parser.decode_chunk(raw)
        if info.failure is not None:
            raise info.failure
        return self._cut(info, chunk)

    def _cut(self, info: ChunkInfo, chunk: DecodedChunk) -> list[LogPart]:
        count, name = len(info.entries), info.head.journal_name
        closing = closing_entries(info)
        behind = int(closing[-1]) + 1 if len(closing) else 0
        parts = []
        if behind:
            last = info.entries[behind - 1]
            position = int(last["position"]) + int(last["length"])
            if behind == count:
                position = info.head.end_position
            ended = info.gtids[info.gtids["position"] < position]
            self._gtid = gtid_set_after(self._gtid, ended)
            end = EntryPosition(name, position, gtid=self._gtid)
            parts.append(LogPart(info, chunk, 0, behind, True, end))
        if behind < count:
            end = EntryPosition(name, info.head.end_position, gtid=self._gtid)
            parts.append(LogPart(info, chunk, behind, count, False, end))
        if count:
            self._is_open = behind < count
        elif not self._is_open:
            self.reached = EntryPosition(name, info.head.end_position, gtid=self._gtid)
        return parts

    def close(self) -> None:
        self._source.close()


def ends_prepared(info: ChunkInfo) -> bool:
    """Return whether an XA transaction that was prepared ends in a chunk."""
    kinds = info.entries["event_type"]
    return bool(((kinds == XACOMMIT) | (kinds == XAROLLBACK)).any())


@dataclass(frozen=True, slots=True)
class TouchedKeys:
    """The keys, by table, that transactions touch which follow one another and end alike.
    `outcome`: of views/transactions.py, "" where the last one has not ended in this part of the
    log; `xa_id`: of the one transaction that is prepared, or was and has ended. `savepoint`: the
    statement that comes behind them in the last one."""

    keys: Mapping[Name, Keys]
    outcome: str
    xa_id: str = ""
    savepoint: SavepointStatement | None = None


def touched_by_outcome(
    part: LogPart, keys: Callable[[str, str], Sequence[str] | None]
) -> list[TouchedKeys]:
    """Return what a part touches, in its order. Raises what `touched_keys` does."""
    found, first = [], part.first
    for behind, outcome, xa_id in _runs(part):
        for one in part.info.savepoints:
            if first <= one.entry < behind:
                run = replace(part, first=first, last=one.entry + 1)
                found.append(TouchedKeys(touched_keys(run, keys), "", savepoint=one))
                first = one.entry + 1
        run = replace(part, first=first, last=behind)
        found.append(TouchedKeys(touched_keys(run, keys), outcome, xa_id))
        first = behind
    return found


def _runs(part: LogPart) -> Iterator[tuple[int, str, str]]:
    """Yield where each run of transactions that end alike ends, how, and the XA id. One with
    savepoints is alone."""
    closing = closing_entries(part.info)
    closing = closing[(closing >= part.first) & (closing < part.last)]
    behind = int(closing[-1]) + 1 if len(closing) else part.first
    ends = _settled(outcomes(part.chunk, closing))
    alone = {*np.searchsorted(closing, [one.entry for one in part.info.savepoints]).tolist()}
    if not ends:
        closing = closing if alone else closing[-1:]
        ends = [_COMMITTED] * len(closing)
    for number, closer in enumerate(closing.tolist()):
        is_last = not alone.isdisjoint((number, number + 1))
        if is_last or ends[number] != _COMMITTED or ends[number + 1 : number + 2] != [_COMMITTED]:
            yield closer + 1, *ends[number]
    if behind < part.last:
        yield part.last, "", ""


def _settled(ends: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return these ends, those of XA transactions that are prepared and committed among them as of
    any other."""
    prepared: dict[str, int] = {}
    for number, (outcome, xa_id) in enumerate(ends):
        if outcome == PREPARED:
            prepared[xa_id] = number
        elif (begun := prepared.pop(xa_id, None)) is not None and outcome == COMMIT_PREPARED:
            ends[begun] = ends[number] = _COMMITTED
    return ends


def touched_keys(
    part: LogPart, keys: Callable[[str, str], Sequence[str] | None]
) -> dict[Name, Keys]:
    """The keys of all row images of a part, by table; `keys`: a table's key, None: not of interest.

    Raises TableMetaMismatch: such a table was altered; UnsupportedEvent: images lack columns."""
    refuse_altered(part, keys)
    chunk, found = part.chunk, dict[Name, list[Keys]]()
    events = chunk.events
    for table in chunk.layout.tables:
        key = keys(table.meta.schema, table.meta.table)
        if key is None or not table.rows:
            continue
        owners = chunk.arena[table.row_event : table.row_event + 4 * table.rows].view("<i4")
        chosen = (owners >= part.first) & (owners < part.last)
        if not chosen.any():
            continue
        if (events["present"][owners[chosen]] >= 0).any():
            raise UnsupportedEvent(
                f"{table.meta.full_name}: its row images lack columns; a session has set "
                "binlog_row_image, which has to be FULL while rows are read"
            )
        kinds = events["event_type"][owners]
        mine = found.setdefault((table.meta.schema, table.meta.table), [])
        for side, without in ((table.before, _INSERT), (table.after, _DELETE)):
            if side is not None:
                mine.append(row_keys(chunk, table, side, key, chosen & (kinds != without)))
    return {name: joined(parts) for name, parts in found.items()}


def refuse_altered(part: LogPart, keys: Callable[[str, str], Sequence[str] | None]) -> None:
    """Raise TableMetaMismatch if a table of interest was altered."""
    entries = part.info.entries[part.first : part.last]
    statements = (entries["kind"] == ROWDATA) & (entries["table"] >= 0) & (entries["rows"] == 0)
    # Of a temporary table these have no effect, and MySQL 5.6 logs its end: it hid one of interest.
    # QUERY: the text of a statement whose rows follow.
    statements &= ~np.isin(entries["event_type"], (ERASE, TRUNCATE, QUERY))
    altered = [part.info.tables[number] for number in set(entries["table"][statements].tolist())]
    events = part.chunk.layout.table_events
    effects = [one.effect for one in events if part.first <= one.entry < part.last]
    altered += [(effect.schema, effect.table) for effect in effects]
    if ANY_TABLE in altered:
        raise TableMetaMismatch(
            "a statement that the log has as text, not as rows, may have changed tables while they "
            "were read (binlog_format of a session); read them again"
        )
    for schema, table in altered:
        if keys(schema, table) is not None:
            raise TableMetaMismatch(
                f"{schema}.{table} was altered, emptied, renamed or dropped while it was read; "
                "read it again"
            )
