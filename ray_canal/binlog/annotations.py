"""Statements that the log has in front of the rows that they changed (ROWS_QUERY, MariaDB's
ANNOTATE_ROWS): they go where their rows go.

A filter that keeps rows back must not show them in the text of their statement, and a transaction
of which nothing else is left is an empty one. (Canal shows each of them to everybody.)
"""

from __future__ import annotations

import numpy as np

from ray_canal.binlog.chunk import EVENT_IN_TRANSACTION, EVENT_SILENT
from ray_canal.kernels.base import event_types
from ray_canal.model.arrays import Bools, Int64s, Records
from ray_canal.model.canal_types import ROWDATA

_ANNOTATIONS = (event_types.ROWS_QUERY, event_types.MARIADB_ANNOTATE_ROWS)
_ROWS = [kind for kind in range(64) if event_types.ROWS >> kind & 1]


def hide_annotations(events: Records) -> None:
    """Make those whose rows are all hidden move cursors, no more."""
    annotations, _, hidden = _followed(events)
    events["flags"][annotations[hidden]] |= EVENT_SILENT | EVENT_IN_TRANSACTION


def annotated(events: Records) -> tuple[Int64s, Int64s]:
    """Return the annotations whose rows are shown, and the first event with rows of each. (Rows
    that are in the next chunk are not known here.)"""
    annotations, first, hidden = _followed(events)
    is_known = (first >= 0) & ~hidden
    return annotations[is_known], first[is_known]


def _followed(events: Records) -> tuple[Int64s, Int64s, Bools]:
    """Return the annotations, the first event of each whose rows are shown (-1: none), and of which
    there are rows, but hidden ones alone."""
    annotations = np.flatnonzero(np.isin(events["type_code"], _ANNOTATIONS))
    if not len(annotations):
        return annotations, annotations, np.zeros(0, np.bool_)
    has_rows = np.isin(events["type_code"], _ROWS) & (events["kind"] == ROWDATA)
    ends = np.append(np.flatnonzero(~has_rows), len(events))
    end = ends[np.searchsorted(ends, annotations, side="right")]
    is_hidden = events["flags"] & EVENT_SILENT != 0
    shown = np.append(np.flatnonzero(has_rows & ~is_hidden), len(events))
    first = shown[np.searchsorted(shown, annotations)]
    first = np.where(first < end, first, -1)
    return annotations, first, (first < 0) & (end > annotations + 1)
