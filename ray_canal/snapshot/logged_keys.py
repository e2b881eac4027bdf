"""The keys that the log touches, told to a sequencer with what became of their transactions.

Where XA transactions of a table follow one another without a pause, a chunk would wait for more and
more of them. After a while it is placed without the rows that are in doubt; if one of those is
rolled back then, the table has to be read again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ray_canal.errors import TableMetaMismatch
from ray_canal.log.snapshot_sequencer import Placed, SnapshotSequencer
from ray_canal.model.position import EntryPosition
from ray_canal.schema.names import Name
from ray_canal.snapshot.changes import TouchedKeys
from ray_canal.snapshot.key_numbers import Keys
from ray_canal.snapshot.marks import Stretch
from ray_canal.views.transactions import (
    COMMIT_PREPARED,
    PREPARED,
    ROLLBACK_PREPARED,
    ROLLED_BACK,
)

Sequencer = SnapshotSequencer[Stretch, EntryPosition, Keys]

PATIENCE_S = 5.0
"""So long the first chunk waits for the end of XA transactions; later ones: _HURRIED_S."""
_HURRIED_S = 0.2


class LoggedKeys:
    """Keeps what the open transaction has touched until its end says what became of it."""

    def __init__(self, sequencer: Sequencer) -> None:
        self._sequencer = sequencer
        self._open: list[tuple[Stretch, Mapping[Name, Keys]]] = []
        self._doubted: dict[str, set[Name]] = {}  # tables that lack rows of these XA ids
        self._patience_s = PATIENCE_S
        self._held_since_s: float | None = None
        self.undone: set[Name] = set()
        """Tables that lack rows of XA transactions that were rolled back."""

    @property
    def is_inside(self) -> bool:
        """Return whether the open transaction has touched keys."""
        return bool(self._open)

    @property
    def kept(self) -> Iterator[Keys]:
        """All keys that are kept."""
        yield from self._sequencer.kept
        yield from (keys for _, touched in self._open for keys in touched.values())

    @property
    def lacks_rows(self) -> bool:
        """Return whether chunks were placed without rows that are in doubt still."""
        return bool(self._doubted)

    def add(self, stretch: Stretch, found: Sequence[TouchedKeys]) -> None:
        """Take what the next stretch of the log touches. Raises TableMetaMismatch: `undone`
        is to be read again."""
        for run in found:
            if run.keys:
                self._open.append((stretch, run.keys))
            if run.outcome:
                self._ended(run.outcome, run.xa_id)
        if self.undone:
            names = ", ".join(sorted(".".join(name) for name in self.undone))
            raise TableMetaMismatch(
                f"{names}: XA transactions changed rows without a pause while they were read, so "
                "those were taken for committed, and one was rolled back; read it again"
            )

    def due(self, reached: EntryPosition) -> list[Placed[Keys]]:
        """Return what the sequencer does; without rows in doubt where they have held up a chunk for
        long."""
        now_s = time.monotonic()
        if not self._sequencer.is_held_up(reached):
            self._held_since_s = None
            return self._sequencer.due(reached)
        self._held_since_s = self._held_since_s or now_s
        in_doubt = now_s - self._held_since_s > self._patience_s
        if in_doubt:
            self._patience_s = _HURRIED_S
        return self._sequencer.due(reached, in_doubt=in_doubt)

    def dropped(self, table: Name, doubts: Iterable[str]) -> None:
        """Note that a chunk of a table was placed without rows of these XA transactions."""
        for doubt in doubts:
            self._doubted.setdefault(doubt, set()).add(table)

    def _ended(self, outcome: str, xa_id: str) -> None:
        if outcome in (COMMIT_PREPARED, ROLLBACK_PREPARED):
            self._sequencer.settle(xa_id, is_committed=outcome == COMMIT_PREPARED)
            lacking = self._doubted.pop(xa_id, set())
            if outcome == ROLLBACK_PREPARED:
                self.undone |= lacking
        doubt = xa_id if outcome == PREPARED else ""
        for stretch, touched in self._open:
            self._sequencer.log(
                stretch, touched, doubt=doubt, is_undone=outcome == ROLLED_BACK
            )
        self._open = []
