"""The transaction buffer: puts decoded chunks into transactions, in order (Canal:
EventTransactionBuffer).

For every entry it works out where a subscriber that has consumed it resumes: behind the last
complete transaction, plus the rows and entries of the open one. It holds an open transaction back
as long as Canal's buffer does (flush.py), and thins transactions, as Canal's sink does
(thinning.py). It sees infos only, never a payload, and loops over no entry in Python.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ray_canal.binlog.chunk import (
    EVENT_IN_TRANSACTION,
    ChunkInfo,
)
from ray_canal.binlog.executed import gtid_set_after
from ray_canal.binlog.trail import NONE_CLOSED, Closed, Folding, extended
from ray_canal.errors import InstanceError
from ray_canal.protocol.position import EntryPosition
from ray_canal.store.flush import END, ROWDATA, Flush
from ray_canal.store.thinning import Thinning

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LogChunk:
    """A chunk as the log keeps it: its info, which entries are delivered at all, where each
    resumes.

    `resume_position`, `resume_row` and `resume_entry` run parallel to `info.entries`: a subscriber
    that has consumed entry k restarts at (journal, resume_position[k]) and skips resume_row[k] rows
    and resume_entry[k] entries. `completed[k]`: how many of the chunk's GTIDs are executed when
    everything up to entry k's resume position is. `held`: so many entries at the log's end are not
    delivered yet, once this chunk is in it. `trail`: of the chunk's beginning; `closed`: the
    transactions that it gets in this chunk.
    """

    info: ChunkInfo
    visible: npt.NDArray[np.bool_] | None
    resume_position: Ints
    resume_row: Ints
    resume_entry: Ints
    completed: Ints
    gtid_set: str  # executed before the chunk's first transaction
    held: int = 0
    trail: str = ""
    closed: Closed = NONE_CLOSED

    def resume_after(self, entry: int) -> EntryPosition:
        """Where to restart with entries up to this one consumed."""
        completed = int(self.completed[entry])
        gtids = self.info.gtids[:completed]
        inside = bool(self.resume_row[entry] or self.resume_entry[entry])
        last = int(self.info.entries["transaction"][entry]) if inside else completed - 1
        return EntryPosition(
            self.info.head.journal_name,
            int(self.resume_position[entry]),
            int(self.resume_row[entry]),
            gtid_set_after(self.gtid_set, gtids),
            int(self.info.entries["timestamp"][entry]),
            int(self.resume_entry[entry]),
            int(self.info.gtids["original_us"][last]) if last >= 0 else 0,
            self.closed.trail_at(self.trail, int(self.resume_position[entry])),
        )


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
        self._boundary = start.position
        self._open_rows = 0
        self._open_entries = 0
        self._flush = Flush(transaction_size)
        self._gtid_set = gtid_set
        self._trail, self._folding = start.trail, Folding()
        self._sequence: int | None = None
        self._thinning = Thinning(thin_empty_transactions, drop_transaction_entries)

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
            self._journal_name, self._boundary = head.journal_name, head.position
            self._open_rows = self._open_entries = 0
        chunk = self._placed(info)
        self._advance(chunk)
        return chunk

    def _placed(self, info: ChunkInfo) -> LogChunk:
        entries = info.entries
        count = len(entries)
        index = np.arange(count, dtype=np.int64)
        ends = closes(entries)
        last_end = np.maximum.accumulate(np.where(ends, index, -1)) if count else index
        behind = entries["position"].astype(np.int64) + entries["length"]
        total_rows = np.cumsum(entries["rows"].astype(np.int64))
        padded_rows = np.append(total_rows, -self._open_rows)  # index -1: no end in this chunk
        padded_behind = np.append(behind, self._boundary)
        padded_index = np.append(index, -self._open_entries - 1)
        closed = NONE_CLOSED
        if info.pieces is None:  # named by other means, which a trail would leave out
            self._trail, self._folding = "", Folding()
        else:
            closed = self._folding.add(info.pieces)
            info = replace(info, pieces=None)  # done with, and the log need not hold it
        # A transaction counts as executed once an entry at or behind its end is consumed.
        transactions = np.append(entries["transaction"].astype(np.int64) + 1, 0)
        return LogChunk(
            info,
            self._thinning.visible(entries),
            padded_behind[last_end],
            total_rows - padded_rows[last_end],
            index - padded_index[last_end],
            np.maximum.accumulate(transactions[last_end]) if count else index,
            self._gtid_set,
            self._flush.held(entries),
            self._trail,
            closed,
        )

    def _advance(self, chunk: LogChunk) -> None:
        self._trail = extended(self._trail, chunk.closed.digests)
        if not len(chunk.info.entries):
            return
        self._boundary = int(chunk.resume_position[-1])
        self._open_rows = int(chunk.resume_row[-1])
        self._open_entries = int(chunk.resume_entry[-1])
        completed = int(chunk.completed[-1])
        self._gtid_set = gtid_set_after(self._gtid_set, chunk.info.gtids[:completed])


def closes(entries: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    """Which entries end a transaction: END, and a statement that stands alone (a DDL).

    Of several entries that one event makes (DROP TABLE a, b), or one GTID names, the last one ends
    it.
    """
    alone = (entries["kind"] == ROWDATA) & (entries["flags"] & EVENT_IN_TRANSACTION == 0)
    # Rows without a BEGIN before them (XA) are open until something ends them: one must not resume
    # between the row events of one statement.
    alone &= entries["rows"] == 0
    position, transaction = entries["position"], entries["transaction"]
    goes_on = position[1:] == position[:-1]
    goes_on |= (transaction[1:] == transaction[:-1]) & (transaction[1:] >= 0)
    alone[:-1] &= ~goes_on
    found: npt.NDArray[np.bool_] = alone | (entries["kind"] == END)
    return found
