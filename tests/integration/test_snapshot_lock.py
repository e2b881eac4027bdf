"""The lock under which a snapshot may begin does not outlast a reader that sleeps."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from ray_canal.errors import ConnectionLost
from ray_canal.snapshot import read_views
from ray_canal.snapshot.moment_reader import MomentReader
from ray_canal.snapshot.read_views import open_views
from ray_canal.source.catalog import Catalog
from tests.integration.test_snapshot import config_of
from tests.servers import Server

PATIENCE_S = 60.0


class Sleeper(MomentReader):
    """Does not answer under the lock until somebody has written."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.asked, self.written = threading.Event(), threading.Event()

    def query(self, sql: str) -> list[dict[str, Any]]:
        self.asked.set()
        assert self.written.wait(PATIENCE_S)
        return super().query(sql)


@pytest.mark.parametrize("server", ["mysql56", "mysql97", "mariadb"], indirect=True)
def test_writers_go_on_while_a_reader_sleeps(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_views, "_LOCKED_S", 1)
    server.execute(
        "drop database if exists locked", "create database locked", "create table locked.t (v int)"
    )
    config = config_of(server).destination("snap")
    catalog, reader = Catalog(config.source), Sleeper(config)
    reader.open()
    failures: list[Exception] = []

    def begin() -> None:
        try:
            open_views(config, catalog, [reader], may_lock=True)
        except Exception as error:
            failures.append(error)

    beginning = threading.Thread(target=begin, daemon=True)
    beginning.start()
    assert reader.asked.wait(PATIENCE_S)
    server.execute("insert into locked.t values (1)", "drop database locked")
    reader.written.set()
    beginning.join(PATIENCE_S)
    assert [type(each) for each in failures] == [ConnectionLost]
    catalog.close()
    reader.close()
