"""Rows that may not count: of XA transactions, and those that ROLLBACK undoes and the log has.

The server writes an XA transaction's rows when it is prepared, and XA COMMIT or XA ROLLBACK behind
it, perhaps days later. So rows are delivered before anybody knows. Until then, and behind a
rollback, they are in no SELECT. Nothing else changes these rows in between: they are locked. Rows
that ROLLBACK TO SAVEPOINT has undone are told with the end of their transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ray_canal.errors import ConfigError
from ray_canal.model.position import journal_key
from ray_canal.model.savepoints import UndoneRows
from ray_canal.views.row_places import TIMELINE, RowPlace
from ray_canal.views.transactions import (
    COMMIT_PREPARED,
    COMMITTED,
    PREPARED,
    ROLLBACK_PREPARED,
    ROLLED_BACK,
    with_undone_rows,
)

_TRANSACTION = "transaction"


class Named(NamedTuple):
    """A transaction. `timeline`: None: its name is a GTID, which is the same on every server."""

    timeline: int | None
    transaction: str


class Undone(NamedTuple):
    """Rows of a transaction that ROLLBACK TO has undone: those whose ids are in `rows`."""

    timeline: int
    transaction: str
    rows: UndoneRows


class Outcome(NamedTuple):
    """Outcome of a transaction, at its end."""

    place: RowPlace
    named: Named
    outcome: str
    xa_id: str
    rows: int  # of tables that the subscriber sees
    undone: tuple[UndoneRows, ...] = ()


def outcomes(transactions: pa.RecordBatch | None) -> list[Outcome]:
    """Return the outcomes of those in a message's `transactions` that have not just been committed
    as a whole, in log order."""
    if transactions is None or not transactions.num_rows:
        return []
    is_other = pc.not_equal(transactions.column("outcome"), COMMITTED)
    others = transactions.filter(pc.or_(is_other, with_undone_rows(transactions)))
    return [
        Outcome(
            RowPlace(
                row["timeline"],
                journal_key(row["journal_name"])[1],
                row["end"],
                0,
                row["journal_name"],
            ),
            Named(None if row["gtid"] else row["timeline"], row["transaction"]),
            row["outcome"],
            row["xa_id"] or "",
            row["rows"],
            tuple(UndoneRows(**one) for one in row["undone"]),
        )
        for row in others.to_pylist()
    ]


@dataclass
class Prepared:
    """Which transactions do not count, by what messages told. `open`: by XA id, those of which it
    is not known yet; `gone`: those that were rolled back; `undone`: rows of others that were."""

    open: dict[str, Named] = field(default_factory=dict)
    gone: set[Named] = field(default_factory=set)
    undone: set[Undone] = field(default_factory=set)

    def add(self, message: Any) -> None:
        """Take the transactions that end in a message; messages come in their order, and may come
        again."""
        self.take(outcomes(message.transactions))

    def take(self, found: Iterable[Outcome]) -> None:
        for one in found:
            if one.rows:
                self.undone |= {
                    Undone(one.place.timeline, one.named.transaction, rows) for rows in one.undone
                }
            if one.outcome == PREPARED:
                self.gone.discard(one.named)
                self.open.pop(one.xa_id, None)
                if one.rows:
                    self.open[one.xa_id] = one.named
            elif one.outcome == COMMIT_PREPARED:
                self.open.pop(one.xa_id, None)
            elif one.outcome == ROLLBACK_PREPARED:
                prepared = self.open.pop(one.xa_id, None)
                self.gone |= set() if prepared is None else {prepared}
            elif one.outcome == ROLLED_BACK and one.rows:
                self.gone.add(one.named)

    @property
    def uncommitted(self) -> frozenset[Named | Undone]:
        """The transactions, and the rows of others, that are in no SELECT now."""
        return frozenset(self.open.values()) | self.gone | self.undone


def committed(frame: DataFrame, uncommitted: Collection[Named | Undone]) -> DataFrame:
    """The changes that are none of these."""
    if not uncommitted:
        return frame
    if _TRANSACTION not in frame.columns:
        raise ConfigError("the frame does not tell transactions: it has no column `transaction`")
    whole = [one for one in uncommitted if isinstance(one, Named)]
    frame = _without(frame, [one for one in uncommitted if isinstance(one, Undone)])
    of_this = [one.transaction for one in whole if one.timeline is None]
    hidden = F.col(_TRANSACTION).isin(of_this) if of_this else F.lit(False)
    by_timeline: dict[int, list[str]] = {}
    for one in whole:
        if one.timeline is not None:
            by_timeline.setdefault(one.timeline, []).append(one.transaction)
    for timeline, names in by_timeline.items():
        here = F.col(_TRANSACTION).isin(names)
        hidden = hidden | (
            here & (F.col(TIMELINE) == timeline) if TIMELINE in frame.columns else here
        )
    return frame.where(~F.coalesce(hidden, F.lit(False)))


def _without(frame: DataFrame, undone: Collection[Undone]) -> DataFrame:
    """Return the rows that are not among these, of which there may be thousands."""
    if not undone:
        return frame
    if missing := {"position", "row"} - set(frame.columns):
        raise ConfigError(f"the frame does not tell rows: it has no column {', '.join(missing)}")
    columns = [TIMELINE, _TRANSACTION, *UndoneRows._fields]
    kinds = ", ".join(f"{n} {'string' if n == _TRANSACTION else 'bigint'}" for n in columns)
    values = [(one.timeline, one.transaction, *one.rows) for one in undone]
    rows, gone = frame.alias("rows"), frame.sparkSession.createDataFrame(values, kinds)

    def is_before(position: str, row: str) -> Column:
        here, other = F.col("rows.position"), F.col(f"gone.{position}")
        return (here < other) | ((here == other) & (F.col("rows.row") < F.col(f"gone.{row}")))

    alike = [n for n in (TIMELINE, _TRANSACTION) if n in frame.columns]
    is_theirs = [F.col(f"rows.{name}") == F.col(f"gone.{name}") for name in alike]
    is_in = ~is_before("begin", "begin_row") & is_before("end", "end_row")
    return rows.join(F.broadcast(gone).alias("gone"), [*is_theirs, is_in], "left_anti")
