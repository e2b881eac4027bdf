"""GtidSet and MariadbGtid: text, wire form, arithmetic against plain Python sets."""

from __future__ import annotations

import random
import struct

import pytest

from ray_canal.errors import ConfigError, CorruptEvent
from ray_canal.model.gtid import GtidSet, MariadbGtid

A = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
B = "4e11fa47-71ca-11e1-9e33-c80aa9429562"


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("", ""),
        (f"{A}:1-5", f"{A}:1-5"),
        (f"{A.upper()}:5 , {A}:1-4,\n{B}:7", f"{A}:1-5,{B}:7"),
        (f"{A}:1-3:5-9:4", f"{A}:1-9"),
        (f"{A}:1:3:5", f"{A}:1:3:5"),
        (f"{A}:5-3", ""),
        (f"{A}:foo:1-3:bar:7", f"{A}:bar:7:foo:1-3"),
        (f"{A}:1-2:foo:1-3,{A}:foo:4", f"{A}:1-2:foo:1-4"),
    ],
)
def test_text(text: str, canonical: str) -> None:
    assert str(GtidSet.parse(text)) == canonical
    assert GtidSet.parse(canonical) == GtidSet.parse(text)


@pytest.mark.parametrize(
    "text", ["x", A, f"{A}:0", f"{A}:-1", f"{A}:1-{1 << 63}", f"{A}:9tag:1", f"{A}:{'9' * 5000}"]
)
def test_bad_text(text: str) -> None:
    with pytest.raises(ConfigError):
        GtidSet.parse(text)


def test_arithmetic_equals_that_of_sets() -> None:
    rng = random.Random(7)
    for _ in range(300):
        ours, theirs = GtidSet(), GtidSet()
        left: set[int] = set()
        right: set[int] = set()
        for _ in range(rng.randrange(12)):
            first = rng.randrange(1, 40)
            last = first + rng.randrange(6)
            target, numbers = rng.choice([(ours, left), (theirs, right)])
            target.add_range(A, first, last)
            numbers.update(range(first, last + 1))
        for found, expected in (
            (ours, left),
            (ours.union(theirs), left | right),
            (ours.subtract(theirs), left - right),
        ):
            assert {n for n in range(1, 60) if found.contains(A, n)} == expected
            assert len(found) == len(expected)
            assert GtidSet.parse(str(found)) == found
            assert GtidSet.decode(found.encode()) == found
        assert ours.issubset(theirs) == (left <= right)


def test_wire_form() -> None:
    found = GtidSet.parse(f"{A}:1-5:8")
    body = found.encode()
    assert body[:8] == struct.pack("<Q", 1)
    assert body[24:] == struct.pack("<QQQQQ", 2, 1, 6, 8, 9)
    tagged = GtidSet.parse(f"{A}:1-5:tag_a:2,{B}:1")
    body = tagged.encode()
    assert body[:8] == b"\x01\x03\0\0\0\0\0\x01"
    assert GtidSet.decode(body) == tagged
    for size in range(len(body)):
        with pytest.raises(CorruptEvent):
            GtidSet.decode(body[:size])


def test_hostile_wire_form() -> None:
    with pytest.raises(CorruptEvent):
        GtidSet.decode(struct.pack("<Q", (1 << 56) - 1))
    with pytest.raises(CorruptEvent):
        GtidSet.decode(struct.pack("<Q16sQQQ", 1, b"u" * 16, 1, 9, 3))


def test_appends_stay_one_interval() -> None:
    found = GtidSet()
    for gno in range(1, 10_001):
        found.add(A, gno)
    assert str(found) == f"{A}:1-10000"


def test_mariadb_position() -> None:
    found = MariadbGtid.parse("1-2-3, 0-1-100")
    assert str(found) == "0-1-100,1-2-3"
    found.add(0, 5, 101)
    assert found.contains(0, 101)
    assert not found.contains(2, 1)
    assert MariadbGtid.parse("0-1-100").issubset(found)
    assert not found.issubset(MariadbGtid.parse("0-1-100"))
    body = struct.pack("<IIIQIIQ", 2, 0, 5, 101, 1, 2, 3)
    assert MariadbGtid.decode(body) == found
    for bad in ("1-2", "0-1-1,0-1-2", "a-b-c", f"0-1-{'9' * 5000}", f"{1 << 32}-1-1"):
        with pytest.raises(ConfigError):
            MariadbGtid.parse(bad)
    with pytest.raises(CorruptEvent):
        MariadbGtid.decode(body[:-1])
