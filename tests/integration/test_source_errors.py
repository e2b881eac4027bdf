"""Real servers refuse in each of their ways: each gets one clear error."""

from __future__ import annotations

import uuid

import pytest

from ray_canal.config import InstanceConfig, MirrorConfig
from ray_canal.errors import (
    AuthenticationFailed,
    ConnectionLost,
    PositionNotFound,
    PositionPurged,
    PrivilegeMissing,
)
from ray_canal.model.position import EntryPosition
from ray_canal.sinks.databases.mysql import MySqlDatabase
from ray_canal.sinks.port import SinkError
from ray_canal.source.checks import check_source
from ray_canal.source.connection import GRANTS, connect
from tests.dumps import (
    failure,
    instance,
    purge_all,
)
from tests.servers import Server


def test_wrong_password(server: Server) -> None:
    server.execute("CREATE USER pw@'%' IDENTIFIED BY 'right'")
    error = failure(instance(server, username="pw", password="wrong-secret"))
    server.execute("DROP USER pw@'%'")
    assert isinstance(error, AuthenticationFailed)
    assert "wrong-secret" not in str(error)
    assert "source.password" in str(error)


def test_wrong_password_of_a_mirror(mysql97: Server) -> None:
    config = MirrorConfig.model_validate(
        {"address": mysql97.address, "username": "nobody", "password": "wrong"}
    )
    with pytest.raises(SinkError, match=r"^target: .*check mirror\.username and mirror\.password"):
        MySqlDatabase(config).connect()


def test_missing_grant(server: Server) -> None:
    server.execute("CREATE USER poor@'%' IDENTIFIED BY 'p'")
    config = instance(server, username="poor", password="p")
    error = failure(config)
    position = failure(config, EntryPosition(*server.position()))
    results = {result.name: result for result in check_source(config)}
    server.execute("DROP USER poor@'%'")
    for each in (error, position):
        assert isinstance(each, PrivilegeMissing)
        assert "GRANT REPLICATION SLAVE" in str(each)
    assert not results["grant REPLICATION SLAVE"].ok
    assert "GRANT" in results["grant REPLICATION SLAVE"].fix


def test_limits_of_a_user_are_waited_for(server: Server) -> None:
    """The connections of a program that died may count for a while; an hour's queries end."""
    source = instance(server, username="few", password="p")
    alter = "GRANT USAGE ON *.* TO" if server.kind == "mysql56" else "ALTER USER"
    server.execute(
        "CREATE USER few@'%' IDENTIFIED BY 'p'",
        f"GRANT {GRANTS} ON *.* TO few@'%'",
        f"{alter} few@'%' WITH MAX_USER_CONNECTIONS 1",
    )
    try:
        with connect(source.source), pytest.raises(ConnectionLost, match="MAX_USER_CONNECTIONS 0"):
            connect(source.source)
    finally:
        server.execute("DROP USER few@'%'")


def test_a_server_in_offline_mode_is_waited_for(mysql97: Server) -> None:
    source = instance(mysql97, username="user", password="p")
    mysql97.execute(
        "CREATE USER user@'%' IDENTIFIED BY 'p'",
        f"GRANT {GRANTS} ON *.* TO user@'%'",
        "SET GLOBAL offline_mode = ON",
    )
    try:
        with pytest.raises(ConnectionLost, match="offline mode"):
            connect(source.source)
    finally:
        mysql97.execute("SET GLOBAL offline_mode = OFF", "DROP USER user@'%'")


def test_unreachable() -> None:
    config = InstanceConfig.model_validate(
        {"destination": "d", "source": {"address": "127.0.0.1:1", "username": "u"}}
    )
    assert isinstance(failure(config), ConnectionLost)
    assert not check_source(config)[0].ok


def test_unknown_file(server: Server) -> None:
    assert isinstance(
        failure(instance(server), EntryPosition("mysql-bin.999999")), PositionNotFound
    )
    config = instance(server, start="position", journal_name="other.000001")
    error = failure(config)
    assert isinstance(error, PositionNotFound)
    assert "other.000001" in str(error)


def test_position_past_the_end(server: Server) -> None:
    name, offset = server.position()
    for position in (offset + 1000, 1 << 31):
        error = failure(instance(server), EntryPosition(name, position))
        assert isinstance(error, PositionNotFound)
        assert not error.retryable
    config = instance(server, start="position", journal_name=name, position=offset + 1000)
    assert isinstance(failure(config), PositionNotFound)


def test_purged_file(server: Server, schema: str) -> None:
    old = server.position()[0]
    purge_all(server)
    config = instance(server, start="position", journal_name=old)
    assert isinstance(failure(config), PositionPurged)
    assert isinstance(failure(instance(server), EntryPosition(old)), PositionNotFound)


def test_check_of_a_good_server(server: Server) -> None:
    results = check_source(instance(server))
    assert all(result.ok for result in results if not result.advisory), results


def test_tls_wanted_and_not_offered(mysql56: Server) -> None:
    error = failure(instance(mysql56, tls={"mode": "required"}))
    assert "TLS" in str(error) or "SSL" in str(error)


def test_gtids_purged(mysql97: Server) -> None:
    purge_all(mysql97)
    config = instance(mysql97, gtid=True, start="gtid", gtid_set=f"{uuid.uuid4()}:1")
    assert isinstance(failure(config), PositionPurged)
    empty = EntryPosition("", gtid=f"{uuid.uuid4()}:1")
    assert isinstance(failure(config, empty), PositionPurged)
