"""Which changes still count for a table: those since it was emptied, dropped or made, and before
that those of the table that it was renamed from."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ray_canal.errors import ConfigError, UnsupportedEvent
from ray_canal.model.position import journal_key
from ray_canal.model.table_event import ERASE, RENAME, STATEMENT, TRUNCATE
from ray_canal.spark.frames import NOTES, Statements
from ray_canal.spark.place import is_above
from ray_canal.spark.versions import in_one_schema
from ray_canal.views.row_places import TIMELINE, RowPlace

_SQL, _RENAMED_FROM, _ = NOTES
ENDS = (TRUNCATE, ERASE, RENAME)
"""Changes of a table as a whole behind which no row from before is left."""


class _Event(NamedTuple):
    place: RowPlace
    kind: str
    sql: str
    renamed_from: str


def surviving(
    frame: DataFrame,
    others: Mapping[str, DataFrame],
    statements: Statements,
    *,
    tells_lacking: bool = False,
) -> DataFrame:
    """The changes of rows in `frame` that count, with those of tables in `others` that it was
    renamed from. `tells_lacking`: as of `in_one_schema`. Raises ConfigError: such a table is not
    there; UnsupportedEvent: rows were changed by a statement of which the log has the text
    alone."""
    if _SQL not in frame.columns:
        return frame
    found = _segments(frame, None, others, statements)
    shown = in_one_schema(found[::-1], tells_lacking=tells_lacking)
    return reduce(DataFrame.unionByName, shown)


def _segments(
    frame: DataFrame,
    before: RowPlace | None,
    others: Mapping[str, DataFrame],
    statements: Statements,
) -> list[DataFrame]:
    """Newest first: changes of rows that count of those before a place."""
    rows = frame
    if before is not None:
        rows = rows.where(~is_above(before, frame.columns) & ~_is_at(before, frame.columns))
    if _SQL not in frame.columns:
        return [rows]
    events = [e for e in table_events(frame) if before is None or e.place.key < before.key]
    ends = [event for event in events if event.kind in ENDS]
    last = ends[-1] if ends else None
    behind = [e for e in events if last is None or e.place.key > last.place.key]
    if statements == "error" and behind:
        raise UnsupportedEvent(
            f"at {behind[0].place} rows were changed by a statement of which the log has the text "
            f'alone: {behind[0].sql[:200]}; the table must be read again, or statements="ignore"'
        )
    rows = rows.where(~F.col("event_type").isin(*ENDS, STATEMENT)).drop(*NOTES)
    if last is None:
        return [rows]
    found = [rows.where(is_above(last.place, frame.columns))]
    if last.kind == RENAME:
        if last.renamed_from not in others:
            raise ConfigError(
                f"at {last.place} the table was renamed from {last.renamed_from}, whose changes "
                "are not in `others`: subscribe to it, too, or begin with the table's rows as they "
                "are now"
            )
        found += _segments(others[last.renamed_from], last.place, others, statements)
    return found


def table_events(frame: DataFrame) -> list[_Event]:
    """Changes of the table as a whole, in order."""
    columns = [name for name in (TIMELINE,) if name in frame.columns]
    columns += ["journal_name", "position", "row", "event_type", _SQL, _RENAMED_FROM]
    found = []
    for row in frame.where(F.col("event_type").isin(*ENDS, STATEMENT)).select(columns).collect():
        fields: dict[str, Any] = row.asDict()
        journal = str(fields["journal_name"])
        place = RowPlace(
            int(fields.get(TIMELINE) or 0),
            journal_key(journal)[1],
            int(fields["position"]),
            int(fields["row"]),
            journal,
        )
        text = fields[_SQL] or "", fields[_RENAMED_FROM] or ""
        found.append(_Event(place, fields["event_type"], *text))
    return sorted(found, key=lambda event: event.place.key)


def _is_at(place: RowPlace, columns: list[str]) -> Column:
    found = (F.col("position") == place.position) & (F.col("row") == place.row)
    found = found & (F.col("journal_name") == place.journal_name)
    return found & (F.col(TIMELINE) == place.timeline) if TIMELINE in columns else found
