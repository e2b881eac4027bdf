"""Statements that the log has in front of the rows that they changed (ROWS_QUERY, MariaDB's
ANNOTATE_ROWS): they go where their rows go.

A filter that keeps rows back must not show them in the text of their statement, and a transaction
of which nothing else is left is an empty one. (Canal shows each of them to everybody.)
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from ray_canal.binlog.chunk import EVENT_IN_TRANSACTION, EVENT_SILENT
from ray_canal.binlog.layout import ArenaSketch, place_queries
from ray_canal.binlog.parsed import Annotations, QueryRecord
from ray_canal.kernels.base import event_types
from ray_canal.kernels.framing.query import KIND_SPECIAL
from ray_canal.kernels.framing.texts import copy_texts, first_broken
from ray_canal.kernels.rows.records import HIDDEN_ROWS, follow_annotations
from ray_canal.model import canal_types
from ray_canal.model.arrays import Bytes, Int64s, Records
from ray_canal.types.charsets import decode_text

_HEAD_BYTES = 256
_CHANGES_ROWS = re.compile(rb"\s*(?:INSERT|UPDATE|DELETE|REPLACE)\b", re.IGNORECASE)
_BEHIND_NAMES = re.compile(rb"\(|\b(?:SET|WHERE|VALUES?|SELECT)\W", re.IGNORECASE)
_UNCLEAR = re.compile(rb"[-/#'\"]")
"""A comment or a string may begin here."""


def found_annotations(
    events: Records, bodies: Int64s, data: Bytes, aux: int, name_of: Callable[[str], str | None]
) -> Annotations:
    """Make entries of the walked events that nobody was asked about, numbered from `aux` on: the
    annotations, and SAVEPOINTs, which are silent and need no text. `name_of`: the table that a
    statement names, as Canal has it for ROWS_QUERY (ANNOTATE_ROWS names none)."""
    entries = np.flatnonzero(events["kind"] == KIND_SPECIAL)
    bounds = bodies[entries].copy()
    kinds = events["type_code"][entries]
    is_savepoint = kinds == event_types.QUERY
    bounds[is_savepoint, 1] = bounds[is_savepoint, 0]
    of_mysql = kinds == event_types.ROWS_QUERY
    # Its first byte is the length, cut off at 255, and so of no use.
    bounds[of_mysql, 0] = np.minimum(bounds[of_mysql, 0] + 1, bounds[of_mysql, 1])
    events["kind"][entries] = canal_types.ROWDATA
    events["event_type"][entries] = canal_types.QUERY
    events["aux"][entries] = aux + np.arange(len(entries))
    texts = bounds[of_mysql].tolist()
    names, numbers = _names(data, texts, name_of)
    name_of_text = np.zeros(len(entries), np.int64)
    name_of_text[of_mysql] = numbers
    return Annotations(bounds, names, name_of_text)


def _names(
    data: Bytes, texts: list[list[int]], name_of: Callable[[str], str | None]
) -> tuple[tuple[str | None, ...], list[int]]:
    """Return the tables that statements name, with "" first, and which one each of them does.
    Statements that begin alike name the same one: there may be one a row."""
    names: dict[str | None, int] = {"": 0}
    known: dict[bytes, int] = {}
    numbers: list[int] = []
    last, number = None, 0
    for start, end in texts:
        head = data[start : min(end, start + _HEAD_BYTES)].tobytes()
        if last is None or not head.startswith(last):
            last = _naming(head)
            key = data[start:end].tobytes() if last is None else last
            if key not in known:
                known[key] = names.setdefault(name_of(decode_text(key, "utf8mb4")), len(names))
            number = known[key]
        numbers.append(number)
    return tuple(names), numbers


def _naming(head: bytes) -> bytes | None:
    """Return so much of a statement as has the names of its tables, and one word or sign more;
    None: it cannot be told so easily."""
    found = _BEHIND_NAMES.search(head)
    if found is None or _CHANGES_ROWS.match(head) is None:
        return None
    names = head[: found.start()]
    is_unclear = _UNCLEAR.search(names) or names.count(b"`") % 2
    return None if is_unclear else head[: found.end()]


class AnnotationTexts:
    """Annotations as QUERY records, and their texts, for an arena that is laid out."""

    def __init__(self, sketch: ArenaSketch, found: Annotations, data: Bytes) -> None:
        self._source, self._bounds = _utf8(data, found.bounds)
        named = [QueryRecord(canal_types.QUERY, "", name, "", "", False) for name in found.names]
        by_name, self._names = place_queries(sketch, tuple(named))
        sizes = self._bounds[:, 1] - self._bounds[:, 0]
        self._at = sketch.take(int(sizes.sum()))
        self.records: Records = by_name.take(found.name_of)  # an index copies field by field
        self.records["sql"] = self._at + np.cumsum(sizes) - sizes
        self.records["sql_bytes"] = sizes

    def write(self, arena: Bytes) -> None:
        """Write the texts to their offsets."""
        for at, name in self._names:
            arena[at : at + len(name)] = np.frombuffer(name, np.uint8)
        copy_texts(self._source, self._bounds, arena, self._at)


def _utf8(data: Bytes, bounds: Int64s) -> tuple[Bytes, Int64s]:
    """Return where the texts are in UTF-8: broken ones are decoded first."""
    if first_broken(data, bounds) < 0:
        return data, bounds
    texts = [
        decode_text(data[start:end].tobytes(), "utf8mb4").encode("utf-8", "replace")
        for start, end in bounds.tolist()
    ]
    ends = np.cumsum([0, *map(len, texts)])
    return np.frombuffer(b"".join(texts), np.uint8), np.stack([ends[:-1], ends[1:]], axis=1)


def hide_annotations(events: Records) -> None:
    """Make those whose rows are all hidden move cursors, no more."""
    annotations, shown = _followed(events)
    events["flags"][annotations[shown == HIDDEN_ROWS]] |= EVENT_SILENT | EVENT_IN_TRANSACTION


def annotated(events: Records) -> tuple[Int64s, Int64s]:
    """Return the annotations whose rows are shown, and the first event with rows of each. (Rows
    that are in the next chunk are not known here.)"""
    annotations, shown = _followed(events)
    return annotations[shown >= 0], shown[shown >= 0]


def _followed(events: Records) -> tuple[Int64s, Int64s]:
    annotations, shown = np.empty((2, len(events)), np.int64)
    count = follow_annotations(events, annotations, shown)
    return annotations[:count], shown[:count]
