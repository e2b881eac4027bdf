"""The filter that was changed at run time: kept, and given up once the configuration changes."""

from __future__ import annotations

import pytest

from ray_canal.config import FilterConfig
from ray_canal.destination.records.filter_record import FilterRecord
from ray_canal.errors import ConfigError
from ray_canal.meta.manager import MetaManager
from ray_canal.meta.memory import MemoryBackend
from tests.local_destination import instance


def record(**configured: str) -> FilterRecord:
    config = instance()
    return FilterRecord(config.model_copy(update={"filter": FilterConfig(**configured)}))


def test_a_change_outlives_the_process() -> None:
    meta = MetaManager(MemoryBackend())
    one = record(tables=r"shop\..*")
    epoch = meta.acquire(instance().destination)
    one.save(meta, epoch, {"black_tables": r"shop\.log"})
    again = record(tables=r"shop\..*")
    again.load(meta)
    assert again.now == one.now
    assert again.now.black_tables == r"shop\.log"


def test_a_configuration_that_was_changed_since_counts_and_the_record_goes() -> None:
    meta = MetaManager(MemoryBackend())
    name = instance().destination
    epoch = meta.acquire(name)
    record(tables=r"shop\..*").save(meta, epoch, {"black_tables": r"shop\.log"})
    changed = record(tables=r"crm\..*")
    changed.load(meta)
    assert changed.now == FilterConfig(tables=r"crm\..*")
    assert meta.load_filter(name)
    changed.settle(meta, epoch)
    assert not meta.load_filter(name)


def test_a_damaged_record_is_an_error() -> None:
    meta = MetaManager(MemoryBackend())
    name = instance().destination
    meta.save_filter(name, meta.acquire(name), '{"now": 1}')
    with pytest.raises(ConfigError, match="filter cannot be read"):
        record().load(meta)
