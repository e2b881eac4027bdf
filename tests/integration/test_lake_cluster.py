"""Lakes on a cluster: Ray tasks write a table's files for one commit; `seek` writes it again."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
import ray
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

import ray_canal as canal
from ray_canal.sinks.lakes.ray_writers import in_ray_tasks
from ray_canal.sinks.port import SinkError
from ray_canal.sinks.records import CommittedPlaces
from tests.in_process_sink import until
from tests.servers import Server

pytestmark = pytest.mark.usefixtures("local_ray")

NAME = "tasked"
DIGITS = "(SELECT 0 d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5" \
         " UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9)"  # fmt: skip


def process(base: int, number: int) -> tuple[int, int]:
    if number == 13:
        raise SinkError("the thirteenth", "schema")
    time.sleep(0.2)
    return base + number, os.getpid()


def ends_once(folder: str, number: int) -> int:
    """Answer; the first worker that is asked ends instead."""
    path = Path(folder) / str(number)
    if not path.exists():
        path.write_text("")
        os._exit(1)
    return number


def test_answers_come_in_order_from_other_processes(tmp_path: Path) -> None:
    answers = in_ray_tasks(process, 100, [3, 1, 2])
    assert [number for number, _ in answers] == [103, 101, 102]
    assert os.getpid() not in {pid for _, pid in answers}
    with pytest.raises(SinkError, match="the thirteenth") as caught:
        in_ray_tasks(process, 100, [1, 13])
    assert caught.value.kind == "schema"
    assert in_ray_tasks(ends_once, str(tmp_path), [5]) == [5]


def rows(path: Path) -> dict[int, str]:
    try:
        found = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    except TableNotFoundError:
        return {}
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: row["v"] for row in found}


def files_by_commit(path: Path) -> list[int]:
    """How many files each commit has added."""
    logs = sorted((path / "_delta_log").glob("*.json"))
    return [log.read_text().count('{"add":') for log in logs]


def writers_of(name: str) -> str:
    """What calls the writers of a sink's lake."""
    handle = ray.get_actor(f"canal-sink:{name}", namespace="ray_canal")

    def told(actor: Any) -> str:
        return str(actor._runner._sink._lake._writers.spread.__name__)

    return str(ray.get(handle.__ray_call__.remote(told)))


def test_ray_tasks_write_a_table_and_it_is_written_again(mysql97: Server, tmp_path: Path) -> None:
    mysql97.execute(f"CREATE DATABASE {NAME}",
                    f"CREATE TABLE {NAME}.t (id INT PRIMARY KEY, v VARCHAR(20))")  # fmt: skip
    config = tmp_path / "canal.toml"
    config.write_text(
        f'[meta]\npath = "meta.db"\n[[instance]]\ndestination = "{NAME}"\n'
        f'source.address = "{mysql97.address}"\nsource.username = "root"\n'
        f"filter.tables = '{NAME}\\..*'\n"
        f'[[sink]]\nname = "lake"\ndestination = "{NAME}"\ntype = "delta"\nclient_id = 5\n'
        f'lake.path = "{tmp_path}/lake"\nlake.writers = 2\n'
    )
    table = tmp_path / "lake" / NAME / "t"

    def holds_all() -> bool:
        theirs = {int(a): str(b) for a, b in mysql97.execute(f"SELECT id, v FROM {NAME}.t")}
        return rows(table) == theirs

    canal.start(str(config))
    try:
        canal.start_sinks(str(config))
        mysql97.execute(
            f"INSERT INTO {NAME}.t SELECT a.d + 10*b.d + 100*c.d + 1000*e.d + 10000*f.d, 'first'"
            f" FROM {DIGITS} a, {DIGITS} b, {DIGITS} c, {DIGITS} e, {DIGITS} f WHERE f.d < 3"
        )
        until(holds_all, 180)
        assert writers_of("lake") == "in_ray_tasks"
        mysql97.execute(f"UPDATE {NAME}.t SET v = CONCAT('second ', id) WHERE id % 10 > 0",
                        f"DELETE FROM {NAME}.t WHERE id % 10 = 5")  # fmt: skip
        until(holds_all, 180)
        assert max(files_by_commit(table)) == 2
        DeltaTable(str(table)).delete("id > 5000")  # somebody has damaged it
        mysql97.execute(f"INSERT INTO {NAME}.t VALUES (-1, 'new')")
        until(lambda: -1 in rows(table))
        assert not holds_all()
        canal.seek_sink("lake", "earliest")
        until(holds_all, 180)
        mysql97.execute(f"DELETE FROM {NAME}.t WHERE id < 5000")
        until(holds_all, 180)
    finally:
        for name in canal.sink_status():
            canal.stop_sink(name)
        CommittedPlaces("ray_canal").forget("lake")
        canal.stop(NAME)
        mysql97.execute(f"DROP DATABASE IF EXISTS {NAME}")
