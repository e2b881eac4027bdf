"""Result sets as bytes: every value of a row in its place, errors in the midst, hostile bytes."""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ray_canal.config import SourceConfig
from ray_canal.errors import (
    CanalError,
    ConnectionLost,
    CorruptEvent,
    SourceError,
    TableMetaMismatch,
    UnsupportedEvent,
)
from ray_canal.model.table_meta import ColumnMeta, TableMeta
from ray_canal.snapshot.chunks import Origin, decoded
from ray_canal.snapshot.columns import ResultColumn, Selection, selection
from ray_canal.snapshot.result import ResultReader
from ray_canal.types import mysql as t
from ray_canal.views.arrow import batches

META = TableMeta(
    "d",
    "t",
    (
        ColumnMeta("id", t.LONG, "int", nullable=False, is_key=True),
        ColumnMeta("name", t.VARCHAR, "varchar(20)", charset="utf8mb4", length=20),
        ColumnMeta("price", t.NEWDECIMAL, "decimal(12,2)", precision=12, scale=2),
        ColumnMeta("wide", t.NEWDECIMAL, "decimal(60,30)", precision=60, scale=30),
        ColumnMeta("at", t.DATETIME2, "datetime(6)", fraction=6),
        ColumnMeta("old", t.VARCHAR, "varchar(20)", charset="latin1", length=20),
    ),
)
KINDS = (t.LONG, t.VAR_STRING, t.NEWDECIMAL, t.NEWDECIMAL, t.DATETIME, t.VAR_STRING)
PACKET, LONG = 0xFFFFFF, 20 << 20
"""Longest body of a packet; a text that is longer."""
ROW = (7, b"caf\xc3\xa9", b"-12.30", b"1.5", (2026, 2, 3, 4, 5, 6, 7), b"\xe9")


def packet(body: bytes, number: int = 0) -> bytes:
    return struct.pack("<I", len(body))[:3] + bytes([number]) + body


def packed(data: bytes) -> bytes:
    if len(data) < 251:
        return bytes([len(data)]) + data
    return b"\xfc" + struct.pack("<H", len(data)) + data


def row_of(values: tuple[Any, ...]) -> bytes:
    bits, body = bytearray((len(values) + 9) // 8), b""
    for number, value in enumerate(values):
        if value is None:
            bits[(number + 2) >> 3] |= 1 << ((number + 2) & 7)
        elif isinstance(value, int):
            body += struct.pack("<i", value)
        elif isinstance(value, bytes):
            body += packed(value)
        else:
            body += b"\x0b" + struct.pack("<HBBBBBI", *value)
    return packet(b"\0" + bytes(bits) + body)


END = packet(b"\xfe\0\0\0\0")


def definitions() -> bytes:
    found = b""
    for column, kind in zip(META.columns, KINDS, strict=True):
        names = b"".join(map(packed, (b"def", b"d", b"t", b"t", column.name.encode(), b"")))
        found += packet(names + b"\x0c" + struct.pack("<HIBHBH", 255, 20, kind, 0, 0, 0))
    return found + END


def head() -> bytes:
    return packet(bytes([len(KINDS)])) + definitions()


class Server:
    """The other end of a connection: it answers a statement's execution with given bytes."""

    def __init__(self, answer: bytes) -> None:
        self._sock, self._far = socket.socketpair()
        self._answer = answer
        self._read_timeout, self._current_timeout = 15.0, 15.0
        self._sock.settimeout(self._read_timeout)

    def _execute_command(self, code: int, body: bytes) -> None:
        if code == 0x16:
            self._far.sendall(packet(b"\0" + struct.pack("<IHHBH", 1, len(KINDS), 0, 0, 0)))
            self._far.sendall(definitions())
        elif code == 0x17:
            threading.Thread(target=self._send, daemon=True).start()

    def _send(self) -> None:
        try:
            self._far.sendall(self._answer)
            self._far.shutdown(socket.SHUT_WR)
        except OSError:
            return  # the reader has seen enough

    def close(self) -> None:
        self._sock.close()
        self._far.close()


def read(
    answer: bytes, buffer_bytes: int = 1 << 12, **settings: Any
) -> Iterator[dict[str, Any]]:
    server, wanted = Server(answer), selection(META)
    config = SourceConfig(address="127.0.0.1:1", username="root", **settings)
    try:
        reader = ResultReader(server, config, buffer_bytes)
        sql = f"SELECT {wanted.expressions} FROM t"
        for piece in reader.pieces(sql, wanted, "`id` > 4"):
            chunk = decoded(wanted, piece, Origin("x.1", 4), 0)
            for batch in batches(chunk, 0, chunk.layout.event_count):
                yield from (row["after"] for row in batch.to_pylist())
    finally:
        server.close()


def test_values_are_in_their_places() -> None:
    rows = [ROW, (8, None, None, None, None, None), (9, b"", b"0.05", b"-0.5", None, b"\x80")]
    found = list(read(head() + b"".join(map(row_of, rows)) + END))
    texts = [{name: str(value) for name, value in row.items()} for row in found]
    assert texts[0] == {
        "id": "7", "name": "café", "price": "-12.30", "wide": "1.5" + "0" * 29,
        "at": "2026-02-03 04:05:06.000007", "old": "é",
    }  # fmt: skip
    assert set(texts[1].values()) == {"8", "None"}
    assert (texts[2]["price"], texts[2]["wide"][:4], texts[2]["old"]) == ("0.05", "-0.5", "€")


def test_the_connection_keeps_its_timeout() -> None:
    """Else whatever it is asked next would have milliseconds."""
    server, wanted = Server(head() + row_of(ROW) + END), selection(META)
    reader = ResultReader(server, SourceConfig(address="127.0.0.1:1", username="root"))
    assert [piece.rows for piece in reader.pieces("SELECT 1", wanted)] == [1]
    assert server._sock.gettimeout() == server._current_timeout == 15.0
    server.close()


def test_rows_larger_and_smaller_than_the_buffer() -> None:
    rows = [(key, b"x" * (key % 7 * 3000), None, None, None, None) for key in range(300)]
    found = list(read(head() + b"".join(map(row_of, rows)) + END))
    assert [(row["id"], len(row["name"])) for row in found] == [
        (key, key % 7 * 3000) for key in range(300)
    ]


def test_rows_of_several_packets() -> None:
    """Also where the last one of them is empty, and between rows that are short."""
    name = b"\xfe" + struct.pack("<Q", LONG) + b"x" * LONG
    long = row_of((2, b"", None, None, None, None))[4:-1] + name
    rest = long[PACKET:]
    exact = row_of((3, b"", None, None, None, None))[4:-1]
    size = PACKET - len(exact) - 9
    exact += b"\xfe" + struct.pack("<Q", size) + b"y" * size
    rows = [row_of(ROW), packet(long[:PACKET]), packet(rest, 1), row_of(ROW),
            packet(exact), packet(b""), row_of((9, None, None, None, None, None))]  # fmt: skip
    found = list(read(head() + b"".join(rows) + END))
    assert [row["id"] for row in found] == [7, 2, 7, 3, 9]
    assert found[1]["name"] == "x" * LONG
    assert found[3]["name"] == "y" * size


@pytest.mark.parametrize("size", [(1 << 20) + 1, LONG])
def test_a_row_that_is_too_long_is_refused_by_name(size: int) -> None:
    name = b"\xfe" + struct.pack("<Q", size) + b"x" * size
    body = row_of((2, b"", None, None, None, None))[4:-1] + name
    parts = [packet(body[at : at + PACKET]) for at in range(0, len(body), PACKET)]
    found = []
    with pytest.raises(UnsupportedEvent) as caught:
        found.extend(read(head() + row_of(ROW) + b"".join(parts), event_bytes_max=1 << 20))
    assert len(found) == 1
    assert str(caught.value).startswith(
        "d.t: a row with `id` > 4 has more bytes than source.event_bytes_max (1,048,576): raise"
    )


def test_text_that_is_not_utf8_is_read_by_character() -> None:
    [row] = read(head() + row_of((1, b"a\xffb", None, None, None, None)) + END)
    assert row["name"] == "a\ufffdb"


def test_an_error_in_the_midst_of_rows() -> None:
    error = packet(b"\xff" + struct.pack("<H", 1317) + b"#70100Query execution was interrupted")
    found = []
    with pytest.raises(ConnectionLost, match="interrupted"):
        found.extend(read(head() + row_of(ROW) * 3 + error))
    assert len(found) == 3
    error = packet(b"\xff" + struct.pack("<H", 1412) + b"#HY000Table definition has changed")
    with pytest.raises(SourceError, match="definition has changed"):
        list(read(head() + row_of(ROW) + error))


def test_a_result_that_is_cut_off() -> None:
    for size in (0, 3, 60):
        with pytest.raises(ConnectionLost, match="closed the connection"):
            list(read(head() + row_of(ROW) + row_of(ROW)[:size]))


def test_other_columns_than_were_asked_for() -> None:
    wanted = selection(META)
    fitting = [ResultColumn(c.name, k, 0) for c, k in zip(META.columns, KINDS, strict=True)]
    wanted.check(fitting)
    with pytest.raises(TableMetaMismatch, match="5 columns came, 6 were asked for"):
        wanted.check(fitting[:-1])
    with pytest.raises(TableMetaMismatch, match=r"d\.t\.id is int in the schema, LONGLONG"):
        wanted.check([fitting[0]._replace(kind=t.LONGLONG), *fitting[1:]])
    with pytest.raises(TableMetaMismatch, match=r"d\.t\.id is int"):
        wanted.check([fitting[0]._replace(flags=32), *fitting[1:]])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((1, None, b"1x.00", None, None, None), "a decimal has impossible digits"),
        ((1, None, b"-", None, None, None), "a decimal has impossible digits"),
        ((1, None, b"1.234", None, None, None), "a decimal has impossible digits"),
        ((1, None, None, b"9" * 90, None, None), "a decimal has impossible digits"),
        ((1, None, None, None, (2026, 2, 3, 4, 5, 6, 1_000_000), None), "a date or time"),
        ((1, None, None, None, (2026, 2, 3, 77, 5, 6, 0), None), "a date or time"),
    ],
)
def test_impossible_values(values: tuple[Any, ...], message: str) -> None:
    with pytest.raises(CorruptEvent, match=message):
        list(read(head() + row_of(values) + END))


def test_random_damage_gives_rows_or_an_error() -> None:
    r = random.Random(5)
    whole = head() + b"".join(row_of((key, *ROW[1:])) for key in range(20)) + END
    for _ in range(150):
        damaged = bytearray(whole)
        for _ in range(r.randint(1, 4)):
            damaged[r.randrange(len(head()), len(whole))] = r.choice([0, 1, 250, 252, 254, 255])
        try:
            assert len(list(read(bytes(damaged)))) <= len(damaged)
        except CanalError:
            continue


def test_a_selection_names_hidden_and_quoted_columns() -> None:
    meta = TableMeta("d", "t", (ColumnMeta("a`b", t.ENUM, "enum('x')", labels=("x",)),))
    found: Selection = selection(meta)
    assert found.expressions == "CAST(`a``b` AS UNSIGNED) | 0"
