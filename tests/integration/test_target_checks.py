"""`ray-canal check` says what a sink's target refuses, and what it says to run gives the right."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from ray_canal.config import CanalConfig
from ray_canal.console.deployments import checks
from ray_canal.sinks.checks import check_sink
from ray_canal.sinks.target_checks import SourceTable
from tests.in_process_sink import sink_config
from tests.servers import Server
from tests.servers.postgres import PostgresServer
from tests.servers.rabbitmq import RabbitServer

USER = "looked_at"
TABLES = [SourceTable("looked", "orders", ("id",)), SourceTable("looked", "logs", ())]


def looked(kind: str, **target: Any) -> dict[str, tuple[bool, str, str]]:
    """(ok, detail, fix) by name."""
    found = check_sink(sink_config(kind, **target), TABLES)
    return {each.name.removeprefix("sink s "): (each.ok, each.detail, each.fix) for each in found}


def with_rights(
    kind: str, login: dict[str, Any], run: Callable[..., object]
) -> dict[str, tuple[bool, str, str]]:
    """What is found once all that is said to lack was given."""
    for _ in range(5):
        found = looked(kind, mirror=login)
        if found["rights"][0]:
            return found
        run(*found["rights"][2].split("; "))
    raise AssertionError(found)


@contextlib.contextmanager
def a_user(server: Server) -> Iterator[dict[str, Any]]:
    """A login without rights, and a database to write."""
    user = f"'{USER}'@'%'"
    server.execute(f"CREATE USER {user} IDENTIFIED BY 'p'")
    try:
        with server.with_database("looked_copy"):
            yield {
                "address": server.address,
                "username": USER,
                "password": "p",
                "database": "looked_copy",
                "cursor_database": "looked_canal",
            }
    finally:
        server.execute(f"DROP USER {user}", "DROP DATABASE IF EXISTS looked_canal")


def test_a_mirror_in_mysql(server: Server) -> None:
    with a_user(server) as login:
        wrong = looked("mysql", mirror={**login, "password": "wrong"})
        assert list(wrong) == ["target"]
        assert "mirror.password" in wrong["target"][1]
        found = with_rights("mysql", login, server.execute)
        assert found["tables"][:2] == (True, "0 are there, 2 will be made")
        assert found["without a key"][1] == "looked.logs: a change stops the sink"
        assert not server.execute("SHOW DATABASES LIKE 'looked\\_canal'")  # nothing was made
        server.execute("CREATE TABLE looked_copy.orders (id INT, n INT PRIMARY KEY)")
        found = looked("mysql", mirror={**login, "create_tables": False})
        assert "no looked_copy.logs" in found["tables"][1]
        assert "another primary key" in found["keys"][1]
        server.execute(
            "CREATE TRIGGER looked_copy.acts BEFORE INSERT ON looked_copy.orders FOR EACH ROW"
            " SET NEW.id = 1"
        )
        found = looked("mysql", mirror={**login, "username": "root", "password": ""})
        assert found["triggers"][1] == "looked_copy.orders: they act on what the sink writes"


def test_a_mirror_in_postgres(postgres: PostgresServer) -> None:
    postgres.execute(
        f"CREATE ROLE {USER} LOGIN PASSWORD 'p'", "CREATE SCHEMA looked_copy",
        "CREATE TABLE looked_copy.orders (id INT PRIMARY KEY)",
    )  # fmt: skip
    login = {
        "address": postgres.address,
        "username": USER,
        "password": "p",
        "database": "looked_copy",
        "cursor_database": "looked_canal",
    }
    try:
        found = with_rights("postgres", login, postgres.execute)
        assert found["tables"][:2] == (True, "1 are there, 1 will be made")
        assert "triggers" not in found
        postgres.execute(
            "CREATE TRIGGER acts BEFORE INSERT ON looked_copy.orders FOR EACH ROW"
            " EXECUTE FUNCTION suppress_redundant_updates_trigger()"
        )
        found = looked("postgres", mirror={**login, "username": "postgres"})
        assert found["triggers"][1] == "looked_copy.orders: they act on what the sink writes"
        for state in ("DISABLE", "ENABLE REPLICA"):  # the sink is no replica
            postgres.execute(f"ALTER TABLE looked_copy.orders {state} TRIGGER acts")
            assert "triggers" not in looked("postgres", mirror={**login, "username": "postgres"})
        missing = looked("postgres", mirror={**login, "dbname": "looked_nowhere"})
        assert "looked_nowhere" in missing["target"][1]
    finally:
        postgres.execute(
            "DROP SCHEMA looked_copy CASCADE", f"DROP OWNED BY {USER}", f"DROP ROLE {USER}"
        )


def test_rabbitmq(rabbitmq_server: RabbitServer) -> None:
    address = rabbitmq_server.address
    found = looked("rabbitmq", rabbitmq={"address": address, "exchange": "looked.nowhere"})
    assert found["connection"][0]
    assert "looked.nowhere" in found["target"][1]
    assert looked("rabbitmq", rabbitmq={"address": address, "exchange": "amq.topic"})["exchange"][0]
    refused = looked("rabbitmq", rabbitmq={"address": address, "password": "wrong"})
    assert list(refused) == ["target"]


def test_kafka(mock_kafka: str) -> None:
    brokers = {"bootstrap.servers": mock_kafka}
    routing = {"topic": "looked", "partitions": 99, "partition_hash": r".*\..*:$pk$"}
    found = looked("kafka", kafka={"properties": brokers}, routing=routing)
    assert found["connection"][0]
    assert not found["topics"][0]
    assert "looked" in found["topics"][1]
    away = {"properties": {"bootstrap.servers": "127.0.0.1:1"}, "timeout_s": 1}
    assert not looked("kafka", kafka=away)["target"][0]


def test_the_tables_are_those_that_the_source_has(mysql97: Server) -> None:
    """A deployment's check asks the source which tables a sink takes."""
    with mysql97.with_database("looked_source"):
        mysql97.execute(
            "CREATE TABLE looked_source.a (id INT PRIMARY KEY)",
            "CREATE TABLE looked_source.b (id INT PRIMARY KEY)",
            "CREATE TABLE looked_source.c (id INT UNIQUE NOT NULL)",
        )
        source = {"address": mysql97.address, "username": "root"}
        sink = {
            "name": "s", "destination": "x", "type": "mysql", "client_id": 7,
            "tables": r"looked_source\.[ac]",
            "mirror": {**source, "database": "looked_copy2"},
        }  # fmt: skip
        instance = {"destination": "x", "source": source}
        meta = {"backend": "mysql", "address": "127.0.0.1:1", "username": "root"}
        tree = {"instance": [instance], "sink": [sink], "meta": meta}
        found = {each["name"]: each for each in checks(CanalConfig.model_validate(tree))["x"]}
    assert found["connection"]["ok"]
    assert "127.0.0.1:1" in found["cursors"]["detail"]
    assert not found["cursors"]["ok"]
    assert found["sink s tables"]["detail"] == "0 are there, 2 will be made"
    keyless = found["sink s without a key"]
    assert keyless["advisory"]
    assert "looked_source.c" in keyless["detail"]
