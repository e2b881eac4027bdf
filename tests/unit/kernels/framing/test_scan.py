"""What a chunk that begins inside a transaction carries of the one before."""

from __future__ import annotations

import struct

import numpy as np

from ray_canal.kernels.base import event_types as ev
from ray_canal.kernels.framing import scan


def event(kind: int, body: bytes) -> bytes:
    return struct.pack("<IBIIIH", 0, kind, 1, 19 + len(body), 0, 0) + body


def framed(*events: bytes) -> bytes:
    """Opened events behind their frame, as binlog/inflate.py writes them."""
    inside = b"".join(events)
    return event(ev.TRANSACTION_PAYLOAD, struct.pack("<4q", 4, 100, 0, len(inside))) + inside


def dependencies(data: bytes) -> list[list[int]]:
    found = np.zeros((8, 3), np.int64)
    count = scan.dependencies(np.frombuffer(data, np.uint8), 0, False, found)
    rows: list[list[int]] = found[:count].tolist()
    return rows


def test_the_gtid_event_and_the_open_statements_table_maps() -> None:
    gtid, table = event(ev.GTID, bytes(42)), event(ev.TABLE_MAP, bytes(30))
    assert dependencies(gtid + table + table) == [[0, 61, 0], [61, 49, 0], [110, 49, 0]]
    xid = event(ev.XID, bytes(8))
    assert dependencies(gtid + table + xid) == []


def test_what_is_in_a_frame_is_marked() -> None:
    gtid, table = event(ev.GTID, bytes(42)), event(ev.TABLE_MAP, bytes(30))
    assert dependencies(gtid + framed(table)) == [[0, 61, 0], [112, 49, 1]]


def test_a_payload_in_a_payload_is_no_frame() -> None:
    """Found by fuzzing: it is shorter than a frame, whose size was read beyond the data's end."""
    nested, table = event(ev.TRANSACTION_PAYLOAD, bytes(5)), event(ev.TABLE_MAP, bytes(30))
    assert dependencies(framed(nested, table)) == [[75, 49, 1]]
    assert dependencies(framed(table, nested)) == [[51, 49, 1]]
