"""What Canal made of a golden binlog's statements, read from its entries."""

from __future__ import annotations

from pathlib import Path

from ray_canal.binlog.parsed import QueryRecord
from tests.golden import split_delimited

Fields = dict[int, list[int | bytes]]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _fields(data: bytes) -> Fields:
    found: Fields = {}
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        value: int | bytes
        if key & 7 == 0:
            value, at = _varint(data, at)
        else:
            assert key & 7 == 2
            size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
        found.setdefault(key >> 3, []).append(value)
    return found


def _number(fields: Fields, field: int) -> int:
    value = fields.get(field, [0])[0]
    assert isinstance(value, int)
    return value


def _part(fields: Fields, field: int) -> bytes:
    value = fields.get(field, [b""])[0]
    assert isinstance(value, bytes)
    return value


def canal_statements(path: Path) -> dict[int, list[QueryRecord]]:
    """Statement entries by the offset of their event. Numbers are Entry's and RowChange's
    fields."""
    found: dict[int, list[QueryRecord]] = {}
    for message in split_delimited(path.read_bytes()):
        entry = _fields(message)
        header, change = _fields(_part(entry, 1)), _fields(_part(entry, 3))
        if _number(entry, 2) == 2 and 12 not in change:
            record = QueryRecord(
                _number(change, 2),
                _part(header, 8).decode(),
                _part(header, 9).decode(),
                _part(change, 11).decode(),
                _part(change, 14).decode(),
                bool(_number(change, 10)),
            )
            found.setdefault(_number(header, 3), []).append(record)
    return found
