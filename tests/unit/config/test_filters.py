"""[instance.filter]: what a subscriber's own list does beside the destination's."""

from __future__ import annotations

import pytest

from ray_canal.config import FilterConfig
from ray_canal.errors import ConfigError


@pytest.mark.parametrize(
    ("subscribers", "own", "table", "passes"),
    [
        ("narrow", r"crm\..*", "crm.person", False),
        ("narrow", r".*\..*", "crm.person", False),
        ("narrow", r".*\..*", "shop.item", True),
        ("narrow", "", "shop.item", True),
        ("narrow", "", "crm.person", False),
        ("replace", r"crm\..*", "crm.person", True),
        ("replace", r"crm\..*", "shop.item", False),
        ("replace", r".*\..*", "crm.person", True),
        ("replace", "", "shop.item", True),
        ("replace", "", "crm.person", False),
        ("replace", r".*\..*", "shop.log", False),  # black wins
    ],
)
def test_a_subscribers_list(subscribers: str, own: str, table: str, passes: bool) -> None:
    """a2: it narrows the destination's, or takes its place as in Canal."""
    where = FilterConfig.model_validate(
        {"tables": r"shop\..*", "black_tables": r"shop\.log", "subscribers": subscribers}
    )
    assert where.of_subscriber(own).admits(*table.split(".")) is passes
    # Rows that a subscriber may see are decoded.
    assert where.event_filter().wants_rows(*table.split(".")) >= passes


@pytest.mark.parametrize(
    ("tables", "own", "hidden"),
    [
        (r"shop\..*", r"crm\.person", r"crm\.person"),
        (r"shop\..*", r"shop\.item", ""),
        (r"shop\..*", r"SHOP\.Item", ""),
        (r"shop\..*", r"shop\.log", r"shop\.log"),
        (r"shop\..*", r"crm\..*", r"crm\..*"),
        (r"shop\..*", r"(crm|erp)\..*,shop\..*", r"(crm|erp)\..*"),
        (r"SHOP\..*", r"shop\.i.*", ""),
        (r"shop\..*,crm\.a.*", r"crm\.b.*,crm\.a1.*", r"crm\.b.*"),
        (r"shop\..*", r".*\.item", ""),
        (r"shop\..*", r"[s-t].*", ""),
        (r"shop\..*", r"[A-C].*", ""),  # nobody knows
        (r"shop\.t_\d+", r"shop\.s_\d+", r"shop\.s_\d+"),
        (r".*\..*", r"crm\..*", ""),
        ("", r"crm\..*", ""),
        (r"shop\..*", "", ""),
        (r"shop\..*", "nonsense", "nonsense"),
        (r"(?!crm).*\..*", r"crm\..*", ""),
        (r"商店\..*", r"客户\..*", r"客户\..*"),
    ],
)
def test_what_certainly_shows_nothing(tables: str, own: str, hidden: str) -> None:
    """a2: so that who asks for it is told."""
    where = FilterConfig(tables=tables, black_tables=r"shop\.log")
    assert ",".join(where.hidden_of(own)) == hidden
    for pattern in filter(None, hidden.split(",")):
        assert not where.of_subscriber(pattern).admits("shop", "t_1")
        assert not where.of_subscriber(pattern).admits("crm", "a1")


def test_where_lists_replace_only_black_tables_hide() -> None:
    where = FilterConfig(tables=r"shop\..*", black_tables=r"shop\.log", subscribers="replace")
    assert where.hidden_of(r"crm\.person,crm\..*,shop\.log") == [r"shop\.log"]


def test_a_list_that_is_none_is_refused() -> None:
    for call in (FilterConfig().of_subscriber, FilterConfig().hidden_of):
        with pytest.raises(ConfigError, match="not a regular expression"):
            call("(")
