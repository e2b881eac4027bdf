"""Place rows that were read by a snapshot in the log, without those of which the log already has
newer ones.

A chunk of rows is read without a lock while the log goes on. `low` says which transactions were
certainly visible before it was read (what the server had executed), `high` how far the log went
when it had been read. So the rows have everything of `low`, nothing behind `high`, and of what lies
between nobody knows. The chunk is placed at the first boundary between transactions at which the
log has reached `high`; of its rows those are dropped whose key any row image has from the first
transaction beyond `low` up to there: their last change is in the log. All others are as they are
read until then. Keys are compared by their bytes alone, so neither collation nor order matters.

Pure: places, keys and what a `low` knows are the caller's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

Stretch = TypeVar("Stretch", contravariant=True)
LogPlace = TypeVar("LogPlace")
Keys = TypeVar("Keys")
_Stretch = TypeVar("_Stretch")
Table = tuple[str, str]
"""Schema and name."""


class Low(Protocol[Stretch]):
    """Transactions that were visible before a chunk was read."""

    def has(self, stretch: Stretch) -> bool:
        """Return whether all transactions of a stretch of the log were visible."""
        ...


@dataclass(frozen=True, slots=True)
class ReadRange(Generic[_Stretch, LogPlace]):
    """A chunk that was read: its table and its marks. `number` is the caller's."""

    number: int
    table: Table
    low: Low[_Stretch]
    high: LogPlace


@dataclass(frozen=True, slots=True)
class Placed(Generic[Keys]):
    """A chunk that goes to the log's present end, without its rows with a touched key: one that is
    in any of these."""

    number: int
    touched: tuple[Keys, ...]


class _Logged(Generic[_Stretch, Keys]):
    __slots__ = ("stretch", "touched")

    def __init__(self, stretch: _Stretch, touched: Mapping[Table, Keys]) -> None:
        self.stretch = stretch
        self.touched = touched


class SnapshotSequencer(Generic[_Stretch, LogPlace, Keys]):
    """The log since the reading began, as keys, and the chunks that wait for their place."""

    def __init__(self) -> None:
        self._logged: deque[_Logged[_Stretch, Keys]] = deque()
        self._waiting: list[ReadRange[_Stretch, LogPlace]] = []
        self._low: Low[_Stretch] | None = None  # of a chunk: all that are begun later see more
        self._begun: dict[int, Low[_Stretch] | None] = {}

    @property
    def waiting(self) -> int:
        """Number of chunks that have no place yet."""
        return len(self._waiting)

    @property
    def kept(self) -> Iterator[Keys]:
        """The log's keys that are kept."""
        return (keys for one in self._logged for keys in one.touched.values())

    def log(self, stretch: _Stretch, touched: Mapping[Table, Keys]) -> None:
        """Note that the log has grown by whole transactions: the keys of all their row images, by
        table."""
        self._logged.append(_Logged(stretch, touched))
        self._forget()

    def begin(self, number: int) -> None:
        """Note that a chunk is about to be read, before its low mark is taken."""
        self._begun[number] = self._low

    def read(self, rows: ReadRange[_Stretch, LogPlace]) -> None:
        """Note a chunk that was read. Chunks come in the order in which they were begun; of several
        that are read at once, a later one may have the lower marks."""
        del self._begun[rows.number]
        self._waiting.append(rows)
        self.seen(rows.low)

    def seen(self, low: Low[_Stretch]) -> None:
        """Note a low mark of now: every chunk that is begun later sees as much."""
        self._low = low
        self._forget()

    def _forget(self) -> None:
        """Forget what every chunk that has no place yet, and every later one, has seen."""
        lows = [self._low, *self._begun.values(), *(rows.low for rows in self._waiting)]
        while self._logged:
            first = self._logged[0].stretch
            if any(low is None or not low.has(first) for low in lows):
                break
            self._logged.popleft()

    def due(self, reached: LogPlace) -> list[Placed[Keys]]:
        """The chunks that go to the end of the log so far, which lies at `reached`, in the order in
        which they were read."""
        count = 0
        for rows in self._waiting:
            if not rows.high <= reached:  # type: ignore[operator]
                break
            count += 1
        found, self._waiting = self._waiting[:count], self._waiting[count:]
        return [Placed(rows.number, self._touched(rows)) for rows in found]

    def _touched(self, rows: ReadRange[_Stretch, LogPlace]) -> tuple[Keys, ...]:
        touched: list[Keys] = []
        unsure = False
        for one in self._logged:
            unsure = unsure or not rows.low.has(one.stretch)
            if unsure and rows.table in one.touched:
                touched.append(one.touched[rows.table])
        return tuple(touched)
