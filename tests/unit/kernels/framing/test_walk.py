"""A chunk's events, walked once: what becomes an entry, and where a walk ends."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
import pytest

from ray_canal.binlog.chunk import EVENT, GTID
from ray_canal.kernels.base import event_types as ev
from ray_canal.kernels.base.jit import read_only
from ray_canal.kernels.framing import table_maps as m
from ray_canal.kernels.framing import walk as w
from tests.made_servers import events, transactions

AT = 1000
DATA = b"".join(each.data for each in transactions()[1][3:30])  # behind the tables' CREATEs
EVENTS = events(b"\0\0\0\0" + DATA)
ENTRIES = (ev.QUERY, ev.XID, ev.WRITE_ROWS, ev.UPDATE_ROWS, ev.DELETE_ROWS)


def walked(data: bytes, room: int = 2000, **start: Any) -> Any:
    """(code, offset, type of the bad event), entries, bodies and GTIDs."""
    head = {"carried": 0, "position": AT, "in_transaction": 0, "checksum": 4, "mariadb": False,
            "id_bytes": 6, **start}  # fmt: skip
    found, gtids = np.zeros(room + 1, EVENT), np.zeros(room, GTID)
    bodies, state = np.empty((room, 2), np.int64), np.zeros(w.STATE_FIELDS, np.int64)
    fields = w.WalkOutput(
        events=found, bodies=bodies.reshape(-1), questions=np.zeros(1 + room, np.int64),
        gtids=np.ndarray((gtids.nbytes,), np.uint8, gtids.data),
        seconds=np.empty(room, np.int64), state=state,
    )  # fmt: skip
    hashed = np.full((4, 4096), -1, np.int64)
    tables = m.TableMaps(
        np.empty((m.MAP_FIELDS, room), np.int64), *hashed, np.zeros(m.COUNTS, np.int64)
    )
    source = read_only(np.frombuffer(data, np.uint8))
    code, at, entries, kind = w.walk(
        source, tuple(w.WalkStart(**head)), tuple(fields), tuple(tables)
    )
    return (code, at, kind), found[:entries], bodies[:entries], gtids[: state[w.GTIDS]]


def event(kind: int, body: bytes = b"", flags: int = 0, at: int = 0) -> bytes:
    size = 19 + len(body) + 4
    text = struct.pack("<IBIIIH", 7, kind, 1, size, at + size, flags) + body
    return text + struct.pack("<I", zlib.crc32(text))


def test_each_statement_and_row_event_is_an_entry_at_its_place() -> None:
    end, found, bodies, gtids = walked(DATA)
    assert end == (w.OK, len(DATA), 0)
    wanted, at = [], 0
    for one in EVENTS:
        if one[4] in ENTRIES:
            wanted.append((AT + at, len(one), at + 19, at + len(one) - 4))
        at += len(one)
    places = found["position"].tolist(), found["length"].tolist(), *bodies.T.tolist()
    assert list(zip(*places, strict=True)) == wanted
    assert len(gtids) == sum(one[4] == ev.GTID for one in EVENTS) == 27
    assert gtids["gno"].tolist() == list(range(gtids["gno"][0], gtids["gno"][0] + 27))


def test_what_was_carried_is_known_and_no_entry() -> None:
    """A chunk in the midst of a transaction: its TABLE_MAP comes along."""
    kinds = [one[4] for one in EVENTS]
    first = kinds.index(ev.TABLE_MAP)
    carried, rest = EVENTS[first], b"".join(EVENTS[first + 1 : first + 2])
    assert walked(rest)[0] == (w.NO_TABLE_MAP, 0, kinds[first + 1])
    end, found, _, _ = walked(carried + rest, carried=len(carried), in_transaction=1)
    assert end[0] == w.OK
    assert found["position"].tolist() == [AT]
    end, found, _, _ = walked(carried + rest, carried=len(carried + rest), in_transaction=1)
    assert (end[0], len(found)) == (w.OK, 0)


def test_a_changed_byte_is_found_at_its_event() -> None:
    sizes = np.cumsum([len(one) for one in EVENTS]).tolist()
    for number in (0, 7, len(EVENTS) - 1):
        at = sizes[number] - len(EVENTS[number])
        broken = bytearray(DATA)
        broken[sizes[number] - 1] ^= 1  # of the checksum itself
        assert walked(bytes(broken))[0][:2] == (w.BAD_CHECKSUM, at)


def test_bytes_that_end_too_early_are_told() -> None:
    whole = len(EVENTS[0])
    assert walked(DATA[: whole + 18])[0][:2] == (w.TRUNCATED, whole)
    assert walked(DATA[: whole + 20])[0][:2] == (w.BAD_LENGTH, whole)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (event(ev.INCIDENT), w.INCIDENT),
        (event(99), w.UNSUPPORTED),
        (event(99, flags=ev.FLAG_IGNORABLE), w.OK),
        (event(ev.TABLE_MAP, b"1234567"), w.TRUNCATED),
        (event(ev.TRANSACTION_PAYLOAD, b"no frame of ours"), w.BAD_FRAME),
    ],
)
def test_what_cannot_be_read_ends_the_walk(data: bytes, code: int) -> None:
    at = len(EVENTS[0])
    end = at + len(data) if code == w.OK else at
    assert walked(EVENTS[0] + data)[0][:2] == (code, end)


def test_a_survey_says_how_much_room_is_enough() -> None:
    entries, gtids, maps = w.survey(read_only(np.frombuffer(DATA, np.uint8)))
    found = walked(DATA)[1]
    assert len(found) <= entries
    assert (gtids, maps) >= (27, 1)
    assert walked(DATA, room=3)[0][0] == w.NO_ROOM
    assert walked(DATA, room=max(entries, gtids, maps))[0][0] == w.OK
