"""Fixtures: one running server of each kind per session, started when first asked for.

A server that cannot be fetched fails the test: what is not run is not tested.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.servers import FetchError, Server, start
from tests.servers.postgres import PostgresServer, start_postgres
from tests.servers.rabbitmq import RabbitServer, start_rabbitmq
from tests.servers.redis import RedisServer, start_redis
from tests.servers.run import Options


def _serve(
    kind: str, factory: pytest.TempPathFactory, options: Options | None = None
) -> Iterator[Server]:
    try:
        with start(kind, factory.mktemp(kind), options) as server:
            yield server
    except FetchError as error:
        pytest.fail(f"{error}\nTry it by hand: python -m tests.servers fetch {kind}")


@pytest.fixture(scope="session")
def mysql97(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """MySQL 9.7: GTIDs on, binlog_row_metadata=FULL, automatic TLS, caching_sha2_password."""
    yield from _serve("mysql97", tmp_path_factory)


@pytest.fixture(scope="session")
def mysql56(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """MySQL 5.6: GTIDs on, no row metadata, no TLS, mysql_native_password."""
    yield from _serve("mysql56", tmp_path_factory)


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """MariaDB 10.11: binlog_row_metadata=FULL, domain GTIDs, no TLS."""
    yield from _serve("mariadb", tmp_path_factory)


@pytest.fixture(params=["mysql97", "mysql56", "mariadb"])
def server(request: pytest.FixtureRequest) -> Server:
    """Each kind in turn."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def schema(server: Server) -> Iterator[str]:
    """An empty schema of that server, for one test."""
    name = f"t{uuid.uuid4().hex[:8]}"
    server.execute(f"CREATE DATABASE {name}")
    yield name
    server.execute(f"DROP DATABASE {name}")


@pytest.fixture(scope="module", params=["mysql97", "mysql56", "mariadb"])
def lower_case_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """Each kind in turn, with lower_case_table_names=1."""
    yield from _serve(request.param, tmp_path_factory, {"lower-case-table-names": "1"})


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """Redis 7.0 that fsyncs every write."""
    try:
        with start_redis(tmp_path_factory.mktemp("redis")) as server:
            yield server
    except FetchError as error:
        pytest.fail(f"{error}\nTry it by hand: python -m tests.servers fetch")


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """PostgreSQL 15."""
    try:
        with start_postgres() as server:
            yield server
    except FetchError as error:
        pytest.fail(f"{error}\nTry it by hand: python -m tests.servers fetch")


@pytest.fixture(scope="session")
def rabbitmq_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitServer]:
    """RabbitMQ 3.10, for user guest."""
    try:
        with start_rabbitmq(tmp_path_factory.mktemp("rabbitmq")) as server:
            yield server
    except FetchError as error:
        pytest.fail(f"{error}\nTry it by hand: python -m tests.servers fetch")
