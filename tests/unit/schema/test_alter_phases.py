"""An ALTER TABLE in two phases, as MariaDB 11.8 logs it with binlog_alter_two_phase=ON: the GTID
events below are its own."""

from __future__ import annotations

from ray_canal.schema.ddl_scan import touched
from ray_canal.schema.history import place_of
from ray_canal.schema.names import Names
from tests.unit.schema.mariadb_log import ALONE, FILE, MariaDbLog

START = "7b000000000000000000000029120500000000"
START_IN_A_GROUP = "7b00000000000000000000002b7e00000000000000" + "1205000000"
GROUP_WITHOUT_PHASES = "7b00000000000000000000002b0200000000000000"
COMMIT = "7c000000000000000000000029147b0000000000000005000000"
ROLLBACK = "7e0000000000000000000000291800000000000000000500000000"
ADD_B = "alter table t add b int"


def test_the_table_changes_with_the_commit_and_once() -> None:
    log = MariaDbLog()
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
    log = MariaDbLog()
    log.run(ALONE, "create table t (a int)")
    log.run(START_IN_A_GROUP, "alter table t rename column a to b")
    log.run(ROLLBACK, "alter table t rename column a to b", error=1062)
    log.run(GROUP_WITHOUT_PHASES, "alter table t add c int")
    parsed, columns = log.parsed()
    assert columns == ["a", "a", "a", "a c"]
    assert [record.is_silent for record in parsed.queries] == [False, True, True, False]


def test_a_scan_for_ddl_counts_the_commit_alone() -> None:
    log = MariaDbLog()
    log.run(START, ADD_B)
    log.run(ROLLBACK, ADD_B, error=1062)
    log.run(START, "alter table s add c int")
    log.run(COMMIT, "alter table s add c int")
    ends = place_of(FILE, 4), place_of(FILE, log.ends[-1] + 1)
    found = touched([log.chunk()], *ends, [("d", "t"), ("d", "s")], Names(0))
    assert list(found.tables) == [("d", "s")]
