"""The transaction buffer: puts decoded chunks into transactions, in order (Canal: EventTransactionBuffer).

For every entry it works out where a subscriber that has consumed it resumes: behind the last complete
transaction, plus the rows of the open one. It also thins empty transactions, as Canal's sink does. It sees
infos only, never a payload, and loops over no entry in Python.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ray_canal.binlog.chunk import (
    EVENT_IN_TRANSACTION,
    GTID_MARIADB,
    GTID_MYSQL,
    ChunkInfo,
)
from ray_canal.errors import InstanceError
from ray_canal.protocol.gtid import GtidSet, MariadbGtid
from ray_canal.protocol.position import EntryPosition

BEGIN, ROWDATA, END = 1, 2, 3
THIN_EVERY = 8192
"""Of empty transactions one in so many passes, so that cursors move on (Canal: EntryEventSink)."""

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LogChunk:
    """A chunk as the log keeps it: its info, which entries are delivered at all, where each resumes.

    `resume_position` and `resume_row` run parallel to `info.entries`: a subscriber that has consumed
    entry k restarts at (journal, resume_position[k]) and skips resume_row[k] rows. `completed[k]`: how many
    of the chunk's GTIDs are executed when everything up to entry k's resume position is.
    """

    info: ChunkInfo
    visible: npt.NDArray[np.bool_] | None
    resume_position: Ints
    resume_row: Ints
    completed: Ints
    gtid_set: str  # executed before the chunk's first transaction

    def resume_after(self, entry: int) -> EntryPosition:
        """Where to restart with entries up to this one consumed."""
        return EntryPosition(
            self.info.head.journal_name,
            int(self.resume_position[entry]),
            int(self.resume_row[entry]),
            gtid_set_after(self.gtid_set, self.info.gtids[: int(self.completed[entry])]),
            int(self.info.entries["timestamp"][entry]),
        )


def gtid_set_after(before: str, gtids: npt.NDArray[np.void]) -> str:
    """The executed set after these transactions; unchanged by anonymous ones."""
    if not len(gtids):
        return before
    if (gtids["flavor"] == GTID_MARIADB).any():
        position = MariadbGtid.parse(before)
        last = {int(g["domain"]): g for g in gtids if g["flavor"] == GTID_MARIADB}
        for domain, gtid in last.items():
            position.add(domain, int(gtid["server_id"]), int(gtid["gno"]))
        return str(position)
    named = gtids[gtids["flavor"] == GTID_MYSQL]
    if not len(named):
        return before
    executed = GtidSet.parse(before)
    # Runs of one source with rising numbers are added as one range.
    same = (named["sid"][1:] == named["sid"][:-1]).all(axis=1) & (
        named["tag"][1:] == named["tag"][:-1]
    )
    breaks = np.flatnonzero(~(same & (np.diff(named["gno"]) == 1))) + 1
    for run in np.split(named, breaks):
        executed.add_range(
            run["sid"][0].tobytes(),
            int(run["gno"][0]),
            int(run["gno"][-1]),
            run["tag"][0].decode("ascii"),
        )
    return str(executed)


class TransactionBuffer:
    """One generation's order and transaction state. Chunks come in sequence, starting at `start`."""

    def __init__(
        self, start: EntryPosition, gtid_set: str = "", *, thin_empty_transactions: bool = False
    ) -> None:
        self._journal_name = start.journal_name
        self._boundary = start.position
        self._open_rows = 0
        self._gtid_set = gtid_set
        self._sequence: int | None = None
        self._thin = thin_empty_transactions
        self._thinned = 0

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
            self._journal_name, self._boundary, self._open_rows = (
                head.journal_name,
                head.position,
                0,
            )
        chunk = self._placed(info)
        self._advance(chunk)
        return chunk

    def _placed(self, info: ChunkInfo) -> LogChunk:
        entries = info.entries
        count = len(entries)
        index = np.arange(count, dtype=np.int64)
        ends = _closes(entries)
        last_end = np.maximum.accumulate(np.where(ends, index, -1)) if count else index
        behind = entries["position"].astype(np.int64) + entries["length"]
        total_rows = np.cumsum(entries["rows"].astype(np.int64))
        padded_rows = np.append(total_rows, -self._open_rows)  # index -1: no end in this chunk
        padded_behind = np.append(behind, self._boundary)
        # A transaction counts as executed once an entry at or behind its end is consumed.
        transactions = np.append(entries["transaction"].astype(np.int64) + 1, 0)
        return LogChunk(
            info,
            self._visible(entries) if self._thin else None,
            padded_behind[last_end],
            total_rows - padded_rows[last_end],
            np.maximum.accumulate(transactions[last_end]) if count else index,
            self._gtid_set,
        )

    def _advance(self, chunk: LogChunk) -> None:
        if not len(chunk.info.entries):
            return
        self._boundary = int(chunk.resume_position[-1])
        self._open_rows = int(chunk.resume_row[-1])
        completed = int(chunk.completed[-1])
        self._gtid_set = gtid_set_after(self._gtid_set, chunk.info.gtids[:completed])

    def _visible(self, entries: npt.NDArray[np.void]) -> npt.NDArray[np.bool_] | None:
        """Without BEGIN-END pairs that have nothing between them; a part of them passes."""
        empty = (entries["kind"][:-1] == BEGIN) & (entries["kind"][1:] == END)
        begins = np.flatnonzero(empty)
        if not len(begins):
            return None
        numbers = self._thinned + np.arange(1, len(begins) + 1)
        self._thinned = int(numbers[-1])
        dropped = begins[numbers % THIN_EVERY != 0]
        visible = np.ones(len(entries), np.bool_)
        visible[dropped] = visible[dropped + 1] = False
        return visible


def _closes(entries: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    """Which entries end a transaction: END, and what stands alone (a DDL)."""
    alone = (entries["kind"] == ROWDATA) & (entries["flags"] & EVENT_IN_TRANSACTION == 0)
    closes: npt.NDArray[np.bool_] = (entries["kind"] == END) | alone
    return closes

