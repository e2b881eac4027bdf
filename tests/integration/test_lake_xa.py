"""A lake next to XA transactions, whose rows the log has before it tells whether they count."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ray_canal.errors import CanalError
from ray_canal.sinks.lakes.lake import LakeSink
from ray_canal.sinks.lakes.lake_prepared import kept_name
from ray_canal.sinks.open import lake_of, make_sink
from ray_canal.sinks.port import Cursor, SinkError
from ray_canal.sinks.schema_follower import TableName
from tests.in_process_sink import destination, runner_of, running, sink_config, until
from tests.integration.test_mirror_xa import end_all, prepare
from tests.servers import Server
from tests.unit.sinks.lakes.test_lake import options

SOURCE = "lake_xa"
KEPT = TableName("ray_canal", kept_name("s", "x"))


@pytest.fixture
def server(mysql97: Server, tmp_path: Path) -> Iterator[Server]:
    mysql97.execute(f"CREATE DATABASE {SOURCE}")
    source = {"address": mysql97.address, "username": "root", "start": "position"}
    source |= dict(zip(("journal_name", "position"), mysql97.position(), strict=True))
    mysql97.execute(f"CREATE TABLE {SOURCE}.a (id INT PRIMARY KEY, v VARCHAR(20))")
    with destination(tmp_path, source=source, tsdb={}):
        yield mysql97
    end_all(mysql97)
    mysql97.execute(f"DROP DATABASE {SOURCE}")


class LakeOfTest:
    """A lake in a folder, as somebody else sees it."""

    def __init__(self, kind: str, mode: str, folder: Path) -> None:
        lake = {**options(kind, folder), "mode": mode}
        shared = {"tables": rf"{SOURCE}\..*", "transactions": True, "retry_max_s": 0.05}
        self.config = sink_config(kind, lake=lake, **shared)

    def table(self, name: TableName) -> list[dict[str, Any]]:
        lake = lake_of(self.config)
        try:
            lake.open()
            columns = lake.find(name)
            if columns is None:
                return []
            return lake.read(name, columns.columns, {}).to_pylist()
        except CanalError:  # it is being written
            return []
        finally:
            lake.close()

    def rows(self) -> list[tuple[int, str]]:
        """Rows of the source's table, by what was done to it; each row's id is there once."""
        found = self.table(TableName(SOURCE, "a"))
        if self.config.lake.mode == "upsert":
            return sorted((row["id"], row["v"]) for row in found)
        found.sort(key=lambda row: (row["journal_name"], row["position"], row["row"]))
        ids = [(row["journal_name"], row["position"], row["row"]) for row in found]
        assert len(set(ids)) == len(ids)
        now: dict[int, str] = {}
        for row in found:
            if row["before"] is not None:
                assert now.pop(row["before"]["id"]) == row["before"]["v"]
            if row["after"] is not None:
                assert row["after"]["id"] not in now
                now[row["after"]["id"]] = row["after"]["v"]
        return sorted(now.items())

    def kept(self) -> set[str]:
        return {row["xa_id"] for row in self.table(KEPT) if row["sink"]}


@pytest.mark.parametrize(("kind", "mode"), [("delta", "append"), ("iceberg", "upsert")])
def test_rows_of_a_prepared_transaction_come_at_xa_commit_once(
    kind: str, mode: str, server: Server, tmp_path: Path
) -> None:
    """Those of one that is rolled back never come; also where the sink ends in between, and where
    it fails behind the commit of the rows."""
    lake = LakeOfTest(kind, mode, tmp_path)

    def is_equal() -> bool:
        return lake.rows() == sorted(server.execute(f"SELECT id, v FROM {SOURCE}.a"))

    with running(runner_of(lake.config)):
        server.execute(f"INSERT INTO {SOURCE}.a VALUES (1, 'one'), (2, 'two'), (3, 'three')")
        prepare(
            server, SOURCE, "yes", "INSERT INTO a VALUES (4, 'four'), (5, 'five')",
            "UPDATE a SET v = 'TWO' WHERE id = 2", "UPDATE a SET id = 9 WHERE id = 5",
        )  # fmt: skip
        prepare(
            server, SOURCE, "no", "INSERT INTO a VALUES (6, 'six')", "DELETE FROM a WHERE id = 3"
        )
        prepare(server, SOURCE, "fast", "INSERT INTO a VALUES (7, 'seven')")
        server.execute("XA COMMIT 'fast'", f"INSERT INTO {SOURCE}.a VALUES (8, 'eight')")
        until(lambda: len(lake.kept()) == 2 and is_equal())
    sink, calls = make_sink(lake.config), itertools.count()
    assert isinstance(sink, LakeSink)
    commit = sink.prepared.commit

    def failing(upto: Cursor) -> None:
        if not next(calls):
            raise SinkError("the lake is away", "retry")
        commit(upto)

    sink.prepared.commit = failing  # type: ignore[method-assign]
    with running(runner_of(lake.config, sink)):
        server.execute("XA COMMIT 'yes'", f"UPDATE {SOURCE}.a SET v = 'again' WHERE id = 2")
        until(is_equal)
        server.execute("XA ROLLBACK 'no'", f"DELETE FROM {SOURCE}.a WHERE id = 3")
        until(lambda: not lake.kept() and is_equal())
    assert len(lake.rows()) == 6
    assert next(calls) > 1
