"""MetaManager and the backends that need no server; records that are not ours."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_canal.config import MetaConfig
from ray_canal.errors import ConfigError, Fenced
from ray_canal.meta.backend import MetaBackend
from ray_canal.meta.manager import MetaManager, SubscriberMeta
from ray_canal.meta.memory import MemoryBackend
from ray_canal.meta.open import open_backend
from tests.meta_conformance import Conformance, Reopen, cursor


@pytest.fixture(params=["memory", "sqlite"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reopen]:
    config = MetaConfig(backend=request.param, path=str(tmp_path / "meta.db"))
    opened = [open_backend(config)]

    def again() -> MetaBackend:
        opened.append(opened[0] if config.backend == "memory" else open_backend(config))
        return opened[-1]

    yield again
    for backend in opened:
        backend.close()


@pytest.fixture
def backend(reopen: Reopen) -> MetaBackend:
    return reopen()


class TestInProcess(Conformance):
    """All that a backend must do, in memory and in a SQLite file."""


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "null", '{"client_id": 1}', '{"client_id":1,"filter":"","cursor":{}}',
        '00000000 {"client_id": 1, "cursor": null, "filter": ""}',
    ],
)  # fmt: skip
def test_a_record_that_is_not_ours_is_named(text: str) -> None:
    backend = MemoryBackend()
    manager = MetaManager(backend)
    backend.save("orders", manager.acquire("orders"), 1, text)
    with pytest.raises(ConfigError, match=r"meta in memory: the record of client 1 is damaged"):
        manager.load("orders")


def test_a_damaged_timeline_is_named_with_its_way_out() -> None:
    backend = MemoryBackend()
    manager = MetaManager(backend)
    epoch = manager.acquire("orders")
    for text in ("x", "00000000 {}", "{}"):
        backend.save("orders", epoch, -2, text)
        with pytest.raises(ConfigError, match=r"record of the timeline .* Remove it: then a new"):
            manager.load_timeline("orders")
    assert manager.load("orders") == {}


def test_any_changed_byte_of_a_record_is_noticed() -> None:
    backend = MemoryBackend()
    manager = MetaManager(backend)
    epoch = manager.acquire("orders")
    manager.save("orders", epoch, SubscriberMeta(1, "a", cursor(100)))
    (good,) = backend.load("orders").values()
    for place in range(len(good)):
        bad = good[:place] + chr(ord(good[place]) ^ 1) + good[place + 1 :]
        backend.save("orders", epoch, 1, bad)
        with pytest.raises(ConfigError, match="damaged"):
            manager.load("orders")
    backend.save("orders", epoch, 2, good)
    backend.remove("orders", epoch, 1)
    with pytest.raises(ConfigError, match="it is client 1's"):
        manager.load("orders")


def test_records_of_the_first_version_have_no_checksum() -> None:
    backend = MemoryBackend()
    manager = MetaManager(backend)
    kept = SubscriberMeta(1, "a", cursor(100), mark="so far", schemas=("u#1", "bin.2", 4711))
    epoch = manager.acquire("orders")
    backend.save("orders", epoch, 1, kept.to_json())
    assert manager.load("orders") == {1: kept}
    tree = json.loads(kept.to_json())
    del tree["schemas"]  # of a version that did not know it
    backend.save("orders", epoch, 1, json.dumps(tree))
    assert manager.load("orders") == {1: dataclasses.replace(kept, schemas=None)}


def test_the_instances_filter_lies_beside_the_cursors() -> None:
    backend = MemoryBackend()
    manager = MetaManager(backend)
    epoch = manager.acquire("orders")
    assert manager.load_filter("orders") == ""
    manager.save("orders", epoch, SubscriberMeta(1, "a", cursor(100)))
    manager.save_filter("orders", epoch, "text")
    assert manager.load_filter("orders") == "text"
    assert list(manager.load("orders")) == [1]
    with pytest.raises(Fenced):
        manager.save_filter("orders", epoch - 1, "other")
    manager.save_filter("orders", epoch, "")
    assert manager.load_filter("orders") == ""
    backend.save("orders", epoch, -1, "00000000 text")
    with pytest.raises(ConfigError, match=r"the record of the destination's filter .* is damaged"):
        manager.load_filter("orders")
