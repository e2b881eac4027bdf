"""Constant parts of FlatMessages: each offset leads to its piece, for all tables of a chunk."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.demo import binlog_files
from ray_canal.filter import FieldFilter
from ray_canal.kernels.render import entry_columns as entry
from ray_canal.kernels.render import flat_rows as rows
from ray_canal.offline import decode_chunks
from ray_canal.views.flat_tables import flat_blobs, json_bytes, table_records


@pytest.fixture(scope="module")
def chunk() -> DecodedChunk:
    """One with rows of several tables."""
    found = [decoded for _, decoded in decode_chunks(binlog_files()[:1])]
    return max(found, key=lambda each: len(each.layout.tables))


class Records:
    """The records of a chunk's tables, and what is at their offsets."""

    def __init__(self, chunk: DecodedChunk, black_fields: str = "", hashed: bool = False) -> None:
        self.layouts = chunk.layout.tables
        blobs = flat_blobs()
        self.tables, self.columns = table_records(
            self.layouts, blobs, FieldFilter(black_fields=black_fields),
            [(hashed,) * len(each.meta.columns) for each in self.layouts],
        )  # fmt: skip
        self._bytes = blobs.joined()

    def at(self, record: np.ndarray, field: int) -> bytes:
        offset, size = record[field : field + 2].tolist()
        return self._bytes[offset : offset + size]

    def rest(self, number: int) -> Any:
        """The constant part of a message, as JSON."""
        record = self.tables[number]
        text = self.at(record, rows.FT_DATABASE) + b"1" + self.at(record, rows.FT_REST)
        return json.loads(b"{" + text[1:] + b"2}")


def test_a_messages_constant_parts_are_its_tables(chunk: DecodedChunk) -> None:
    found = Records(chunk)
    assert len(found.layouts) >= 2
    for number, layout in enumerate(found.layouts):
        meta, told = layout.meta, found.rest(number)
        assert (told["database"], told["table"]) == (meta.schema, meta.table)
        assert told["mysqlType"] == {each.name: each.mysql_type for each in meta.columns}
        assert told["sqlType"].keys() == told["mysqlType"].keys()
        assert told["pkNames"] == [each.name for each in meta.columns if each.is_key]
        assert (told["isDdl"], told["old"], told["sql"]) == (False, None, "")


def test_a_columns_pieces_are_its_own(chunk: DecodedChunk) -> None:
    found = Records(chunk)
    for record, layout in zip(found.tables, found.layouts, strict=True):
        first = int(record[rows.FT_FIRST])
        assert record[rows.FT_COUNT] == len(layout.meta.columns) + layout.meta.hidden
        for column, each in zip(layout.meta.columns, found.columns[first:], strict=False):
            name = json.dumps(column.name).encode()
            assert found.at(each, rows.F_KEY) == b"," + name + b':"'
            assert found.at(each, rows.F_NULL) == b"," + name + b":null"
            assert found.at(each, rows.F_NAME) == (b"," + name if column.is_key else b"")
            assert not each[rows.F_HASHED]


def test_the_room_of_a_table_holds_all_its_pieces(chunk: DecodedChunk) -> None:
    found = Records(chunk)
    for record in found.tables:
        mine = found.columns[record[rows.FT_FIRST] :][: record[rows.FT_COUNT]]
        sizes = mine[:, rows.F_KEY + 1 : rows.F_VARIES : 2].sum()
        sizes += record[rows.FT_DATABASE + 1 :: 2].sum()
        assert record[rows.FT_ROOM] > sizes


def test_a_field_that_is_filtered_out_is_in_no_part(chunk: DecodedChunk) -> None:
    layout = chunk.layout.tables[0]
    meta = layout.meta
    gone = meta.columns[1].name
    found = Records(chunk, f"{meta.full_name}:{gone}", hashed=True)
    assert gone not in found.rest(0)["mysqlType"]
    record = found.columns[int(found.tables[0, rows.FT_FIRST]) + 1]
    assert record[entry.C_CODE] == entry.LEFT_OUT
    assert not record[rows.F_HASHED], "what is not shown chooses no partition"
    assert found.columns[0, rows.F_HASHED] == 1


def test_json_is_written_as_canals_library_does() -> None:
    assert json_bytes({"a": ["é", None, 1]}) == '{"a":["é",null,1]}'.encode()
    assert json_bytes("\ud800") == b'"?"', "half a character is no UTF-8"
