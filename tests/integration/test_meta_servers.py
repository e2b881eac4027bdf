"""Meta backends on real servers: the conformance tests, lost connections, an owner that is stopped
while it writes.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from ray_canal.config import MetaConfig
from ray_canal.errors import ConfigError, InstanceError, MetaUnavailable
from ray_canal.meta.backend import MetaBackend
from ray_canal.meta.open import open_backend, open_schema_store
from ray_canal.meta.schema_store import SchemaStore
from tests.meta_conformance import Conformance, Reopen, SchemaConformance, record
from tests.pace import Pace
from tests.processes import wait_for
from tests.proxy import Proxy
from tests.servers import Server
from tests.servers.redis import RedisServer, start_redis

SERVERS = ["mysql97", "mysql56", "mariadb", "redis_server"]


@pytest.fixture(params=SERVERS)
def config(request: pytest.FixtureRequest) -> MetaConfig:
    """A database, or prefix, of this test alone."""
    server = request.getfixturevalue(request.param)
    name = f"meta_{uuid.uuid4().hex[:12]}"
    if isinstance(server, RedisServer):
        return MetaConfig(backend="redis", address=server.address, database=name)
    return MetaConfig(backend="mysql", address=server.address, username="root", database=name)


@pytest.fixture
def reopen(config: MetaConfig) -> Iterator[Reopen]:
    opened: list[MetaBackend] = []

    def again() -> MetaBackend:
        opened.append(open_backend(config))
        return opened[-1]

    yield again
    for backend in opened:
        backend.close()


@pytest.fixture
def backend(reopen: Reopen) -> MetaBackend:
    return reopen()


class TestOnServers(Conformance):
    """All that a backend must do, on MySQL 9.7 and 5.6, MariaDB and Redis."""


@pytest.fixture
def store(config: MetaConfig) -> Iterator[SchemaStore]:
    opened = open_schema_store(config, "")
    yield opened
    opened.close()


class TestSchemasOnServers(SchemaConformance):
    """All that a schema store must do, on MySQL 9.7 and 5.6, MariaDB and Redis."""


_WRITER = """
import sys
from ray_canal.config import MetaConfig
from ray_canal.errors import Fenced
from ray_canal.meta.open import open_backend
backend = open_backend(MetaConfig.model_validate_json(sys.argv[1]))
epoch = backend.acquire("orders")
number = 0
try:
    while True:
        number += 1
        backend.save("orders", epoch, 1, f"{epoch}:{number}")
        if number == 20:
            print("writing", flush=True)
except Fenced:
    print("fenced", flush=True)
"""


@pytest.mark.timed
def test_an_owner_that_is_stopped_while_it_writes_holds_nobody_up(
    config: MetaConfig, backend: MetaBackend
) -> None:
    command = [sys.executable, "-c", _WRITER, config.model_dump_json()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as old:
        try:
            assert old.stdout is not None
            assert old.stdout.readline() == "writing\n"
            old.send_signal(signal.SIGSTOP)
            with Pace() as pace:
                epoch = backend.acquire("orders")
                backend.save("orders", epoch, 1, "mine")
            assert pace.seconds < config.timeout_s
            old.send_signal(signal.SIGCONT)
            assert old.stdout.readline() == "fenced\n"
        finally:
            old.kill()
    assert backend.load("orders") == {1: "mine"}


def test_a_head_that_moves_finds_the_history_again(config: MetaConfig) -> None:
    """What the first one wrote, a second connection from elsewhere reads, and no file is needed."""
    first = open_schema_store(config, "")
    first.append("d", [record(1), record(2)])
    first.close()
    second = open_schema_store(config.model_copy(update={"path": "/nowhere/meta.db"}), "")
    assert second.records("d") == [record(1), record(2)]
    second.close()


def test_a_lost_connection_is_made_anew(mysql97: Server) -> None:
    config = MetaConfig(
        backend="mysql", address=mysql97.address, username="root", database="meta_lost"
    )
    backend = open_backend(config)
    epoch = backend.acquire("orders")
    operations = [
        lambda: backend.save("orders", epoch, 1, "a"),
        lambda: backend.load("orders"),
        lambda: backend.epoch("orders"),
        lambda: backend.remove("orders", epoch, 1),
    ]
    for operation in operations:
        for (number,) in mysql97.execute(
            "select id from information_schema.processlist where command = 'Sleep'"
            " and info is null and user = 'root' and db is null and id <> connection_id()"
        ):
            mysql97.execute(f"kill {number}")
        operation()
    backend.close()


@pytest.mark.parametrize("kind", ["mysql97", "mysql56"])
def test_a_record_over_max_allowed_packet_is_told_and_written_once_it_fits(
    kind: str, request: pytest.FixtureRequest
) -> None:
    """Such a server ends the connection; 9.7, over TLS, without a word."""
    server: Server = request.getfixturevalue(kind)
    config = MetaConfig(
        backend="mysql", address=server.address, username="root", database="meta_packet"
    )
    with server.with_database("meta_packet"), contextlib.closing(open_backend(config)) as backend:
        epoch = backend.acquire("orders")
        long = "x" * (2 << 20)
        with server.with_global("max_allowed_packet", str(1 << 20)):
            small = open_backend(config)  # which keeps its connection's limit
            with pytest.raises(MetaUnavailable, match=r"SET GLOBAL max_allowed_packet = 67108864"):
                small.save("orders", epoch, 1, long)
        with contextlib.closing(small):  # its error has ended the connection
            small.save("orders", epoch, 1, long)
        assert backend.load("orders") == {1: long}


def test_what_redis_answered_outlives_its_crash(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And one that may evict keys is warned of."""
    with start_redis(tmp_path / "redis") as server:
        config = MetaConfig(backend="redis", address=server.address, timeout_s=0.5)
        backend = open_backend(config)
        epoch = backend.acquire("orders")
        for number in range(50):
            backend.save("orders", epoch, 1, str(number))
        server.kill()
        with pytest.raises(InstanceError, match=r"meta keys ray_canal:.* cannot be used"):
            backend.save("orders", epoch, 1, "lost")
        server.start()
        assert (backend.load("orders"), backend.epoch("orders")) == ({1: "49"}, epoch)
        backend.close()
        assert not caplog.text
        with redis.Redis(port=server.port) as client:
            client.config_set("maxmemory-policy", "allkeys-lru")
        open_backend(config).close()
        assert "forgets cursors (maxmemory-policy allkeys-lru)" in caplog.text


def test_a_redis_that_was_made_a_replica_is_left(tmp_path: Path) -> None:
    """After a failover the name of the primary leads to another server, and the old one goes on
    answering whoever is connected: READONLY, to each ack."""
    with (
        start_redis(tmp_path / "old") as old,
        start_redis(tmp_path / "new") as new,
        Proxy(("127.0.0.1", old.port)) as proxy,
    ):
        backend = open_backend(MetaConfig(backend="redis", address=proxy.address, timeout_s=30.0))
        epoch = backend.acquire("orders")
        backend.save("orders", epoch, 1, "before")
        with redis.Redis(port=old.port) as was, redis.Redis(port=new.port) as becomes:
            becomes.replicaof("127.0.0.1", old.port)
            link = "master_link_status"
            wait_for(lambda: becomes.info("replication").get(link) == "up", 60, "a copy")
            becomes.replicaof("NO", "ONE")
            was.replicaof("127.0.0.1", new.port)
        proxy.retarget(("127.0.0.1", new.port))
        with pytest.raises(MetaUnavailable, match=r"read only replica|loading|MASTERDOWN"):
            backend.save("orders", epoch, 1, "refused")
        backend.save("orders", epoch, 1, "after")
        assert backend.load("orders") == {1: "after"}
        backend.close()


def test_a_server_that_cannot_be_used_is_named_with_what_to_do(mysql97: Server) -> None:
    mysql97.execute(
        "create user if not exists meta_none@'%' identified by 'right'",
    )

    def says(**changes: object) -> str:
        wanted = {"backend": "mysql", "address": mysql97.address, "username": "meta_none",
                  "password": "right", "database": "meta_none", **changes}  # fmt: skip
        away = str(wanted["address"]).endswith(":1")
        with pytest.raises(MetaUnavailable if away else ConfigError) as caught:
            open_backend(MetaConfig.model_validate(wanted))
        return str(caught.value)

    assert "GRANT CREATE, SELECT, INSERT, UPDATE, DELETE ON `meta_none`.*" in says()
    wrong = says(password="wrong")
    assert "check meta.username and meta.password" in wrong
    assert "'wrong'" not in wrong
    assert "meta tables meta_none.canal_* at 127.0.0.1:1 " in says(address="127.0.0.1:1")
    assert "meta keys" in says(backend="redis", address="127.0.0.1:1")
    mysql97.execute("drop user meta_none@'%'")


def test_a_user_that_may_only_use_the_tables_is_enough(mysql97: Server) -> None:
    database = "meta_given"
    settings = {"backend": "mysql", "address": mysql97.address, "database": database}
    open_backend(MetaConfig.model_validate({**settings, "username": "root"})).close()
    mysql97.execute(
        "create user if not exists meta_few@'%'",
        f"grant select, insert, update, delete on {database}.* to meta_few@'%'",
    )
    backend = open_backend(MetaConfig.model_validate({**settings, "username": "meta_few"}))
    backend.save("orders", backend.acquire("orders"), 1, "a")
    assert backend.load("orders") == {1: "a"}
    backend.close()
    mysql97.execute("drop user meta_few@'%'")
