"""A JSON column's texts, from noted places: documents, the empty value, diffs of partial ones."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np

from ray_canal.kernels.base.jit import read_only
from ray_canal.kernels.json.column import fill_json, write_diffs
from ray_canal.kernels.json.diff import REMOVE, REPLACE
from ray_canal.kernels.rows import wire as w
from ray_canal.kernels.rows.arrays import ColumnArrays
from ray_canal.types.charset_tables import tables
from tests.unit.kernels.json.test_diff import binary
from tests.unit.kernels.json.test_diff import diff_bytes as written

VALUES, DATA = 64, 512
NAME = read_only(np.frombuffer(b"`c`", np.uint8))


def noted(documents: list[bytes | None]) -> tuple[bytes, np.ndarray]:
    """The documents' bytes, and each one's offset and length; -1 for NULL."""
    data, notes = b"\xaa", []
    for each in documents:
        notes.append((len(data), -1 if each is None else len(each)))
        data += each or b""
    return data + bytes(64), np.array(notes, np.int64)


def filled(
    data: bytes, notes: np.ndarray, room: int = 4096, base: int = 0, alone: Any = ()
) -> tuple[tuple[int, int], list[str], np.ndarray]:
    """(code and row), texts, and the arena of a column and side whose notes begin at base // 7."""
    dest = np.zeros(w.COLUMN_DEST, np.int64)
    dest[[base + w.VALUES, base + w.DATA, base + w.DATA_END]] = VALUES, DATA, DATA + room
    rows = len(notes) // 2 if base else len(notes)
    dest[base + w.DEFERRED] = rows if base else 0
    arena = np.zeros(8192, np.uint8)
    arena[0] = 0xFF
    arrays = ColumnArrays(
        read_only(np.frombuffer(data, np.uint8)), np.zeros(w.PLAN_FIELDS, np.int64),
        tables(), dest, notes.reshape(-1), np.zeros(1, np.int64), arena,
    )  # fmt: skip
    end = fill_json(tuple(arrays), 0, base, rows, np.array(alone, np.bool_), NAME)
    offsets = arena[VALUES : VALUES + 4 * (rows + 1)].view(np.int32).tolist()
    texts = [arena[DATA + a : DATA + b].tobytes().decode() for a, b in pairwise(offsets)]
    return end, texts, arena


def test_each_row_has_its_document() -> None:
    values = [{"a": 1}, [1, 2, "x"], "text", None, True, -7]
    documents: list[bytes | None] = [binary(value) for value in values]
    data, notes = noted([*documents, None, b""])
    end, texts, _ = filled(data, notes)
    assert end == (0, 0)
    assert [json.loads(text) for text in texts[:6]] == values
    assert texts[6:] == ["", "null"], "SQL's NULL has no text; an empty value is JSON's"


def test_too_little_room_and_broken_documents_name_their_row() -> None:
    data, notes = noted([binary(1), binary("longer" * 20)])
    assert filled(data, notes, room=100)[0] == (w.JSON_SPACE, 1)
    data, notes = noted([binary(1), binary([1])[:-1]])
    assert filled(data, notes)[0] == (w.BAD_JSON, 1)


def partial(before: bytes | None, diffs: bytes) -> tuple[bytes, np.ndarray]:
    data, notes = noted([before, diffs])
    notes[1, 1] = w.PARTIAL - len(diffs)
    return data, notes


def test_diffs_change_the_value_before_them() -> None:
    diffs = written([(REPLACE, "$.a", 2)])
    data, notes = partial(binary({"a": 1, "b": 3}), diffs)
    end, texts, _ = filled(data, notes, base=w.DEST_FIELDS)
    assert end == (0, 0)
    assert json.loads(texts[0]) == {"a": 2, "b": 3}
    data, notes = partial(None, diffs)
    assert filled(data, notes, base=w.DEST_FIELDS)[0] == (w.NO_BEFORE, 0)


def test_diffs_without_a_before_image_become_sql_that_is_marked() -> None:
    data, notes = partial(None, written([(REPLACE, "$.a", 2)]))
    end, texts, arena = filled(data, notes, base=w.DEST_FIELDS, alone=[True])
    assert end == (0, 0)
    assert texts == ["JSON_REPLACE(`c`, '$.a', CAST('2' AS JSON))"] or "`c`" in texts[0]
    assert arena[0] == 0xFE, "its bit says that it is no document"


def test_diffs_of_a_row_are_an_object_by_column() -> None:
    one, two = written([(REPLACE, "$.a", 2)]), written([(REMOVE, "$[0]", None)])
    data, notes = noted([one, None, two, None])
    notes[0, 1], notes[2, 1] = w.PARTIAL - len(one), w.PARTIAL - len(two)
    # Two columns of two rows: the first row has diffs of both, the second none.
    names = read_only(np.frombuffer(b'"c": "d": ', np.uint8))
    out, offsets, bits = np.zeros(400, np.uint8), np.zeros(3, np.int32), np.zeros(1, np.uint8)
    columns, ends = np.array([0, 2], np.int64), np.array([5, 10], np.int64)
    source = read_only(np.frombuffer(data, np.uint8))
    size, code = write_diffs(source, columns, notes, names, ends, out, offsets, bits)
    assert code == 0
    told = json.loads(out[:size].tobytes())
    assert list(told) == ["c", "d"]
    assert told["c"][0]["path"] == "$.a"
    assert (offsets.tolist(), bits.tolist()) == ([0, size, size], [1])
    short = np.zeros(7, np.uint8)
    assert write_diffs(source, columns, notes, names, ends, short, offsets, bits) == (
        w.JSON_SPACE, 0,
    )  # fmt: skip
