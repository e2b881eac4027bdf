"""The holder of a subscription."""

from __future__ import annotations

import pytest

from ray_canal.client.holder import holder_for
from ray_canal.destination.api import ClientRequest, SubscribeRequest
from ray_canal.errors import NotSubscribed


def test_the_first_subscribe_makes_one_and_later_calls_keep_it() -> None:
    subscribe = SubscribeRequest(client_id=7, filter="")
    holder = holder_for(subscribe, "", "orders")
    assert holder
    assert holder != holder_for(subscribe, "", "orders")
    assert holder_for(subscribe, holder, "orders") == holder
    assert holder_for(ClientRequest(client_id=7), holder, "orders") == holder


def test_a_connector_that_has_not_subscribed_is_told_so() -> None:
    with pytest.raises(NotSubscribed, match="clientId:7 should subscribe first") as refused:
        holder_for(ClientRequest(client_id=7), "", "orders")
    assert refused.value.destination == "orders"
