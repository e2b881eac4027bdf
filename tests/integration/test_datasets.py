"""Ray Datasets of binlog files and of a destination's log."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import ray_canal as canal
from ray_canal.client.message import Message
from ray_canal.datasets.batch_source import BatchSource, dataset_of
from ray_canal.datasets.binlogs import read_binlogs
from ray_canal.datasets.log_changes import changes
from ray_canal.demo import binlog_files
from ray_canal.errors import ConfigError
from ray_canal.model.message import MessageHead, MessagePart

NAME = "dataset-shop"

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def ids(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [
        # A block of two versions of a table has the columns of both.
        (r["table"], r["journal_name"], r["position"], r["row"], (r["after"] or {}).get("total"))
        for r in rows
    ]


@pytest.fixture(scope="module")
def truth() -> list[tuple[Any, ...]]:
    found = []
    for batch in canal.decode_files(binlog_files(), tables=r"shop\.orders"):
        found += [{**row, "table": "shop.orders"} for row in batch.to_pylist()]
    return sorted(ids(found), key=str)


def test_files_as_a_dataset(local_ray: None, truth: list[tuple[Any, ...]]) -> None:
    dataset = canal.read_binlogs(binlog_files(), tables=r"shop\.orders", part_bytes=50_000)
    assert sorted(ids(dataset.take_all()), key=str) == truth
    everything = read_binlogs(binlog_files())
    counted = everything.groupby("table").count().take_all()
    by_table = {row["table"]: row["count()"] for row in counted}
    assert by_table["shop.orders"] == len(truth)
    assert sum(by_table.values()) == sum(b.num_rows for b in canal.decode_files(binlog_files()))


def test_tasks_run_at_once_from_the_start(
    local_ray: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of two tasks waits for the other, and Ray Data looks at the cluster's size once."""
    manager = pytest.importorskip("ray.data._internal.execution.resource_manager").ResourceManager
    monkeypatch.setattr(manager, "GLOBAL_LIMITS_UPDATE_INTERVAL_S", 3600)

    def part(number: int) -> Any:
        Path(tmp_path, str(number)).touch()
        deadline = time.monotonic() + 100
        while not Path(tmp_path, str(1 - number)).exists():
            assert time.monotonic() < deadline, "the other task has not begun"
            time.sleep(0.01)
        return [[first_batch]]

    first_batch = next(canal.decode_files(binlog_files()))
    dataset = dataset_of(BatchSource("Test", [partial(part, 0), partial(part, 1)]), 2)
    assert dataset.count() == 2 * first_batch.num_rows


@pytest.fixture
def started(local_ray: None, tmp_path: Path) -> Iterator[None]:
    files = [str(path) for path in binlog_files()]
    settings = {
        "meta": {"path": str(tmp_path / "meta.db")},
        "instance": [{"destination": NAME, "source": {"files": files}}],
    }
    canal.start(settings)
    yield
    canal.stop(NAME)


def test_changes_are_acked_when_the_block_has_ended(
    started: None, truth: list[tuple[Any, ...]]
) -> None:
    with canal.connect(NAME, client_id=31) as connector:
        connector.subscribe(r"shop\.orders")
        first: list[tuple[Any, ...]] = []
        with pytest.raises(RuntimeError, match="the lake is down"):
            failing(connector, first)
        found, blocks = list[tuple[Any, ...]](), 0
        while True:
            with canal.changes(connector, batch_size=40, messages=3, timeout=2.0) as dataset:
                rows = ids(dataset.take_all())
            if not rows:
                break
            found, blocks = found + rows, blocks + 1
        assert blocks > 1
        assert first
        assert set(first) <= set(found)  # they came again
        assert sorted(found, key=str) == truth
        assert connector.list_batch_ids() == []
    with canal.connect(NAME, client_id=31) as connector:
        connector.subscribe(r"shop\.orders")
        assert not connector.get_without_ack(timeout=1.0)


def failing(connector: canal.Connector, seen: list[tuple[Any, ...]]) -> None:
    with canal.changes(connector, batch_size=40, messages=3) as dataset:
        seen += ids(dataset.take_all())
        raise RuntimeError("the lake is down")


def test_row_steps_are_done_in_the_read_tasks(started: None) -> None:
    with canal.connect(NAME, client_id=32) as connector:
        connector.subscribe(r"shop\.orders", where="after.id = 5")
        with canal.changes(connector) as dataset:
            assert {row["after"]["id"] for row in dataset.take_all()} == {5}


def test_a_connector_of_another_door_is_refused() -> None:
    part = MessagePart('["d", 1, 1, 1, 0]', 0, 1, None)

    class OverFlight:
        rolled_back = False

        def get_without_ack(self, *_: Any) -> Message:
            return Message(MessageHead(1, 1, (part,), entry_count=1), lambda _: [])

        def rollback(self) -> None:
            self.rolled_back = True

    connector = OverFlight()
    with pytest.raises(ConfigError, match="without an address"), changes(connector):  # type: ignore[arg-type]
        pass
    assert connector.rolled_back
