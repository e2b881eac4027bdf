"""What a subscriber may ask for."""

from __future__ import annotations

import datetime as dt

import pytest

from ray_canal.errors import ConfigError
from ray_canal.model.position import EntryPosition
from ray_canal.model.subscription import (
    TCP_HOLDER,
    Subscription,
    may_unsubscribe,
    refuse_client_id,
    refuse_wishes,
    shares,
)


@pytest.mark.parametrize(
    "wishes",
    [
        Subscription(),
        Subscription("detach", True, "tail"),
        Subscription(start=""),
        Subscription(start="0-1-2,1-1-7"),
        Subscription(start="3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"),
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
    for start in ("earliest", "mysql-bin.000001:4"):  # `source.start` and seek have them
        with pytest.raises(ConfigError, match=f"start {start!r}: as text it is 'head'"):
            refuse_wishes(Subscription(start=start))


@pytest.mark.parametrize(
    ("holder", "known", "calls", "leaves"),
    [
        ("", "one", True, True),  # a person's command
        ("one", "one", True, True),
        ("one", "other", False, False),
        ("one", "", False, False),  # subscribed again by nobody in particular
        (TCP_HOLDER, "", True, True),
        (TCP_HOLDER, "one", False, False),
        (TCP_HOLDER, "tcp:1", True, True),  # a connection that has not subscribed itself
        ("tcp:1", "tcp:1", True, True),
        ("tcp:1", "tcp:2", True, False),  # Canal's clients share; who was replaced does not end it
        ("tcp:1", "", True, True),
        ("tcp:1", "one", False, False),
        ("one", "tcp:1", False, False),
    ],
)
def test_who_may_call_for_a_subscriber(holder: str, known: str, calls: bool, leaves: bool) -> None:
    """C4, D9: each call names its holder; who was replaced may not end the subscription."""
    assert shares(holder, known) is calls
    assert may_unsubscribe(holder, known) is leaves


def test_ids_begin_at_zero() -> None:
    """C4: what is below is where the destination's own records are kept."""
    refuse_client_id(0)
    with pytest.raises(ConfigError, match="begin at 0"):
        refuse_client_id(-1)


def test_ids_are_what_every_backend_can_keep() -> None:
    """SQLite's and MySQL's integers; what is above was an OverflowError of the first one."""
    refuse_client_id((1 << 63) - 1)
    with pytest.raises(ConfigError, match="at most 63 bits"):
        refuse_client_id(1 << 63)
