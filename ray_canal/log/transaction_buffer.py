"""The transaction buffer: puts decoded chunks into transactions, in order (Canal:
EventTransactionBuffer).

For every entry it works out where a subscriber that has consumed it resumes: behind its
transaction if it ends that; else where that begins, plus the rows and entries consumed of it. (Not
behind the transaction before: events of no transaction may lie between, as at a file's start, and
a place that was searched for is behind those.) It holds an open transaction back as long as Canal's
buffer does (flush.py), and thins transactions, as Canal's sink does (thinning.py). It sees infos
only, never a payload, and loops over no entry in Python.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from ray_canal.binlog.chunk import ChunkInfo
from ray_canal.binlog.executed import gtid_set_after
from ray_canal.binlog.open_transactions import OpenTransactions, begins, closing_entries
from ray_canal.binlog.trail import NONE_CLOSED, Closed, Folding, extended
from ray_canal.config import InstanceConfig
from ray_canal.errors import InstanceError
from ray_canal.log.flush import Flush
from ray_canal.log.snapshot_tag import SnapshotTag
from ray_canal.log.thinning import Thinning
from ray_canal.model.arrays import Bools, Int64s
from ray_canal.model.log_context import OpenTransaction
from ray_canal.model.position import EntryPosition


@dataclass(frozen=True, slots=True)
class LogChunk:
    """A chunk as the log keeps it: its info, which entries are delivered at all, and what of the
    log before it one must know to say where an entry resumes.

    Its first entry's transaction begins at `begin`, an offset; of it there were `open_rows` rows
    and `open_entries` entries before, and `open` tells more of them; `gtid_set` was executed before
    it; `trail` is that place's. `closed`: the transactions that the trail gets in this chunk.
    `closing`: indexes of the entries that end a transaction. `held`: so many entries at the log's
    end are not delivered yet, once this chunk is in it. `pulses`: see thinning.py. `after`: where
    to restart with all of it consumed; of a chunk without entries, None. `tag`: of rows that were
    read from a table, who sees them; they are at `place`.
    """

    info: ChunkInfo
    visible: Bools | None
    closing: Int64s
    begin: int
    open_rows: int
    open_entries: int
    gtid_set: str
    held: int = 0
    trail: str = ""
    closed: Closed = NONE_CLOSED
    open: OpenTransaction | None = None
    pulses: Int64s | None = None
    tag: SnapshotTag | None = None
    place: EntryPosition | None = None
    after: EntryPosition | None = field(init=False)

    def __post_init__(self) -> None:
        count = len(self.info.entries)
        object.__setattr__(self, "after", self.resume_after(count - 1) if count else None)

    def resume_after(self, entry: int) -> EntryPosition:
        """Return where to restart with entries up to this one consumed: behind the transaction that
        it ends, or where its own begins, with so many rows and entries of that to skip."""
        if self.place is not None:
            return self.place
        info, entries = self.info, self.info.entries
        ended = self.closing[: np.searchsorted(self.closing, entry, side="right")]
        if len(ended):
            first = int(ended[-1]) + 1
            rows, inside = 0, entry + 1 - first
            if inside:
                position = int(begins(info, np.array([first]))[0])
            else:
                position = int(entries["position"][entry]) + int(entries["length"][entry])
        else:
            first, position = 0, self.begin
            rows, inside = self.open_rows, self.open_entries + entry + 1
        if first <= entry:
            rows += int(entries["rows"][first : entry + 1].sum())
        # A transaction counts as executed once an entry at or behind its end is consumed.
        # (They are numbered in the log's order, but some have no number.)
        executed = int(entries["transaction"][ended[-1]]) + 1 if len(ended) else 0
        if not executed:
            executed = int(entries["transaction"][ended].max(initial=-1)) + 1
        last = int(entries["transaction"][entry]) if inside else executed - 1
        return EntryPosition(
            info.head.journal_name,
            position,
            rows,
            gtid_set_after(self.gtid_set, info.gtids[:executed]),
            int(entries["timestamp"][entry]),
            inside,
            int(info.gtids["original_us"][last]) if last >= 0 else 0,
            self.closed.trail_at(self.trail, position),
            info.head.created_s,
            gtid_set_after("", info.gtids[last : last + 1]) if inside and last >= 0 else "",
        )

    def resumes(self) -> tuple[Int64s, Int64s, Int64s]:
        """Return what `resume_after` says of one entry for all: positions, rows, entries."""
        entries = self.info.entries
        index = np.arange(len(entries), dtype=np.int64)
        before = np.searchsorted(self.closing, index, side="right") - 1  # -1: none in this chunk
        behind = entries["position"].astype(np.int64) + entries["length"]
        total_rows = np.cumsum(entries["rows"].astype(np.int64))
        starts = self.closing + 1
        places = begins(self.info, starts[: np.searchsorted(starts, len(entries))])
        # (Behind the last entry of the chunk nothing begins: a place that is never asked for.)
        unused = np.zeros(len(starts) - len(places), np.int64)
        position = np.concatenate([places, unused, [self.begin]])[before]
        position[self.closing] = behind[self.closing]
        rows = total_rows - np.append(total_rows[self.closing], -self.open_rows)[before]
        inside = index - np.append(self.closing, -self.open_entries - 1)[before]
        return position, rows, inside


class TransactionBuffer:
    """One generation's order and transaction state. Chunks come in sequence, starting at `start`.

    `thin_empty_transactions` and `drop_transaction_entries`: see thinning.py. `transaction_size`:
    so many entries of an open transaction are held back (Canal: canal.instance.transaction.size);
    0 holds nothing back.
    """

    def __init__(
        self,
        start: EntryPosition,
        gtid_set: str = "",
        *,
        thin_empty_transactions: bool = True,
        drop_transaction_entries: bool = False,
        transaction_size: int = 0,
    ) -> None:
        self._journal_name = start.journal_name
        self._begin = start.position
        self._open_rows = 0
        self._open_entries = 0
        self._flush = Flush(transaction_size)
        self._gtid_set = gtid_set
        self._trail, self._folding = start.trail, Folding()
        self._open = OpenTransactions()
        self._sequence: int | None = None
        self._thinning = Thinning(thin_empty_transactions, drop_transaction_entries)

    @classmethod
    def configured(
        cls, config: InstanceConfig, start: EntryPosition, gtid_set: str
    ) -> TransactionBuffer:
        """Return the buffer of a generation that starts at `start`, before which `gtid_set` was
        executed."""
        return cls(
            start,
            gtid_set,
            thin_empty_transactions=config.store.thin_empty_transactions,
            drop_transaction_entries=config.filter.transaction_entry,
            transaction_size=config.store.transaction_size,
        )

    def add(self, info: ChunkInfo) -> LogChunk:
        """Take the next chunk. Raises InstanceError: a chunk is missing or comes twice."""
        head = info.head
        if self._sequence is not None and head.sequence != self._sequence + 1:
            raise InstanceError(
                f"chunk {head.sequence} follows chunk {self._sequence}: the pipeline lost its order"
            ).at(head.journal_name, head.position)
        self._sequence = head.sequence
        if head.journal_name != self._journal_name:
            # A transaction never spans two files: a new file starts at a boundary.
            self._journal_name = head.journal_name
            self._open_rows = self._open_entries = 0
        if not self._open_entries and len(info.entries):
            self._begin = int(begins(info, np.zeros(1, np.int64))[0])
        chunk = self._placed(info)
        self._trail = extended(self._trail, chunk.closed.digests)
        if chunk.after is not None:
            self._begin = chunk.after.position
            self._open_rows, self._open_entries = chunk.after.row, chunk.after.entry
            self._gtid_set = chunk.after.gtid
        return chunk

    def _placed(self, info: ChunkInfo) -> LogChunk:
        entries = info.entries
        closed = NONE_CLOSED
        if info.pieces is None:  # named by other means, which a trail would leave out
            self._trail, self._folding = "", Folding()
        else:
            closed = self._folding.add(info.pieces)
            info = replace(info, pieces=None)  # done with, and the log need not hold it
        closing = closing_entries(info)
        visible = self._thinning.visible(entries, info.thins)
        return LogChunk(
            info,
            visible,
            closing,
            self._begin,
            self._open_rows,
            self._open_entries,
            self._gtid_set,
            self._flush.held(entries),
            self._trail,
            closed,
            self._open.add(info, closing),
            self._thinning.pulses(entries, visible),
        )
