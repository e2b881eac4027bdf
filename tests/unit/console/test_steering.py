"""Who may operate a client id, and which sinks there are."""

from __future__ import annotations

import asyncio

import pytest

from ray_canal.console.access import Visitor
from ray_canal.console.steering import refuse_operating, refuse_unknown_sink, steered
from ray_canal.errors import AccessDenied, InstanceNotFound
from ray_canal.server.access import User
from tests.unit.console.played import Played, desk_over


def test_an_operator_operates_their_own_client_ids() -> None:
    rights = frozenset({"read", "subscribe"})
    otto = Visitor(User("otto", rights, ("shop-*",), (range(1001, 1100),)), "")
    refuse_operating(otto, "shop-1", 1001)
    with pytest.raises(AccessDenied, match="may not change client 7"):
        refuse_operating(otto, "shop-1", 7)
    with pytest.raises(AccessDenied, match="destination crm"):
        refuse_operating(otto, "crm", 1001)


def test_a_sink_of_another_destination_is_unknown() -> None:
    desk = desk_over(Played(1))
    desk.collector.stop()
    with pytest.raises(InstanceNotFound, match="no sink 'lake' runs for d009"):
        refuse_unknown_sink(desk, "d009", "lake")


def test_an_operator_makes_no_subscriber_of_another_client_id() -> None:
    """A copy or a new name took any client id, also those that were not the operator's."""
    cluster = Played(1)
    desk = desk_over(cluster)
    desk.collector.stop()
    rights = frozenset({"read", "subscribe"})
    otto = Visitor(User("otto", rights, ("*",), (range(1001, 1100),)), "")
    for action in ("copy", "rename"):
        with pytest.raises(AccessDenied, match="may not change client 7"):
            asyncio.run(steered(desk, otto, "d000", 1001, action, "7"))
    assert cluster.done == []
