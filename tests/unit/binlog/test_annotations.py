"""The text of a statement goes where its rows go."""

from __future__ import annotations

import numpy as np
import pytest

from ray_canal.binlog.annotations import (
    AnnotationTexts,
    annotated,
    found_annotations,
    hide_annotations,
)
from ray_canal.binlog.chunk import EVENT, EVENT_SILENT
from ray_canal.binlog.layout import ArenaSketch
from ray_canal.binlog.parsed import QueryEvent
from ray_canal.kernels.base import event_types
from ray_canal.kernels.framing.query import KIND_SPECIAL
from ray_canal.model.arrays import Records
from ray_canal.model.canal_types import BEGIN, END, QUERY, ROWDATA
from ray_canal.schema.ddl.statements import classify

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


STATEMENTS = [
    "INSERT INTO t (a, b) VALUES (1, 'x')",
    "INSERT INTO t (a, b) VALUES (2, 'y')",
    "insert ignore into `t ( x`(a) values (1)",
    "INSERT INTO shop.`t` SET a = 1",
    "INSERT /* ( */ INTO u VALUES (1)",
    "INSERT INTO # (\n v VALUES (1)",
    "INSERT INTO `set` VALUES (1)",
    "UPDATE t, u SET t.a = 1 WHERE t.a = u.a",
    "UPDATE t SET a = 'WHERE ('",
    "DELETE FROM t WHERE a = 1",
    "DELETE t, u FROM t JOIN u",
    "DELETE FROM t",
    "REPLACE INTO t VALUES (1)",
    "WITH x AS (SELECT 1) UPDATE t, x SET a = 1",
    "CREATE TABLE t (a INT) SELECT 1 AS a",
    "INSERT INTO tä VALUES ('ä')",
    "INSERT INTO " + "t" * 60 + " " * 300 + "VALUES (1)",
    "",
]


def name_of(sql: str) -> str | None:
    return classify(QueryEvent("", sql, 0, 0, 0, is_annotation=True))[0].table


def placed(texts: list[bytes], kind: int) -> list[tuple[str | None, bytes, int, int]]:
    """(table, text, aux, kind) of events with these texts, by way of an arena."""
    parts = [bytes([len(text) & 255]) + text if kind == TEXTS["q"] else text for text in texts]
    data = np.frombuffer(b"".join(parts), np.uint8)
    ends = np.cumsum([len(part) for part in parts])
    bodies = np.stack([ends - [len(part) for part in parts], ends], axis=1)
    events = np.zeros(len(texts), EVENT)
    events["type_code"], events["kind"] = kind, KIND_SPECIAL
    found = found_annotations(events, bodies, data, 7, name_of)
    sketch = ArenaSketch()
    written = AnnotationTexts(sketch, found, data)
    arena = np.zeros(sketch.size_bytes, np.uint8)
    written.write(arena)
    shown = []
    for record, event in zip(written.records, events, strict=True):
        table, sql = (
            None
            if record[name + "_bytes"] < 0
            else arena[record[name] : record[name] + record[name + "_bytes"]].tobytes()
            for name in ("table", "sql")
        )
        assert (record["schema_bytes"], record["ddl_schema_bytes"], record["is_ddl"]) == (0, 0, 0)
        assert event["event_type"] == QUERY
        name = None if table is None else table.decode()
        shown.append((name, sql, int(event["aux"]), int(event["kind"])))
    return shown


def test_texts_of_mysql_name_their_table_as_canal_does() -> None:
    """Statements that begin alike are looked at once: what names the table is the same."""
    found = placed([sql.encode() for sql in STATEMENTS], TEXTS["q"])
    assert found == [
        (name_of(sql), sql.encode(), 7 + number, ROWDATA) for number, sql in enumerate(STATEMENTS)
    ]
    assert {"t", "u", "v", "set", "t ( x", "tä", None} <= {name for name, *_ in found}


def test_texts_of_mariadb_name_none_and_broken_ones_are_decoded() -> None:
    """Each as it is by itself: the halves of a character are none."""
    texts = [b"INSERT \xc3", b"\xa4 x", "ä".encode(), b"", b"\xff\xfe"]
    found = placed(texts, TEXTS["a"])
    assert found == [
        ("", text.decode("utf-8", "replace").encode(), 7 + number, ROWDATA)
        for number, text in enumerate(texts)
    ]
    assert [text for _, text, *_ in placed(texts[2:4], TEXTS["a"])] == texts[2:4]
