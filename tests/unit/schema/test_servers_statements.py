"""CREATE TABLE that the server writes itself, as MariaDB 11.8 and MySQL 9.7 do for SELECT and LIKE
a temporary table."""

from __future__ import annotations

import pytest

from ray_canal.binlog.chunk import FLAVOR_MYSQL
from tests.unit.schema.mariadb_log import ALONE, MariaDbLog

IN_A_TRANSACTION = "73000000000000000000000028100600000000"
THREAD_SPECIFIC = 4
LATIN1, GBK, UTF8MB4 = 8, 28, 45


@pytest.mark.parametrize(
    ("gtid", "flags"), [(IN_A_TRANSACTION, 0), (ALONE, THREAD_SPECIFIC)], ids=["select", "like"]
)
@pytest.mark.parametrize("client", [LATIN1, GBK, UTF8MB4])
def test_a_create_table_that_the_server_writes_is_utf8(gtid: str, flags: int, client: int) -> None:
    log = MariaDbLog()
    log.run(gtid, "CREATE TABLE `t` (\n  `é2` int(11) DEFAULT NULL\n)", flags=flags, client=client)
    assert log.parsed()[1] == ["é2"]


def test_mysql_writes_utf8_too() -> None:
    log = MariaDbLog(FLAVOR_MYSQL)
    log.run("", "BEGIN", client=LATIN1)
    log.run("", "CREATE TABLE `t` (\n  `é` int NOT NULL\n) START TRANSACTION", client=LATIN1)
    assert log.parsed()[1][-1] == "é"
    log = MariaDbLog(FLAVOR_MYSQL)
    log.run("", "CREATE TABLE `t` (\n  `é2` int\n) ENGINE=InnoDB", flags=4, client=GBK)
    assert log.parsed()[1] == ["é2"]


@pytest.mark.parametrize(("gtid", "flags"), [(IN_A_TRANSACTION, 0), (ALONE, 0)])
def test_other_statements_are_of_the_clients_character_set(gtid: str, flags: int) -> None:
    log = MariaDbLog()
    log.run(gtid, "CREATE TABLE `t` (`é` int)".encode("latin-1"), flags=flags, client=LATIN1)
    assert log.parsed()[1] == ["é"]
    log = MariaDbLog()
    log.run(ALONE, "CREATE TABLE `t` (`é` int)", client=LATIN1)
    assert log.parsed()[1] == ["Ã©"]
