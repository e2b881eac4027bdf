"""GTID events, built byte by byte, into GTID records."""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt
import pytest

from ray_canal.binlog.chunk import GTID, GTID_ANONYMOUS, GTID_MARIADB, GTID_MYSQL
from ray_canal.kernels.base.jit import read_only
from ray_canal.kernels.framing import gtid_events as g

ANONYMOUS, PLAIN, TAGGED, MARIADB = 34, 33, 42, 162
HEADER_BYTES = 19


def packed(number: int) -> bytes:
    """A number in MySQL's serialised form, of two bytes at most."""
    return bytes([number << 1]) if number < 128 else struct.pack("<H", number << 2 | 1)


def plain_body(source: int, number: int, clock: bytes = b"") -> bytes:
    return b"\1" + bytes([source]) * 16 + struct.pack("<q", number) + clock


def tagged_body(source: int, number: int, tag: bytes) -> bytes:
    fields = packed(0) + packed(0)
    fields += packed(1) + packed(source) * 16 + packed(2) + packed(2 * number)
    fields += packed(3) + packed(len(tag)) + tag
    size = len(fields) + 3
    return packed(1) + packed(size) + packed(1) + fields


def records_of(*events: tuple[int, bytes]) -> tuple[list[int], npt.NDArray[np.void]]:
    """(codes, records) of events: (type, body)."""
    records = np.full(len(events) * g.RECORD_BYTES, 0xAA, np.uint8)
    codes = []
    for k, (kind, body) in enumerate(events):
        head = struct.pack("<IBIIIH", 1_700_000_000, kind, 7, HEADER_BYTES + len(body), 0, 0)
        data = read_only(np.frombuffer(head + body, np.uint8))
        place = k * g.RECORD_BYTES
        codes.append(g.read_gtid(data, 0, HEADER_BYTES, data.size, 100 + k, records, place))
    return codes, records.view(GTID)


def test_offsets_are_the_dtype_s() -> None:
    assert GTID.fields is not None
    offsets = {name: getattr(g, name.upper()) for name in GTID.fields}
    assert offsets == {name: field[1] for name, field in GTID.fields.items()}
    assert (GTID.itemsize, GTID["tag"].itemsize) == (g.RECORD_BYTES, g.TAG_BYTES)
    assert (g.NO_GTID, g.MYSQL, g.MARIADB) == (GTID_ANONYMOUS, GTID_MYSQL, GTID_MARIADB)


def test_fields() -> None:
    clock = b"\2" + struct.pack("<qq", 5, 6) + (1_600_000_000_000_000).to_bytes(7, "little")
    original = struct.pack("<Q", 1_500_000_000_000_000)[:7]
    marked = clock[:-1] + bytes([clock[-1] | 0x80]) + original
    codes, records = records_of(
        (PLAIN, plain_body(9, 3, clock)),
        (PLAIN, plain_body(9, 3, marked)),
        (ANONYMOUS, plain_body(0, 0, clock)),
        (MARIADB, struct.pack("<qIB", 12, 2, 0)),
        (TAGGED, tagged_body(11, 8, b"day_1")),
    )
    assert codes == [g.READ] * 5
    assert records["flavor"].tolist() == [
        GTID_MYSQL, GTID_MYSQL, GTID_ANONYMOUS, GTID_MARIADB, GTID_MYSQL,
    ]  # fmt: skip
    assert records["sid"].tolist() == [[k] * 16 for k in (9, 9, 0, 0, 11)]
    assert records["gno"].tolist() == [3, 3, 0, 12, 8]
    assert records["last_committed"].tolist() == [5, 5, 5, 0, 0]
    assert records["sequence_number"].tolist() == [6, 6, 6, 0, 0]
    assert records["commit_us"].tolist() == [1_600_000_000_000_000] * 3 + [0, 0]
    assert records["original_us"].tolist()[:2] == [1_600_000_000_000_000, 1_500_000_000_000_000]
    assert records["position"].tolist() == [100, 101, 102, 103, 104]
    assert records["domain"].tolist() == [0, 0, 0, 2, 0]
    assert records["server_id"].tolist() == [7] * 5
    assert records["tag"].tolist() == [b"", b"", b"", b"", b"day_1"]


def test_a_gtid_follows_the_next_smaller_one_of_its_source_and_tag() -> None:
    chosen = [  # source, number, tag, whether it follows
        (5, 1, b"", 0),
        (5, 2, b"", 1),
        (5, 4, b"", 0),
        (6, 5, b"", 0),
        (6, 6, b"day", 0),
        (6, 7, b"day", 1),
        (6, 8, b"night", 0),
        (6, 9, b"", 0),
    ]
    events = [
        (TAGGED, tagged_body(source, number, tag)) if tag else (PLAIN, plain_body(source, number))
        for source, number, tag, _ in chosen
    ]
    _, records = records_of(*events, (ANONYMOUS, plain_body(6, 10)))
    assert records["follows"].tolist() == [each[3] for each in chosen] + [0]


@pytest.mark.parametrize("tag", [b"Day", b"a b", b"a\0", b"\xff"])
def test_impossible_tags(tag: bytes) -> None:
    assert records_of((TAGGED, tagged_body(1, 1, tag)))[0] == [g.BAD_TAG]


def test_too_short() -> None:
    for kind, body in (
        (PLAIN, plain_body(1, 1)),
        (MARIADB, struct.pack("<qIB", 12, 2, 0)),
        (TAGGED, tagged_body(1, 1, b"t")),
    ):
        for size in range(len(body)):
            assert records_of((kind, body[:size]))[0] == [g.TOO_SHORT], (kind, size)
    assert records_of((TAGGED, tagged_body(1, 1, b"t" * 33)))[0] == [g.TOO_SHORT]
