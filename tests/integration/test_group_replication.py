"""MySQL's group replication as a source (Manual, 20): GTIDs of the group, given in blocks, whoever
has written; a snapshot next to writers, and a primary that dies."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_canal.client.connector import Connector
from ray_canal.client.transport import RayTransport
from ray_canal.config import SourceConfig
from ray_canal.source.catalog import Catalog
from ray_canal.source.membership import why_apart
from tests.clusters import FILLED, held, source_of, writing
from tests.in_process_sink import destination, until
from tests.servers import Server, start
from tests.servers.fetch import tree_of
from tests.servers.run import free_port

GROUP = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"
MEMBERS = "SELECT member_port, member_role FROM performance_schema.replication_group_members"


@contextlib.contextmanager
def group(folder: Path, *, multi_primary: bool) -> Iterator[list[Server]]:
    """Three members; the first one is primary, or all are."""
    ports = [free_port() for _ in range(3)]
    options = {
        "plugin-dir": str(tree_of("mysql97") / "root" / "usr" / "lib" / "mysql" / "plugin"),
        "plugin-load-add": "group_replication.so",
        "performance-schema": "ON",
        "report-host": "127.0.0.1",
        "group-replication-group-name": GROUP,
        "group-replication-group-seeds": ",".join(f"127.0.0.1:{port}" for port in ports),
        "group-replication-start-on-boot": "OFF",
        "group-replication-recovery-get-public-key": "ON",
        "group-replication-single-primary-mode": "OFF" if multi_primary else "ON",
        "group-replication-enforce-update-everywhere-checks": "ON" if multi_primary else "OFF",
    }
    with contextlib.ExitStack() as stack:
        members = []
        for number, port in enumerate(ports):
            local = {"group-replication-local-address": f"127.0.0.1:{port}"}
            own = {**options, **local, "server-id": str(number + 1)}
            member = stack.enter_context(start("mysql97", folder / str(number), own))
            first = "ON" if number == 0 else "OFF"
            member.execute(
                "SET sql_log_bin = 0",
                "CREATE USER repl@'%' IDENTIFIED BY 'p'",
                "GRANT REPLICATION SLAVE, CONNECTION_ADMIN, BACKUP_ADMIN, GROUP_REPLICATION_STREAM"
                " ON *.* TO repl@'%'",
                "RESET BINARY LOGS AND GTIDS",
                "CHANGE REPLICATION SOURCE TO SOURCE_USER = 'repl', SOURCE_PASSWORD = 'p'"
                " FOR CHANNEL 'group_replication_recovery'",
                f"SET GLOBAL group_replication_bootstrap_group = {first}",
                "START GROUP_REPLICATION",
                "SET GLOBAL group_replication_bootstrap_group = OFF",
            )
            members.append(member)
        online = MEMBERS + " WHERE member_state = 'ONLINE'"
        until(lambda: len(members[0].execute(online)) == len(members))
        members[0].execute(
            "CREATE DATABASE l",
            "CREATE TABLE l.t (id INT PRIMARY KEY, v INT)",
            f"INSERT INTO l.t {FILLED} SELECT i, 0 FROM n",
        )
        yield members


def primary_of(members: list[Server]) -> Server:
    """The primary that the others see, once the group has chosen one."""
    by_port = {member.port: member for member in members}

    def found() -> list[Server]:
        rows = members[0].execute(MEMBERS)
        return [by_port[port] for port, role in rows if role == "PRIMARY" and port in by_port]

    until(lambda: bool(found()))
    return found()[0]


@pytest.mark.soak
@pytest.mark.parametrize("multi_primary", [False, True])
def test_a_snapshot_beside_writers_and_the_death_of_a_primary(
    tmp_path: Path, multi_primary: bool
) -> None:
    """What a subscriber holds in the end is what the table holds. With one primary it dies."""
    with group(tmp_path / "group", multi_primary=multi_primary) as members:
        places = [members[:1], members[1:2] if multi_primary else members[:1]]
        folder = tmp_path / "destination"
        with (
            destination(folder, source=source_of(members)) as running,
            held(r"l\.t", "initial") as rows,
        ):
            with writing(places):
                api = running.destination.api
                until(lambda: running.ask(api.snapshot(7, "status"))["state"] == "done")
                rest = members
                if not multi_primary:
                    members[0].kill()
                    rest = members[1:]
                    for servers in places:
                        servers.append(primary_of(rest))
                    time.sleep(3.0)
            until(lambda: rows == dict(rest[0].execute("SELECT id, v FROM l.t")))
            assert len(rows) > 300


@pytest.mark.soak
def test_a_member_that_has_left_its_group_is_left(tmp_path: Path) -> None:
    """It answers, and nothing new comes into its log."""
    with group(tmp_path / "group", multi_primary=True) as members:
        catalog = Catalog(SourceConfig(address=members[0].address, username="root"))
        with destination(tmp_path / "destination", source=source_of(members)):
            connector = Connector(RayTransport("x"), 7)
            connector.subscribe(r"l\.t", start="tail")
            assert not why_apart(catalog)
            members[0].execute("STOP GROUP_REPLICATION")
            assert "it is OFFLINE in its replication group" in why_apart(catalog)
            members[1].execute("INSERT INTO l.t VALUES (5000, 1)")
            found: list[int] = []

            def has_come() -> bool:
                message = connector.get_without_ack(100, 0.5)
                for batch in message.batches:
                    found.extend(row["after"]["id"] for row in batch.to_pylist())
                connector.ack(message.id)
                return found == [5000]

            until(has_come)
        catalog.close()
