"""Who may operate a client id, and which sinks there are."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ray_canal.console import steering
from ray_canal.console.access import Visitor
from ray_canal.console.quarantine import Decoded
from ray_canal.console.steering import (
    client_id_of,
    redriven,
    refuse_operating,
    refuse_unknown_sink,
    removed,
    sink_steered,
    steered,
)
from ray_canal.errors import AccessDenied, ConfigError, InstanceNotFound
from ray_canal.server.access import User
from tests.processes import wait_for
from tests.unit.console.played import Played, context_over


def test_an_operator_operates_their_own_client_ids() -> None:
    rights = frozenset({"read", "subscribe"})
    otto = Visitor(User("otto", rights, ("shop-*",), (range(1001, 1100),)), "")
    refuse_operating(otto, "shop-1", 1001)
    with pytest.raises(AccessDenied, match="may not change client 7"):
        refuse_operating(otto, "shop-1", 7)
    with pytest.raises(AccessDenied, match="destination crm"):
        refuse_operating(otto, "crm", 1001)


def test_a_sink_of_another_destination_is_unknown() -> None:
    context = context_over(Played(1))
    context.collector.stop()
    with pytest.raises(InstanceNotFound, match="no sink 'lake' runs for d009"):
        refuse_unknown_sink(context, "d009", "lake")


def test_an_operator_makes_no_subscriber_of_another_client_id() -> None:
    """A copy or a new name took any client id, also those that were not the operator's."""
    cluster = Played(1)
    context = context_over(cluster)
    context.collector.stop()
    rights = frozenset({"read", "subscribe"})
    otto = Visitor(User("otto", rights, ("*",), (range(1001, 1100),)), "")
    for action in ("copy", "rename"):
        with pytest.raises(AccessDenied, match="may not change client 7"):
            asyncio.run(steered(context, otto, "d000", 1001, action, "7"))
    assert cluster.done == []


def test_an_operator_steers_sinks_of_their_own_client_ids() -> None:
    cluster = Played(1)
    context = context_over(cluster)
    wait_for(lambda: bool(context.collector.sinks_of("d000")), 30, "sinks")
    rights = frozenset({"read", "subscribe"})
    otto = Visitor(User("otto", rights, ("*",), (range(1001, 1100),)), "")
    with pytest.raises(AccessDenied, match="may not change client 2001"):
        asyncio.run(sink_steered(context, otto, "d000", "lake", "seek", "tail"))
    assert cluster.done == []
    ida = Visitor(User("ida", rights, ("*",), (range(2001, 2002),)), "")
    asyncio.run(sink_steered(context, ida, "d000", "lake", "seek", "tail"))
    assert cluster.done == [("seek sink", "lake", "tail")]
    context.collector.stop()


def test_who_has_client_ids_removes_no_other() -> None:
    """An admin, too: rights count for the user's client ids, as at the TCP port."""
    cluster = Played(1)
    context = context_over(cluster)
    for right in ("subscribe", "admin"):
        own = Visitor(User("ann", frozenset({"read", right}), ("*",), (range(7, 8),)), "")
        with pytest.raises(AccessDenied, match="may not change client 8"):
            asyncio.run(removed(context, own, "d000", 8))
        asyncio.run(removed(context, own, "d000", 7))
    assert cluster.done == [("unsubscribe", "d000", 7)] * 2
    otto = Visitor(User("otto", frozenset({"read", "subscribe"})), "")
    with pytest.raises(AccessDenied, match="has not the right 'admin'"):
        asyncio.run(removed(context, otto, "d000", 7))
    context.collector.stop()


@pytest.mark.parametrize("text", ["", "seven", "-7", "9" * 20, "7.0"])
def test_what_is_no_client_id(text: str) -> None:
    assert client_id_of("1001") == 1001
    with pytest.raises(ConfigError, match="client_id"):
        client_id_of(text)


def test_nobody_gives_hidden_columns_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the schema with which quarantined changes are decoded."""
    monkeypatch.setattr(steering, "decoded", lambda config, name, *given: Decoded(list(given), []))
    cluster = Played(1)
    cluster.deployment = lambda destination: None  # type: ignore[attr-defined]
    context = context_over(cluster, hidden_columns=["shop.users.email"])
    otto = Visitor(User("otto", frozenset({"read", "subscribe"})), "")
    ada = Visitor(User("ada", frozenset({"admin"})), "")
    sql = "create table shop.users (id int, other text)"
    with pytest.raises(AccessDenied, match="has not the right 'admin'"):
        asyncio.run(redriven(context, otto, "d000", sql))
    hidden: Any = ("shop.users.email",)
    assert asyncio.run(redriven(context, otto, "d000", " ")).lines == [" ", hidden]
    assert asyncio.run(redriven(context, ada, "d000", sql)).lines == [sql, hidden]
    context.collector.stop()
