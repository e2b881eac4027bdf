"""The keys that the log touches, told to a sequencer with what became of their transactions."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence

from ray_canal.log.snapshot_sequencer import SnapshotSequencer
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


class LoggedKeys:
    """Keeps what the open transaction has touched until its end says what became of it."""

    def __init__(self, sequencer: Sequencer, transactional: Container[Name]) -> None:
        """`transactional`: the tables in which ROLLBACK undoes everything."""
        self._sequencer = sequencer
        self._transactional = transactional
        self._open: list[tuple[Stretch, Mapping[Name, Keys]]] = []

    @property
    def is_inside(self) -> bool:
        """Return whether the open transaction has touched keys."""
        return bool(self._open)

    @property
    def kept(self) -> Iterator[Keys]:
        """All keys that are kept."""
        yield from self._sequencer.kept
        yield from (keys for _, touched in self._open for keys in touched.values())

    def add(self, stretch: Stretch, found: Sequence[TouchedKeys]) -> None:
        """Take what the next stretch of the log touches."""
        for run in found:
            if run.keys:
                self._open.append((stretch, run.keys))
            if run.outcome:
                self._ended(run.outcome, run.xa_id)

    def _ended(self, outcome: str, xa_id: str) -> None:
        if outcome in (COMMIT_PREPARED, ROLLBACK_PREPARED):
            self._sequencer.settle(xa_id, is_committed=outcome == COMMIT_PREPARED)
        doubt, is_undone = xa_id if outcome == PREPARED else "", outcome == ROLLED_BACK
        for stretch, touched in self._open:
            if is_undone:
                touched = {n: keys for n, keys in touched.items() if n not in self._transactional}
            self._sequencer.log(stretch, touched, doubt=doubt, is_undone=is_undone)
        self._open = []
