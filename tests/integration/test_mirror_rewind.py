"""A mirror that goes back: what it had done behind the place is done again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ray_canal.sinks.databases.mysql import MySqlDatabase
from ray_canal.sinks.port import SinkError
from tests.in_process_sink import destination, running, until
from tests.integration.test_mysql_mirror import Shop, shop_of
from tests.servers import Server


@pytest.fixture
def shop(mysql97: Server, tmp_path: Path) -> Iterator[Shop]:
    yield from shop_of(mysql97, tmp_path)


def test_a_rename_that_was_not_committed_is_done_again(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sink that ends behind RENAME TABLE notes that it was done. After a seek to a place before,
    that note had it left out, and rows stayed under the old name."""
    shop.run(
        "CREATE TABLE a (id INT PRIMARY KEY)",
        "INSERT INTO a VALUES (1)",
        "RENAME TABLE a TO b",
        "INSERT INTO b VALUES (2)",
    )
    source: dict[str, Any] = {"address": shop.server.address, "username": "root"}
    source |= {"start": "position", "journal_name": shop.start[0], "position": shop.start[1]}
    tables = {"tables": rf"{shop.source}\..*"}
    with destination(shop.folder, held=True, source=source, filter=tables, tsdb={}):
        with monkeypatch.context() as patch:
            patch.setattr(MySqlDatabase, "commit", _ends_behind_a_rename)
            first = shop.mirror()
            with pytest.raises(SinkError, match="renamed"), running(first):
                until(lambda: first.status.state == "failed")
        again = shop.mirror(sink={"client_id": 8})
        again._sink.forget_place()  # type: ignore[attr-defined]
        shop.server.execute(f"DROP DATABASE {shop.copy}")
        with running(again):
            until(lambda: shop.is_mirrored("b"), 20)
    found = shop.server.execute(f"SHOW TABLES FROM {shop.copy}_canal")
    assert found == (("canal_cursor",), ("canal_table",))


def _ends_behind_a_rename(
    database: MySqlDatabase, sink: str, place: str, commit: Any = MySqlDatabase.commit
) -> None:
    if database._marks:
        raise SinkError("a table was renamed")
    commit(database, sink, place)
