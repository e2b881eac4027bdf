"""[instance.store] and [meta]: sizes, and which tables are our own."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_canal import config
from ray_canal.errors import ConfigError
from tests.unit.config.minimal import MINIMAL, write


def test_ring_size_must_be_a_power_of_two(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="power of two"):
        config.load(write(tmp_path, MINIMAL + "[instance.store]\nbuffer_size = 1000\n"))


def test_cursors_on_a_server_need_its_address(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r'backend = "mysql" needs `address`'):
        config.load(write(tmp_path, '[meta]\nbackend = "mysql"\n' + MINIMAL))


@pytest.mark.parametrize("database", ["ray_canal", "my-meta$1"])
@pytest.mark.parametrize("black", [r"mysql\.slave_.*", ""])
def test_our_own_tables_are_hidden_and_no_others(database: str, black: str) -> None:
    """C7: each ack would be a change, which is delivered and acked, without end; whatever the
    server of the cursors is called, and whoever replicates it."""
    meta = config.MetaConfig(backend="mysql", address="h:1", database=database)
    given = config.FilterConfig(black_tables=black)
    shown = given.hiding(meta.own_tables)
    assert shown.hiding(meta.own_tables) == shown
    tables = shown.event_filter().tables
    for table in ("canal_cursor", "canal_epoch", "canal_schema", "canal_quarantined"):
        assert not tables.admits(database, table)
        assert tables.admits("shop", table)
    assert tables.admits(database, "orders")
    assert tables.admits("mysql", "slave_x") == (not black)
    for other in (config.MetaConfig(), config.MetaConfig(backend="redis", address="h:1")):
        assert given.hiding(other.own_tables) == given
