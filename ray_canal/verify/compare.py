"""Join the row events of both decoders by file and position, and compare row by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from ray_canal.errors import CanalError
from ray_canal.filter import TableFilter
from ray_canal.model.table_meta import TableMeta
from ray_canal.types import mysql
from ray_canal.verify.rows import SIDES, Image, OurEvent, OurRow, TheirEvent, TheirRow
from ray_canal.verify.values import equal, not_compared, opinion, plain, type_family

_OLD_TIMES = frozenset({mysql.TIMESTAMP, mysql.TIME, mysql.DATETIME})
_OLD_FRACTION = "old times with a fraction, unknown to mysql-replication"
_TEXT_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that the decoders disagree about. `what` is a column's name with its side, or what
    else differs; `ours` and `theirs` are texts."""

    journal_name: str
    position: int
    row: int
    table: str
    what: str
    ours: str
    theirs: str

    def __str__(self) -> str:
        place = f"{self.journal_name}:{self.position} row {self.row} {self.table}"
        return f"{place} {self.what}: ray_canal {self.ours}, mysql-replication {self.theirs}"


@dataclass(slots=True)
class Report:
    """The result of a comparison. `values` counts NULLs, too; `not_compared` counts values by
    column type and reason; `details` has the first `details_max` of `differences`. `ended` says
    what ended the comparison before the log's end, `failure` what ray_canal could not decode."""

    details_max: int = 20
    events: int = 0
    rows: int = 0
    values: int = 0
    differences: int = 0
    not_compared: Counter[tuple[str, str]] = field(default_factory=Counter)
    details: list[Difference] = field(default_factory=list)
    ended: str = ""
    failure: str = ""

    @property
    def agrees(self) -> bool:
        """Return whether nothing differs and ray_canal decoded everything."""
        return not self.differences and not self.failure

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON-able values."""
        return {
            "events": self.events,
            "rows": self.rows,
            "values": self.values,
            "differences": self.differences,
            "details": [
                {name: getattr(each, name) for name in Difference.__slots__}
                for each in self.details
            ],
            "not_compared": [
                {"type": kind, "reason": reason, "values": count}
                for (kind, reason), count in sorted(self.not_compared.items())
            ],
            "ended": self.ended,
            "failure": self.failure,
        }


def never() -> str:
    """Go on to the log's end."""
    return ""


class Comparison:
    """Compares two streams of row events, of the same files in the same order."""

    def __init__(
        self,
        report: Report,
        journal_names: Sequence[str],
        tables: TableFilter,
        ended: Callable[[], str] = never,
    ) -> None:
        """`ended` is asked between events; a text from it ends the comparison and says why."""
        self._report = report
        self._order = {name: number for number, name in enumerate(journal_names)}
        self._tables = tables
        self._ended = ended

    def run(self, ours: Iterable[OurEvent], theirs: Iterable[TheirEvent]) -> None:
        """Compare all events. What ray_canal cannot decode becomes the report's `failure`."""
        our_events, their_events = iter(ours), iter(theirs)
        try:
            mine, other = next(our_events, None), next(their_events, None)
            while mine is not None or other is not None:
                self._report.ended = self._ended()
                if self._report.ended:
                    return
                if other is None or (mine is not None and self._place(mine) < self._place(other)):
                    assert mine is not None
                    self._missing(mine)
                    mine = next(our_events, None)
                elif mine is None or self._place(other) < self._place(mine):
                    self._surplus(other)
                    other = next(their_events, None)
                else:
                    self._event(mine, other)
                    mine, other = next(our_events, None), next(their_events, None)
        except CanalError as error:
            self._report.failure = f"{type(error).__name__}: {error}"

    def _place(self, event: OurEvent | TheirEvent) -> tuple[int, int]:
        return self._order[event.journal_name], event.position

    def _differs(
        self, event: OurEvent | TheirEvent, row: int, table: str, what: str, *sides: Any
    ) -> None:
        self._report.differences += 1
        if len(self._report.details) < self._report.details_max:
            ours, theirs = (_shown(side) for side in sides)
            self._report.details.append(
                Difference(
                    journal_name=event.journal_name,
                    position=event.position,
                    row=row,
                    table=table,
                    what=what,
                    ours=ours,
                    theirs=theirs,
                )
            )

    def _missing(self, event: OurEvent) -> None:
        table = event.rows[0].meta.full_name
        self._differs(event, 0, table, "row event", _Text(f"{len(event.rows)} rows"), _Text("none"))

    def _surplus(self, event: TheirEvent) -> None:
        if event.rows and self._tables.admits(event.schema, event.table):
            table, rows = f"{event.schema}.{event.table}", _Text(f"{len(event.rows)} rows")
            self._differs(event, 0, table, "row event", _Text("none"), rows)

    def _event(self, ours: OurEvent, theirs: TheirEvent) -> None:
        self._report.events += 1
        first = ours.rows[0]
        if theirs.columns and any(c.type_code in _OLD_TIMES and c.fraction
                                  for c in first.meta.columns):  # fmt: skip
            self._skip(ours.rows, _OLD_FRACTION)
            return
        if theirs.columns and not self._same_table(ours, first, theirs):
            return
        for number, (mine, other) in enumerate(zip_longest(ours.rows, theirs.rows)):
            if other is None and theirs.reason:
                self._skip(ours.rows[number:], theirs.reason)
                return
            if mine is None or other is None:
                counts = (_Text(f"{len(each.rows)} rows") for each in (ours, theirs))
                self._differs(ours, number, first.meta.full_name, "rows", *counts)
                return
            self._row(ours, mine, theirs, other)

    def _same_table(self, ours: OurEvent, first: OurRow, theirs: TheirEvent) -> bool:
        """Compare what all rows of an event have in common; False: its rows cannot be compared."""
        meta = first.meta
        before = self._report.differences
        names = [column.name for column in meta.columns]
        their_names = [c.name or name for c, name in zip(theirs.columns, names, strict=False)]
        told = [
            ("event type", first.event_type, theirs.event_type),
            ("schema", meta.schema, theirs.schema),
            ("table", meta.table, theirs.table),
            ("column count", len(names) + meta.hidden, len(theirs.columns)),
            ("column names", names, their_names),
        ]
        for what, mine, other in told:
            if mine != other:
                self._differs(ours, first.number, meta.full_name, what, mine, other)
        return self._report.differences == before

    def _skip(self, rows: Iterable[OurRow], reason: str) -> None:
        for row in rows:
            for image in (row.before, row.after):
                if image is not None:
                    self._report.not_compared.update(
                        (type_family(column), reason) for column in row.meta.columns
                    )

    def _row(self, event: OurEvent, ours: OurRow, theirs: TheirEvent, other: TheirRow) -> None:
        self._report.rows += 1
        meta = ours.meta
        for side, mine, opposite in zip(SIDES, ours[3:], other[:2], strict=True):
            if (mine is None) is not (opposite is None):
                shown = [_Text("none" if image is None else "an image") for image in
                         (mine, opposite)]  # fmt: skip
                self._differs(event, ours.number, meta.full_name, f"{side} image", *shown)
            elif mine is not None:
                self._image(event, ours, theirs, other.irregular, side, mine, opposite)

    def _image(
        self,
        event: OurEvent,
        row: OurRow,
        theirs: TheirEvent,
        irregular: frozenset[str],
        side: str,
        mine: tuple[Any, ...],
        opposite: Image,
    ) -> None:
        meta: TableMeta = row.meta
        cells = zip(meta.columns, theirs.columns, mine, opposite or (), strict=False)
        for column, their_column, value, other in cells:
            is_irregular = column.name in irregular
            reason = not_compared(column, their_column, value, other, is_irregular)
            if reason:
                self._report.not_compared[type_family(column), reason] += 1
                continue
            self._report.values += 1
            found = opinion(column, their_column, other, value)
            if not equal(plain(column, value), found):
                what = f"{side}.{column.name}"
                self._differs(event, row.number, meta.full_name, what, value, found)


class _Text(str):
    """A text that is shown without quotes."""

    __slots__ = ()


def _shown(value: Any) -> str:
    text = str(value) if isinstance(value, _Text) else repr(value)
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}…"
