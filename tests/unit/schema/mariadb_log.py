"""A chunk of a log, MariaDB's or without GTIDs MySQL's, made of statements, for tests."""

from __future__ import annotations

import struct

import numpy as np

from ray_canal.binlog.chunk import FLAVOR_MARIADB, ChunkHead, RawChunk
from ray_canal.binlog.parsed import ParsedChunk
from ray_canal.kernels.base.event_types import MARIADB_GTID, QUERY
from ray_canal.schema.event_parser import EventParser
from ray_canal.schema.history import place_of
from ray_canal.schema.keeper import SchemaKeeper
from ray_canal.schema.names import Names
from ray_canal.schema.registry import SchemaRegistry

FILE = "mariadb-bin.000001"
ALONE = "77000000000000000000000029100500000000"


class MariaDbLog:
    """Statements in the database d, each behind a GTID event of its own."""

    def __init__(self, flavor: str = FLAVOR_MARIADB) -> None:
        self.flavor = flavor
        self.data = b""
        self.ends: list[int] = []

    def run(
        self, gtid: str, sql: str | bytes, *, error: int = 0, flags: int = 0, client: int = 45
    ) -> None:
        """Append a statement. `gtid`: the body of its GTID event in hexadecimal, or none;
        `flags`: of its header; `client`: the session's character set, as a collation's id."""
        if gtid:
            self._event(MARIADB_GTID, bytes.fromhex(gtid))
        status = b"\x04" + struct.pack("<HHH", client, client, 45)
        body = struct.pack("<IIBHH", 5, 0, 1, error, len(status)) + status + b"d\0"
        self._event(QUERY, body + (sql if isinstance(sql, bytes) else sql.encode()), flags)
        self.ends.append(4 + len(self.data))

    def _event(self, kind: int, body: bytes, flags: int = 0) -> None:
        length = 19 + len(body)
        end = 4 + len(self.data) + length
        self.data += struct.pack("<IBIIIH", 1_700_000_000, kind, 1, length, end, flags) + body

    def chunk(self) -> RawChunk:
        head = ChunkHead(0, FILE, 4, self.ends[-1], has_checksum=False, flavor=self.flavor)
        return RawChunk(head, np.frombuffer(self.data, np.uint8))

    def parsed(self) -> tuple[ParsedChunk, list[str]]:
        """What is parsed, and the columns of the table t after each statement."""
        keeper = SchemaKeeper(None, names=Names(0))
        parsed = EventParser(SchemaRegistry(), keeper).parse(self.chunk())
        assert parsed.failure is None
        states = [keeper.history.at("d", "t", place_of(FILE, end)) for end in self.ends]
        return parsed, [
            "?" if state is None or state.problem else " ".join(c.name for c in state.columns)
            for state in states
        ]
