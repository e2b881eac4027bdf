"""Place rows that were read by a snapshot in the log, without those of which the log already has
newer ones.

A chunk of rows is read without a lock while the log goes on. `low` says which transactions were
certainly visible before it was read (what the server had executed), `high` how far the log went
when it had been read. So the rows have everything of `low`, nothing behind `high`, and of what lies
between nobody knows. The chunk is placed at the first boundary between transactions at which the
log has reached `high`; of its rows those are dropped whose key any row image has from the first
transaction beyond `low` up to there: their last change is in the log. All others are as they are
read until then. Keys are compared by their bytes alone, so neither collation nor order matters.

What is undone later is not newer. Of a transaction in doubt (XA: the log has its rows when it is
prepared) the log tells later what became of it: a chunk is placed without the rows that it has
touched, and those wait, as a chunk of the same marks, until it has ended.

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
    """A chunk whose rows go to the log's present end, but for those with a key in any of these.
    Rows whose key is `touched` go nowhere. Else, rows whose key is `doubted` stay, as transactions
    that may be undone yet have touched them; unless `done` says that there are none, the chunk
    comes again. `is_unsure`: a transaction that is undone has touched its table, and nobody knows
    what is left of it, so the chunk goes nowhere, and is to be read again."""

    number: int
    touched: tuple[Keys, ...]
    doubted: tuple[Keys, ...] = ()
    is_unsure: bool = False


@dataclass(slots=True)
class _Logged(Generic[_Stretch, Keys]):
    stretch: _Stretch
    touched: Mapping[Table, Keys]
    is_undone: bool
    doubt: str


@dataclass(slots=True)
class _Doubted(Generic[_Stretch, LogPlace]):
    """A chunk whose other rows are placed, and the transactions that it waits for."""

    rows: ReadRange[_Stretch, LogPlace]
    doubts: set[str]


class SnapshotSequencer(Generic[_Stretch, LogPlace, Keys]):
    """The log since the reading began, as keys, and the chunks that wait for their place."""

    def __init__(self) -> None:
        self._logged: deque[_Logged[_Stretch, Keys]] = deque()
        self._waiting: list[ReadRange[_Stretch, LogPlace]] = []
        self._doubted: dict[int, _Doubted[_Stretch, LogPlace]] = {}
        self._low: Low[_Stretch] | None = None  # of a chunk: all that are begun later see more
        self._begun: dict[int, Low[_Stretch] | None] = {}
        self._in_doubt: dict[str, list[_Logged[_Stretch, Keys]]] = {}

    @property
    def waiting(self) -> int:
        """Number of chunks with rows that have no place yet."""
        return len(self._waiting) + len(self._doubted)

    @property
    def kept(self) -> Iterator[Keys]:
        """The log's keys that are kept."""
        return (keys for one in self._logged for keys in one.touched.values())

    @property
    def has_doubts(self) -> bool:
        """Return whether a transaction is in doubt."""
        return bool(self._in_doubt)

    def log(
        self,
        stretch: _Stretch,
        touched: Mapping[Table, Keys],
        *,
        doubt: str = "",
        is_undone: bool = False,
    ) -> None:
        """Note that the log has grown by whole transactions: the keys of all their row images, by
        table. `doubt`: names one that is in doubt until `settle`; `is_undone`: one that is undone
        in part."""
        logged = _Logged(stretch, touched, is_undone, doubt)
        self._logged.append(logged)
        if doubt:
            self._in_doubt.setdefault(doubt, []).append(logged)
        self._forget()

    def settle(self, doubt: str, *, is_committed: bool) -> None:
        """Note what became of a transaction in doubt; nothing where there is none of this name."""
        for logged in self._in_doubt.pop(doubt, ()):
            logged.doubt = ""
            if not is_committed:
                logged.touched = {}
        for one in self._doubted.values():
            one.doubts.discard(doubt)

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
        unplaced = [*self._waiting, *(one.rows for one in self._doubted.values())]
        lows = [self._low, *self._begun.values(), *(rows.low for rows in unplaced)]
        while self._logged:
            first = self._logged[0].stretch
            if any(low is None or not low.has(first) for low in lows):
                break
            self._logged.popleft()

    def due(self, reached: LogPlace) -> list[Placed[Keys]]:
        """The chunks that go to the end of the log so far, which lies at `reached`: those whose
        doubts are settled, and others in the order in which they were read."""
        again = [one.rows for one in self._doubted.values() if not one.doubts]
        count = 0
        while count < len(self._waiting):
            if not self._waiting[count].high <= reached:  # type: ignore[operator]
                break
            count += 1
        due, self._waiting = [*again, *self._waiting[:count]], self._waiting[count:]
        return [self._placed(rows) for rows in due]

    def _placed(self, rows: ReadRange[_Stretch, LogPlace]) -> Placed[Keys]:
        sure, doubted = list[Keys](), list[Keys]()
        doubts, is_unsure = set[str](), False
        for one in self._meanwhile(rows):
            (doubted if one.doubt else sure).append(one.touched[rows.table])
            is_unsure = is_unsure or one.is_undone
            if one.doubt:
                doubts.add(one.doubt)
        self._doubted.pop(rows.number, None)
        if doubts:
            self._doubted[rows.number] = _Doubted(rows, doubts)
        return Placed(rows.number, tuple(sure), tuple(doubted), is_unsure)

    def done(self, number: int) -> None:
        """Note that a chunk that was due has no rows in doubt, or is read again."""
        self._doubted.pop(number, None)

    def _meanwhile(
        self, rows: ReadRange[_Stretch, LogPlace]
    ) -> Iterator[_Logged[_Stretch, Keys]]:
        """Yield what has touched a chunk's table, and may not have shown when it was read."""
        unsure = False
        for one in self._logged:
            unsure = unsure or not rows.low.has(one.stretch)
            if unsure and rows.table in one.touched:
                yield one
