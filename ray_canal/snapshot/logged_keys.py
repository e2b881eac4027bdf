"""The keys that the log touches, told to a sequencer with what became of their transactions."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ray_canal.log.snapshot_sequencer import SnapshotSequencer
from ray_canal.model.position import EntryPosition
from ray_canal.model.savepoints import follow
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


@dataclass(slots=True)
class _Touched:
    stretch: Stretch
    keys: Mapping[Name, Keys]
    is_undone: bool = False


class LoggedKeys:
    """Keeps what the open transaction has touched until its end says what became of it."""

    def __init__(self, sequencer: Sequencer, transactional: Container[Name]) -> None:
        """`transactional`: the tables in which ROLLBACK undoes everything."""
        self._sequencer = sequencer
        self._transactional = transactional
        self._open: list[_Touched] = []
        self._savepoints: dict[str, int] = {}
        """How much was open when each was set."""

    @property
    def is_inside(self) -> bool:
        """Return whether the open transaction has touched keys."""
        return bool(self._open)

    @property
    def kept(self) -> Iterator[Keys]:
        """All keys that are kept."""
        yield from self._sequencer.kept
        yield from (keys for one in self._open for keys in one.keys.values())

    def add(self, stretch: Stretch, found: Sequence[TouchedKeys]) -> None:
        """Take what the next stretch of the log touches."""
        for run in found:
            if run.keys:
                self._open.append(_Touched(stretch, run.keys))
            if run.savepoint is not None:
                # One from before the reading: all that is kept came behind it.
                since = follow(self._savepoints, run.savepoint, len(self._open), 0)
                if since is not None:
                    self._undo(self._open[since:])
            if run.outcome:
                self._ended(run.outcome, run.xa_id)

    def _undo(self, touched: Sequence[_Touched]) -> None:
        for one in touched:
            one.keys = {n: keys for n, keys in one.keys.items() if n not in self._transactional}
            one.is_undone = True

    def _ended(self, outcome: str, xa_id: str) -> None:
        if outcome in (COMMIT_PREPARED, ROLLBACK_PREPARED):
            self._sequencer.settle(xa_id, is_committed=outcome == COMMIT_PREPARED)
        if outcome == ROLLED_BACK:
            self._undo(self._open)
        doubt = xa_id if outcome == PREPARED else ""
        for one in self._open:
            self._sequencer.log(one.stretch, one.keys, doubt=doubt, is_undone=one.is_undone)
        self._open = []
        self._savepoints = {}
