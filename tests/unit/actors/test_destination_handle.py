"""The handle of one destination names it and the method in each call of its process."""

from __future__ import annotations

import pickle
from typing import Any

from ray_canal.actors.store_calls import DestinationHandle
from ray_canal.destination.api import AckRequest, DestinationApi

ACK = AckRequest(client_id=7, batch_id=1, epoch=2, holder="me")


class Method:
    """An actor's method that answers with how it was called."""

    def remote(self, *arguments: Any) -> Any:
        return arguments


class Actor:
    call = Method()


def test_calls_name_the_destination_and_the_method() -> None:
    handle = DestinationHandle(Actor(), "orders")
    assert handle.submit(DestinationApi.ack, ACK) == ("orders", "ack", ACK)
    assert handle.submit(DestinationApi.status) == ("orders", "status")


def test_it_can_be_pickled() -> None:
    handle = pickle.loads(pickle.dumps(DestinationHandle(Actor(), "orders")))
    assert handle.submit(DestinationApi.ack, ACK) == ("orders", "ack", ACK)
