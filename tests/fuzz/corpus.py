"""What the fuzzer starts from: short runs of events cut out of the real binlogs in the tree."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

HEADER_BYTES = 19
MAGIC = b"\xfebin"
_EVENT_BYTES_MAX = 8 << 10
_PIECE_BYTES = 3 << 10

_ROOT = Path(__file__).resolve().parents[2]
_GTID_KINDS = (33, 34, 42, 162)
_TABLE_MAP = 19


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
    """Every piece, in one order on every machine."""
    paths = sorted((_ROOT / "tests/golden/data").glob("*/*.binlog"))
    paths += sorted((_ROOT / "ray_canal/demo").glob("mysql-bin.*"))
    return tuple(piece for path in paths for piece in _pieces_of(path))


def _pieces_of(path: Path) -> Iterator[Piece]:
    events = list(split_events(path.read_bytes()))
    schema = path.with_name(path.name.replace(".binlog", ".schema.sql"))
    is_golden = path.suffix == ".binlog" and schema.exists()
    sql = schema.read_text(encoding="utf-8") if is_golden else ""
    head, body = events[0], events[1:]
    mariadb = b"MariaDB" in head[:80]
    has_checksum = head[-5] == 1
    if path.name.startswith("mysql-bin"):
        body = body[:160]  # its rows are alike
    schemas = [sql] if not mariadb and "mysql97" not in path.parts else sorted({sql, ""})
    for number, run in enumerate(_runs(body)):
        for text in schemas:
            name = f"{path.name}#{number}{'+schema' if text else ''}"
            yield Piece(name, (head, *run), has_checksum, mariadb, text)


def _runs(events: list[bytes]) -> Iterator[list[bytes]]:
    """Consecutive events, whole transactions where they are short; none is very long."""
    run: list[bytes] = []
    size = 0
    for event in events:
        if len(event) > _EVENT_BYTES_MAX:
            continue
        opens = kind_of(event) in _GTID_KINDS
        if run and (size > _PIECE_BYTES // 2 if opens else size + len(event) > 2 * _PIECE_BYTES):
            yield run
            # What follows needs the statement's tables.
            maps = [] if opens else [e for e in run if kind_of(e) == _TABLE_MAP][-2:]
            run, size = list(maps), sum(map(len, maps))
        run.append(event)
        size += len(event)
    if run:
        yield run
