"""What a database of ours does with a statement: on a connection that notes it, and where no server
answers; tests/integration/test_meta_servers.py has real ones."""

from __future__ import annotations

import time
from typing import Any

import pytest

from ray_canal.config import MetaConfig, SourceConfig
from ray_canal.errors import (
    AuthenticationFailed,
    ConfigError,
    ConnectionLost,
    MetaUnavailable,
    PrivilegeMissing,
    SourceError,
)
from ray_canal.meta import mysql_database as module
from ray_canal.meta.mysql_database import MetaDatabase, marks

CONFIG = MetaConfig(backend="mysql", address="db:3306", username="canal", database="kept-here")
TABLES = {"canal_epoch": "a int", "canal_cursor": "b int"}


class Server:
    """Notes statements; `fails` has errors by a statement's first words, each raised once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, empty: bool = False) -> None:
        self.told: list[str] = []
        self.fails: dict[str, Exception] = {}
        self.connections = 0
        self._read_timeout = self._write_timeout = 3.0
        self.waited_s: list[float] = []
        if empty:
            self.fails["select 1 from"] = SourceError("no such table")
        monkeypatch.setattr(module, "connect", self._connect)
        monkeypatch.setattr(module, "query", self._query)

    def _connect(self, config: SourceConfig) -> Any:
        self.connections += 1
        return self

    def affected_rows(self) -> int:
        return 2

    def close(self) -> None:
        pass

    def _query(self, _: Any, __: SourceConfig, sql: str, *values: object) -> list[dict[str, Any]]:
        self.told.append(sql)
        self.waited_s.append(min(self._read_timeout, self._write_timeout))
        for words in list(self.fails):
            if sql.startswith(words):
                raise self.fails.pop(words)
        return [{"id": 77, "packet_bytes": 64 << 20}]

    def cursor(self) -> Any:
        return self

    def mogrify(self, sql: str, values: tuple[str, ...]) -> str:
        return sql % values


def test_tables_are_made_where_they_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch)
    MetaDatabase(CONFIG, TABLES)
    assert not any(sql.startswith("create") for sql in server.told)
    server = Server(monkeypatch, empty=True)
    MetaDatabase(CONFIG, TABLES)
    made = [sql for sql in server.told if sql.startswith("create")]
    assert made[0] == "create database if not exists `kept-here`"
    assert made[1:] == [
        f"create table if not exists `kept-here`.{name} ({columns}) engine=InnoDB"
        for name, columns in TABLES.items()
    ]


def test_a_user_that_may_not_make_the_database_may_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch, empty=True)
    server.fails["create database"] = PrivilegeMissing("CREATE")
    MetaDatabase(CONFIG, TABLES)
    assert sum(sql.startswith("create table") for sql in server.told) == 2
    server = Server(monkeypatch, empty=True)
    server.fails["create table"] = PrivilegeMissing("CREATE denied; run: GRANT SELECT …")
    with pytest.raises(ConfigError, match=r"GRANT CREATE, SELECT, INSERT, UPDATE, DELETE ON "
                       r"`kept-here`\.\* TO 'canal'@'%'") as told:  # fmt: skip
        MetaDatabase(CONFIG, TABLES)
    assert "GRANT SELECT" not in str(told.value)


@pytest.mark.parametrize(
    ("error", "kind"),
    [(ConnectionLost("refused"), MetaUnavailable), (AuthenticationFailed("no"), ConfigError)],
)
def test_whether_waiting_helps(
    monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type[Exception]
) -> None:
    server = Server(monkeypatch)
    server.fails.update({"select 1": error, "create": error})
    with pytest.raises(kind, match=r"meta tables kept-here\.canal_\* at db:3306 cannot be used"):
        MetaDatabase(CONFIG, TABLES)
    is_away = isinstance(error, ConnectionLost)
    assert len(server.told) == (1 if is_away else 2), "one that is away is not asked twice"


def test_a_lost_connection_is_made_again_once(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch)
    database = MetaDatabase(CONFIG, TABLES)
    server.fails["update"] = ConnectionLost("gone away")
    assert database.changed("update {d}.t set a = %s", 1) == 2
    assert server.told[-2:] == ["update `kept-here`.t set a = %s"] * 2
    assert server.connections == 2
    server.fails.update({"update": ConnectionLost("gone"), "select": ConnectionLost("gone")})
    with pytest.raises(MetaUnavailable, match="gone"):
        database.changed_and_id("update {d}.t set a = 1")
    assert server.told[-2:] == ["update `kept-here`.t set a = 1", "select last_insert_id() id"]


def test_a_server_that_does_not_answer_is_not_asked_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch)
    database = MetaDatabase(CONFIG.model_copy(update={"timeout_s": 0.1}), TABLES)
    asked = len(server.told)

    def slow(*given: Any) -> Any:
        time.sleep(0.1)
        server.told.append("asked")
        raise ConnectionLost("timed out")

    monkeypatch.setattr(module, "query", slow)
    with pytest.raises(MetaUnavailable, match="timed out"):
        database.rows("select 2")
    assert len(server.told) == asked + 1


def test_a_large_statement_is_waited_for_as_long_as_it_may_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that always ends too late would be repeated without end."""
    server = Server(monkeypatch)
    database = MetaDatabase(CONFIG, TABLES)
    database.changed("insert into {d}.t values (%s)", "x" * (8 << 20))
    database.changed("insert into {d}.t values (%s)", "x")
    assert server.waited_s[-2:] == [3.0 + 8, 3.0]
    server.fails["insert"] = SourceError("no")
    with pytest.raises(MetaUnavailable):
        database.changed("insert into {d}.t values (%s)", "x" * (8 << 20))
    assert server._read_timeout == 3.0


def test_what_a_statement_has_written_comes_with_its_count(monkeypatch: pytest.MonkeyPatch) -> None:
    Server(monkeypatch)
    assert MetaDatabase(CONFIG, TABLES).changed_and_id("insert into {d}.t values (1)") == (2, 77)


def test_marks_of_rows() -> None:
    assert marks([(1, 2), (3, 4)]) == "(%s, %s), (%s, %s)"
