"""`ray-canal check` on real servers: what is wrong is named, and what it says to run mends it."""

from __future__ import annotations

import re

import pytest

from ray_canal.source.checks import check_source
from ray_canal.source.setting_checks import CheckResult
from tests.dumps import instance, kinds_of, new_bytes, opened, read_until
from tests.servers import Server


def results(server: Server, **settings: object) -> dict[str, CheckResult]:
    return {each.name: each for each in check_source(instance(server, **settings))}


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("binlog_format", "'MIXED'"),
        ("binlog_row_image", "'MINIMAL'"),
        ("binlog_row_metadata", "'MINIMAL'"),
        ("binlog_checksum", "'NONE'"),
        ("binlog_expire_logs_seconds", "3600"),
    ],
)
def test_what_is_said_to_run_mends_it(mysql97: Server, name: str, bad: str) -> None:
    check = "binlog retention" if name == "binlog_expire_logs_seconds" else name
    ((before,),) = mysql97.execute(f"SELECT @@GLOBAL.{name}")
    mysql97.execute(f"SET GLOBAL {name} = {bad}")
    try:
        found = results(mysql97)[check]
        assert not found.ok
        statement = found.fix.partition(" (")[0].partition(";")[0].partition(": ")[0]
        mysql97.execute(statement)
        assert results(mysql97)[check].ok
    finally:
        mysql97.execute(f"RESET PERSIST IF EXISTS {name}", f"SET GLOBAL {name} = {before!r}")


def test_a_filter_that_admits_no_table_that_is_there(server: Server) -> None:
    assert results(server)["filter"].ok  # a server without tables has none to admit
    server.execute("CREATE DATABASE filtered", "CREATE TABLE filtered.orders (id INT PRIMARY KEY)")
    try:
        given = instance(server)
        found = []
        for tables in (r"filtered\.order", r"filtered\..*"):
            changed = given.model_copy(update={"filter": given.filter.changed({"tables": tables})})
            found.append(next(each for each in check_source(changed) if each.name == "filter"))
    finally:
        server.execute("DROP DATABASE filtered")
    assert [(each.ok, each.advisory) for each in found] == [(False, True), (True, False)]
    told = r"'filtered\\\.order' admits 0 of the \d+ tables that 'root' may see"
    assert re.fullmatch(told, found[0].detail)


def test_tables_that_a_first_snapshot_cannot_read(server: Server) -> None:
    given = instance(server, snapshot="initial")
    given = given.model_copy(update={"filter": given.filter.changed({"tables": r"keyless\..*"})})

    def found() -> CheckResult:
        return next(each for each in check_source(given) if each.name == "source.snapshot")

    with server.with_database("keyless"):
        server.execute(
            "CREATE TABLE keyless.a (id INT PRIMARY KEY)",
            "CREATE TABLE keyless.b (id INT NOT NULL, v INT, UNIQUE (id), KEY (v))",
        )
        assert found().ok
        server.execute(
            "CREATE TABLE keyless.log (msg TEXT)",
            "CREATE TABLE keyless.pair (id INT NOT NULL, v INT, UNIQUE (id, v))",
        )
        assert not found().ok
        assert found().detail.endswith("told apart: keyless.log, keyless.pair")


def test_rows_that_foreign_keys_change_unseen(server: Server) -> None:
    """By the user that the documents tell to make: MariaDB shows it no rules in its catalog. What
    is said is what the log has."""
    user = {"username": "canal_keys", "password": "s3cret"}

    def found(tables: str) -> CheckResult:
        given = instance(server, **user)
        given = given.model_copy(update={"filter": given.filter.changed({"tables": tables})})
        return next(each for each in check_source(given) if each.name == "foreign keys")

    parent = "p INT, FOREIGN KEY (p) REFERENCES p (id)"
    with server.with_database("keyed_fk"):
        server.execute(
            "DELETE FROM mysql.user WHERE User = ''" if server.kind == "mysql56" else "DO 0",
            "FLUSH PRIVILEGES",
            "CREATE USER canal_keys IDENTIFIED BY 's3cret'",
            "GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO canal_keys",
            "USE keyed_fk",
            "CREATE TABLE p (id INT PRIMARY KEY)",
            f"CREATE TABLE plain (id INT PRIMARY KEY, {parent})",
            f"CREATE TABLE `od``d` (id INT PRIMARY KEY COMMENT 'ON DELETE CASCADE', {parent}"
            " ON UPDATE SET NULL)",
            "INSERT INTO p VALUES (1)",
            "INSERT INTO `od``d` VALUES (1, 1)",
        )
        try:
            with opened(instance(server)) as source:
                server.execute("UPDATE keyed_fk.p SET id = 2")
                chunks = read_until(source, *server.position())
            rows = [kind for chunk in chunks for kind in kinds_of(chunk) if kind in (24, 31)]
            child = found(r"keyed_fk\..*")
            assert child.ok == (len(rows) == 2)
            assert child.ok == (server.kind == "mysql97")
            assert child.advisory != child.ok
            assert child.ok or "of keyed_fk.od`d, and this" in child.detail
            assert found(r"keyed_fk\.p.*").ok
        finally:
            server.execute("DROP USER canal_keys")


def test_a_server_id_that_somebody_uses(server: Server) -> None:
    assert results(server, server_id=4711)["source.server_id"].ok
    with opened(instance(server, server_id=4711)):
        taken = results(server, server_id=4711)["source.server_id"]
        assert (taken.ok, taken.advisory) == (False, True)
    ((own,),) = server.execute("SELECT @@server_id")
    assert not results(server, server_id=own)["source.server_id"].ok


def test_every_server_of_several_is_checked(mysql97: Server) -> None:
    host, _, port = mysql97.address.partition(":")
    found = results(mysql97, standby=[f"localhost:{port}", f"{host}:1"])
    assert found[f"{mysql97.address} server_uuid"].ok
    twice = found[f"localhost:{port} server_uuid"]
    assert not twice.ok
    assert mysql97.address in twice.detail
    assert not found[f"{host}:1 connection"].ok
    assert found[f"{mysql97.address} detect_sql"].ok
    wrong = results(mysql97, standby=[f"localhost:{port}"], detect_sql="SELECT nonsense")
    assert not wrong[f"{mysql97.address} detect_sql"].ok


def test_time_zones_and_clocks(server: Server) -> None:
    found = results(server)
    assert found["clock"].ok
    ((before,),) = server.execute("SELECT @@GLOBAL.time_zone")
    server.execute("SET GLOBAL time_zone = '+05:30'")
    try:
        zone = results(server)["time_zone"]
    finally:
        server.execute(f"SET GLOBAL time_zone = '{before}'")
    assert (zone.ok, zone.advisory) == (False, True)
    assert "+05:30" in zone.detail


@pytest.mark.parametrize("log_format", ["MIXED", "STATEMENT"])
def test_binlog_format(
    server: Server, log_format: str, caplog: pytest.LogCaptureFixture
) -> None:
    """a5, b10: a server whose log has statements is read, as Canal reads it, with a warning."""
    server.execute("CREATE DATABASE sbr", "CREATE TABLE sbr.t (id INT PRIMARY KEY, v VARCHAR(40))")
    server.execute(f"SET GLOBAL binlog_format = '{log_format}'")
    try:
        with opened(instance(server)) as source:
            server.execute("INSERT INTO sbr.t VALUES (1, 'as a statement')")
            if log_format == "MIXED":  # what is not deterministic is written as rows
                server.execute("INSERT INTO sbr.t VALUES (2, UUID())")
            chunks = read_until(source, *server.position())
        found = results(server)["binlog_format"]
    finally:
        server.execute("SET GLOBAL binlog_format = 'ROW'", "DROP DATABASE sbr")
    assert b"as a statement" in b"".join(new_bytes(chunk) for chunk in chunks)
    rows = [kind for chunk in chunks for kind in kinds_of(chunk) if kind in (23, 30)]
    assert len(rows) == (log_format == "MIXED")
    assert f"binlog_format is {log_format}" in caplog.text
    assert (found.ok, found.advisory) == (False, True)
    assert "in no Arrow batch" in found.fix
