"""An ALTER TABLE in two phases, as MariaDB 11.8 logs it with binlog_alter_two_phase=ON: the GTID
events below are its own."""

from __future__ import annotations

import struct

import numpy as np

from ray_canal.binlog.chunk import FLAVOR_MARIADB, ChunkHead, RawChunk
from ray_canal.binlog.parsed import ParsedChunk
from ray_canal.kernels.base.event_types import MARIADB_GTID, QUERY
from ray_canal.schema.ddl_scan import touched
from ray_canal.schema.event_parser import EventParser
from ray_canal.schema.history import place_of
from ray_canal.schema.keeper import SchemaKeeper
from ray_canal.schema.names import Names
from ray_canal.schema.registry import SchemaRegistry

FILE = "mariadb-bin.000001"
ALONE = "7700000000000000000000002910050000000000"
START = "7b000000000000000000000029120500000000"
START_IN_A_GROUP = "7b00000000000000000000002b7e00000000000000" + "1205000000"
GROUP_WITHOUT_PHASES = "7b00000000000000000000002b0200000000000000"
COMMIT = "7c000000000000000000000029147b0000000000000005000000"
ROLLBACK = "7e0000000000000000000000291800000000000000000500000000"
ADD_B = "alter table t add b int"


class _Log:
    """Statements, each in a transaction of its own."""

    def __init__(self) -> None:
        self.data = b""
        self.ends: list[int] = []

    def run(self, gtid: str, sql: str, error: int = 0) -> None:
        self._event(MARIADB_GTID, bytes.fromhex(gtid))
        self._event(QUERY, struct.pack("<IIBHH", 5, 0, 1, error, 0) + b"d\0" + sql.encode())
        self.ends.append(4 + len(self.data))

    def _event(self, kind: int, body: bytes) -> None:
        length = 19 + len(body)
        end = 4 + len(self.data) + length
        self.data += struct.pack("<IBIIIH", 1_700_000_000, kind, 1, length, end, 0) + body

    def chunk(self) -> RawChunk:
        head = ChunkHead(0, FILE, 4, self.ends[-1], has_checksum=False, flavor=FLAVOR_MARIADB)
        return RawChunk(head, np.frombuffer(self.data, np.uint8))

    def parsed(self) -> tuple[ParsedChunk, list[str]]:
        """What is parsed, and the columns of t after each statement."""
        keeper = SchemaKeeper(None, names=Names(0))
        parsed = EventParser(SchemaRegistry(), keeper).parse(self.chunk())
        assert parsed.failure is None
        states = [keeper.history.at("d", "t", place_of(FILE, end)) for end in self.ends]
        return parsed, [
            "?" if state is None or state.problem else " ".join(c.name for c in state.columns)
            for state in states
        ]


def test_the_table_changes_with_the_commit_and_once() -> None:
    log = _Log()
    log.run(ALONE, "create table t (a int)")
    log.run(START, ADD_B)
    log.run(ALONE, "create table other (a int)")  # of another session, in between
    log.run(COMMIT, ADD_B)
    parsed, columns = log.parsed()
    assert columns == ["a", "a", "a", "a b"]
    assert [record.is_silent for record in parsed.queries] == [False, True, False, False]
    assert [change.position for change in parsed.changes if change.table == "t"] == [
        int(parsed.events["position"][0]), int(parsed.events["position"][3]),
    ]  # fmt: skip


def test_a_rolled_back_one_changes_nothing() -> None:
    log = _Log()
    log.run(ALONE, "create table t (a int)")
    log.run(START_IN_A_GROUP, "alter table t rename column a to b")
    log.run(ROLLBACK, "alter table t rename column a to b", error=1062)
    log.run(GROUP_WITHOUT_PHASES, "alter table t add c int")
    parsed, columns = log.parsed()
    assert columns == ["a", "a", "a", "a c"]
    assert [record.is_silent for record in parsed.queries] == [False, True, True, False]


def test_a_scan_for_ddl_counts_the_commit_alone() -> None:
    log = _Log()
    log.run(START, ADD_B)
    log.run(ROLLBACK, ADD_B, error=1062)
    log.run(START, "alter table s add c int")
    log.run(COMMIT, "alter table s add c int")
    ends = place_of(FILE, 4), place_of(FILE, log.ends[-1] + 1)
    found = touched([log.chunk()], *ends, [("d", "t"), ("d", "s")], Names(0))
    assert list(found.tables) == [("d", "s")]
