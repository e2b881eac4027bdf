"""What the fuzzer starts from: short runs of events cut out of the real binlogs in the tree."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import compress
from pathlib import Path

HEADER_BYTES = 19
MAGIC = b"\xfebin"
_EVENT_BYTES_MAX = 8 << 10
_LONG_BYTES, _SHORT_BYTES = 3 << 10, 300
"""Of pieces, without FORMAT_DESCRIPTION: some are twice as long, a large event may be alone."""

_ROOT = Path(__file__).resolve().parents[2]
_GTID_KINDS = (33, 34, 42, 162)
TABLE_MAP, QUERY, PAYLOAD = 19, 2, 40
ROWS = (23, 24, 25, 30, 31, 32, 39)


@dataclass(frozen=True, slots=True)
class Piece:
    """A FORMAT_DESCRIPTION and some events behind it. `schema_sql`: CREATE TABLEs of its tables,
    empty where row metadata or DDL tells them."""

    name: str
    events: tuple[bytes, ...]
    has_checksum: bool
    mariadb: bool
    schema_sql: str

    @property
    def data(self) -> bytes:
        return b"".join(self.events)


def kind_of(event: bytes | bytearray) -> int:
    return event[4]


def split_events(data: bytes) -> Iterator[bytes]:
    at = len(MAGIC)
    while at + HEADER_BYTES <= len(data):
        length = struct.unpack_from("<I", data, at + 9)[0]
        yield data[at : at + length]
        at += length


@lru_cache(maxsize=1)
def pieces() -> tuple[Piece, ...]:
    """Long ones, of several transactions; in one order on every machine."""
    return tuple(piece for path in _paths() for piece in _pieces_of(path, _LONG_BYTES))


@lru_cache(maxsize=1)
def short_pieces() -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    """The same events, a transaction each or a part of it, those with rows first: what has no need
    of others is tried several times as often in the same time."""
    short = [piece for path in _paths() for piece in _pieces_of(path, _SHORT_BYTES)]
    has_rows = [any(kind_of(event) in ROWS for event in piece.events) for piece in short]
    rest = [not has for has in has_rows]
    return tuple(compress(short, has_rows)), tuple(compress(short, rest))


def _paths() -> list[Path]:
    paths = sorted((_ROOT / "tests/golden/data").glob("*/*.binlog"))
    return paths + sorted((_ROOT / "ray_canal/demo").glob("mysql-bin.*"))


def _pieces_of(path: Path, piece_bytes: int) -> Iterator[Piece]:
    events = list(split_events(path.read_bytes()))
    schema = path.with_name(path.name.replace(".binlog", ".schema.sql"))
    is_golden = path.suffix == ".binlog" and schema.exists()
    sql = schema.read_text(encoding="utf-8") if is_golden else ""
    head, body = events[0], events[1:]
    mariadb = b"MariaDB" in head[:80]
    has_checksum = head[-5] == 1
    if path.name.startswith("mysql-bin"):
        body = body[:160]  # its rows are alike
    # Of MariaDB, only a long piece may have the DDL that its tables are known by.
    has_own = "mysql97" in path.parts or (mariadb and piece_bytes == _LONG_BYTES)
    schemas = sorted({sql, ""}) if has_own else [sql]
    for number, run in enumerate(_runs(body, piece_bytes)):
        for text in schemas:
            name = f"{path.name}/{piece_bytes}#{number}{'+schema' if text else ''}"
            yield Piece(name, (head, *run), has_checksum, mariadb, text)


def _runs(events: list[bytes], piece_bytes: int) -> Iterator[list[bytes]]:
    """Consecutive events, whole transactions where they are short; none is very long."""
    run: list[bytes] = []
    size = 0
    for event in events:
        if len(event) > _EVENT_BYTES_MAX:
            continue
        opens = kind_of(event) in _GTID_KINDS
        if run and (size > piece_bytes // 2 if opens else size + len(event) > 2 * piece_bytes):
            yield run
            # What follows needs the statement's tables.
            maps = [] if opens else [e for e in run if kind_of(e) == TABLE_MAP][-2:]
            run, size = list(maps), sum(map(len, maps))
        run.append(event)
        size += len(event)
    if run:
        yield run
