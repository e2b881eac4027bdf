"""MetaManager over both backends: records, epochs, fencing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_canal.config import MetaConfig
from ray_canal.errors import ConfigError, Fenced
from ray_canal.meta.backend import MetaBackend
from ray_canal.meta.manager import MetaManager, SubscriberMeta, open_backend
from ray_canal.meta.memory import MemoryBackend
from ray_canal.protocol.position import EntryPosition, LogPosition, SourceIdentity

IDENTITY = SourceIdentity("127.0.0.1:3306", "6b0c-uuid")


def cursor(position: int, row: int = 0) -> LogPosition:
    return LogPosition(IDENTITY, EntryPosition("binlog.000001", position, row, "u:1-5", 99))


@pytest.fixture(params=["memory", "sqlite"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MetaBackend]:
    opened = open_backend(MetaConfig(backend=request.param, path=str(tmp_path / "meta.db")))
    yield opened
    opened.close()


def test_records_come_back_whole(backend: MetaBackend) -> None:
    manager = MetaManager(backend)
    epoch = manager.acquire("orders")
    assert manager.load("orders") == {}
    subscribers = [
        SubscriberMeta(1, r"shop\..*", None),
        SubscriberMeta(2, "商店'\"\\n", cursor(1 << 40, 7)),
    ]
    for subscriber in subscribers:
        manager.save("orders", epoch, subscriber)
    found = manager.load("orders")
    assert found == {1: subscribers[0], 2: subscribers[1]}
    assert found[2].cursor is not None
    # Positions are equal by place alone; the rest must come back, too.
    assert (found[2].cursor.position.gtid, found[2].cursor.position.timestamp) == ("u:1-5", 99)
    assert found[2].cursor.identity == IDENTITY


def test_a_save_replaces_and_a_remove_forgets_one_record(backend: MetaBackend) -> None:
    manager = MetaManager(backend)
    epoch = manager.acquire("orders")
    for position in (4, 500):
        manager.save("orders", epoch, SubscriberMeta(1, "a", cursor(position)))
        manager.save("orders", epoch, SubscriberMeta(2, "a", cursor(position)))
    manager.remove("orders", epoch, 1)
    manager.remove("orders", epoch, 1)
    assert manager.load("orders") == {2: SubscriberMeta(2, "a", cursor(500))}


def test_destinations_do_not_touch_each_other(backend: MetaBackend) -> None:
    manager = MetaManager(backend)
    epochs = {name: manager.acquire(name) for name in ("orders", "stock")}
    assert manager.acquire("stock") == epochs["stock"] + 1
    manager.save("orders", epochs["orders"], SubscriberMeta(1, "a", None))
    assert manager.load("stock") == {}


def test_an_older_epoch_is_fenced_and_changes_nothing(backend: MetaBackend) -> None:
    manager = MetaManager(backend)
    old = manager.acquire("orders")
    kept = SubscriberMeta(1, "a", cursor(100))
    manager.save("orders", old, kept)
    new = manager.acquire("orders")
    assert new == old + 1
    with pytest.raises(Fenced, match=rf"epoch {old} was replaced by epoch {new}.*orders"):
        manager.save("orders", old, SubscriberMeta(1, "a", cursor(200)))
    with pytest.raises(Fenced):
        manager.remove("orders", old, 1)
    assert manager.load("orders") == {1: kept}
    manager.save("orders", new, SubscriberMeta(1, "a", cursor(300)))


def test_a_destination_that_nobody_acquired_is_fenced(backend: MetaBackend) -> None:
    with pytest.raises(Fenced):
        MetaManager(backend).save("orders", 0 + 1, SubscriberMeta(1, "a", None))


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"client_id": 1}', '{"client_id":1,"filter":"","cursor":{}}']
)
def test_a_record_that_is_not_ours_is_named(text: str) -> None:
    backend = MemoryBackend()
    manager = MetaManager(backend)
    backend.save("orders", manager.acquire("orders"), 1, text)
    with pytest.raises(ConfigError, match="record cannot be read"):
        manager.load("orders")
