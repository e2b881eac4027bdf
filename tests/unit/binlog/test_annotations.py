"""The text of a statement goes where its rows go."""

from __future__ import annotations

import numpy as np
import pytest

from ray_canal.binlog.annotations import annotated, hide_annotations
from ray_canal.binlog.chunk import EVENT, EVENT_SILENT
from ray_canal.kernels.base import event_types
from ray_canal.model.arrays import Records
from ray_canal.model.canal_types import BEGIN, END, ROWDATA

TEXTS = {"q": event_types.ROWS_QUERY, "a": event_types.MARIADB_ANNOTATE_ROWS}


def events_of(text: str) -> Records:
    """( BEGIN, q ROWS_QUERY, a ANNOTATE_ROWS, r rows, h hidden rows, ) END."""
    events = np.zeros(len(text), EVENT)
    for event, sign in zip(events, text, strict=True):
        event["kind"] = {"(": BEGIN, ")": END}.get(sign, ROWDATA)
        event["type_code"] = TEXTS.get(sign, event_types.XID)
        if sign in "rh":
            event["type_code"] = event_types.UPDATE_ROWS
        event["flags"] = EVENT_SILENT if sign == "h" else 0
    return events


@pytest.mark.parametrize(
    ("text", "hidden", "rows"),
    [
        ("(ar)", [], {1: 2}),
        ("(qhh)(ar)", [1], {6: 7}),
        ("(qhrr)", [], {1: 3}),
        ("(arah)", [3], {1: 2}),
        ("(ahar)", [1], {3: 4}),
        ("(aqrh)", [], {2: 3}),
        ("(q)(a", [], {}),
        ("(rh)", [], {}),
        ("", [], {}),
    ],
)
def test_a_text_is_hidden_if_all_of_its_rows_are(
    text: str, hidden: list[int], rows: dict[int, int]
) -> None:
    """A statement on another table made each transaction of MariaDB one with an entry, for every
    subscriber; and its text has the values that a filter kept back."""
    events = events_of(text)
    found = annotated(events)
    hide_annotations(events)
    silent = np.flatnonzero(events["flags"] & EVENT_SILENT).tolist()
    assert [at for at in silent if text[at] in TEXTS] == hidden
    assert dict(zip(*(each.tolist() for each in found), strict=True)) == rows
    assert not events["flags"][[at for at in range(len(text)) if text[at] in "()r"]].any()
