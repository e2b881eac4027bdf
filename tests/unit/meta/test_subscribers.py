"""Subscribers of a destination that does not run."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from ray_canal.config import CanalConfig
from ray_canal.errors import ConfigError
from ray_canal.meta.manager import MetaManager, SubscriberMeta
from ray_canal.meta.open import open_backend
from ray_canal.meta.subscribers import forget_subscriber, kept_subscribers
from ray_canal.model.position import EntryPosition, LogPosition, SourceIdentity
from ray_canal.model.subscription import TCP_HOLDER

CURSOR = LogPosition(SourceIdentity("db:3306", "uuid-1"), EntryPosition("bin.000001", 4711))


def deployment(folder: Path, **meta: str) -> CanalConfig:
    tree = {
        "instance": [{"destination": "orders", "source": {"files": ["bin.000001"]}}],
        "meta": {"path": str(folder / "meta.db"), **meta},
    }
    return CanalConfig.model_validate(tree)


def filled(folder: Path) -> CanalConfig:
    config = deployment(folder)
    manager = MetaManager(open_backend(config.meta))
    epoch = manager.acquire("orders")
    manager.save_filter("orders", epoch, "{}")
    manager.save("orders", epoch, SubscriberMeta(7, "shop", CURSOR, holder="a", called=1000))
    manager.save("orders", epoch, SubscriberMeta(8, "crm", None, holder=TCP_HOLDER + "1"))
    manager.close()
    return config


def test_who_they_are(tmp_path: Path) -> None:
    seven, eight = kept_subscribers(filled(tmp_path), "orders")
    assert (seven["client_id"], seven["cursor"]) == (7, "bin.000001:4711")
    assert seven["server"] == "uuid-1"
    assert (seven["held_by"], seven["called_at"], seven["filter"]) == ("ray", 1000, "shop")
    assert (eight["client_id"], eight["cursor"], eight["held_by"]) == (8, None, "tcp")


def test_one_is_removed_and_the_owner_is_not_fenced(tmp_path: Path) -> None:
    """b2: a cursor that keeps a destination from its start can be removed while it is down."""
    config = filled(tmp_path)
    manager = MetaManager(open_backend(config.meta))
    epoch = manager.epoch("orders")
    assert forget_subscriber(config, "orders", 7)
    assert not forget_subscriber(config, "orders", 7)
    assert [found["client_id"] for found in kept_subscribers(config, "orders")] == [8]
    manager.refuse_fenced("orders", epoch)
    assert manager.load_filter("orders")
    manager.close()


def test_a_damaged_one_can_be_removed(tmp_path: Path) -> None:
    config = filled(tmp_path)
    with sqlite3.connect(tmp_path / "meta.db") as database:
        database.execute("update subscriber set record = 'damaged' where client_id = 7")
    with pytest.raises(ConfigError, match="ray-canal unsubscribe orders 7 --config"):
        kept_subscribers(config, "orders")
    assert forget_subscriber(config, "orders", 7)
    assert [found["client_id"] for found in kept_subscribers(config, "orders")] == [8]


def test_what_cannot_be_is_told(tmp_path: Path) -> None:
    config = filled(tmp_path)
    with pytest.raises(ConfigError, match="no destination 'other'"):
        kept_subscribers(config, "other")
    with pytest.raises(ConfigError, match="ids begin at 0"):
        forget_subscriber(config, "orders", -1)
    with pytest.raises(ConfigError, match="keeps nothing"):
        kept_subscribers(deployment(tmp_path, backend="memory"), "orders")
