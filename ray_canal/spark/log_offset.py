"""Offsets of readStream: the place of the last row that a micro-batch has, as JSON.

Spark compares offsets as text and keeps them in its checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from ray_canal.errors import ConfigError
from ray_canal.model.position import journal_key
from ray_canal.views.row_places import RowPlace, place_at, rows_above

START = RowPlace(-1, -1, -1, -1)
"""Before all rows."""
_NO_ROW = -1


def offset_text(place: RowPlace, transaction: str = "", *, is_read: bool = False) -> str:
    """`transaction`: the row's, its GTID where there are GTIDs; for people, it is not compared.
    `is_read`: it is a row of a snapshot, which may come again under another id."""
    body: dict[str, Any] = {
        "timeline": place.timeline,
        "journal": place.journal_name,
        "number": place.number,
        "position": place.position,
        "row": place.row,
    }
    if transaction:
        body["transaction"] = transaction
    if is_read:
        body["is_read"] = True
    return json.dumps(body, separators=(",", ":"))


def offset_place(text: str) -> RowPlace:
    """Raises ConfigError: it is no offset of ray_canal."""
    try:
        body = json.loads(text)
        return RowPlace(
            body["timeline"], body["number"], body["position"], body["row"], body["journal"]
        )
    except (ValueError, KeyError, TypeError):
        raise ConfigError(
            f"the checkpoint's offset {text[:200]} is not one of ray_canal: use a checkpoint "
            "location of the query's own"
        ) from None


def acked_offset(subscriber: Mapping[str, Any], timeline: int) -> str:
    """Return the offset up to which a subscriber has acknowledged, by its report: that of its last
    row, or (of one that has none, as it is new or was moved) of its cursor, before any row there;
    empty: neither is known."""
    if subscriber["mark"]:
        return str(subscriber["mark"])
    name, colon, behind = (subscriber["cursor"] or "").rpartition(":")
    if not colon:
        return ""
    position = int(behind.partition("+")[0])
    return offset_text(RowPlace(timeline, journal_key(name)[1], position, _NO_ROW, name))


def is_of_row(place: RowPlace) -> bool:
    """Return whether an offset is that of a row; else it is a cursor's."""
    return place.row != _NO_ROW


def is_read(text: str) -> bool:
    """Return whether an offset's row is one of a snapshot."""
    return bool(json.loads(text).get("is_read"))


def has_row(batch: pa.RecordBatch, place: RowPlace) -> bool:
    """Return whether a batch has the row of this place."""
    index = batch.num_rows - rows_above(batch, place) - 1
    return index >= 0 and place_at(batch, index).key == place.key


def rows_between(batch: pa.RecordBatch, start: RowPlace, end: RowPlace) -> pa.RecordBatch:
    """The rows of a batch behind `start`, up to and with `end`."""
    count = batch.num_rows
    above_end = rows_above(batch, end)
    behind_start = rows_above(batch, start)
    return batch.slice(count - behind_start, max(0, behind_start - above_end))
