"""The configuration that counts now: the filter is replaced, own tables stay hidden."""

from __future__ import annotations

from ray_canal.config import FilterConfig
from ray_canal.destination.current_config import CurrentConfig
from tests.local_destination import NAME, instance


def test_a_filter_is_replaced_and_nothing_else() -> None:
    before = instance()
    current = CurrentConfig(before)
    assert current.now is before
    current.use_filter(FilterConfig(tables="shop\\..*"))
    assert current.now.filter.tables == "shop\\..*"
    assert current.now.model_copy(update={"filter": before.filter}) == before
    assert current.destination == NAME


def test_no_filter_shows_the_tables_of_the_cursors() -> None:
    current = CurrentConfig(instance(), "canal\\.cursors")
    current.use_filter(FilterConfig(black_tables="a\\.b"))
    assert current.now.filter.black_tables == "a\\.b,canal\\.cursors"
