"""A part of an actor is called as if it were one."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from ray_canal.actors.destination_handle import DestinationHandle


class Method:
    """An actor's method that answers with how it was called."""

    def remote(self, *arguments: Any, **named: Any) -> Any:
        return arguments, named


class Actor:
    call = Method()


def test_calls_name_the_part_and_the_method() -> None:
    part = DestinationHandle(Actor(), "call", "orders")
    assert part.ack.remote(1, 2, holder="me") == (("orders", "ack", 1, 2), {"holder": "me"})


def test_it_can_be_pickled() -> None:
    part = pickle.loads(pickle.dumps(DestinationHandle(Actor(), "call", "orders")))
    assert part.ack.remote() == (("orders", "ack"), {})
    with pytest.raises(AttributeError):
        _ = part._something
