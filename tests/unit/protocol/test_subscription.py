"""What a subscriber may ask for."""

from __future__ import annotations

import datetime as dt

import pytest

from ray_canal.errors import ConfigError
from ray_canal.protocol.position import EntryPosition
from ray_canal.protocol.subscription import Subscription, refuse_wishes


@pytest.mark.parametrize(
    "wishes",
    [
        Subscription(),
        Subscription("detach", True, "tail"),
        Subscription(start=EntryPosition("binlog.000001")),
        Subscription(start=dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)),
    ],
)
def test_what_there_is(wishes: Subscription) -> None:
    refuse_wishes(wishes)


def test_what_there_is_not() -> None:
    with pytest.raises(ConfigError, match="'wait': there are block, spill, detach"):
        refuse_wishes(Subscription("wait"))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="no time zone"):
        refuse_wishes(Subscription(start=dt.datetime(2026, 1, 1)))
