"""What the destination's calls declare, and that each implementation has them all."""

from __future__ import annotations

import inspect

from ray_canal.client.tcp import TcpTransport
from ray_canal.destination.api import DestinationApi, is_repeatable
from ray_canal.destination.destination import Destination

CALLS = {name: each for name, each in vars(DestinationApi).items() if inspect.isfunction(each)}
OVER_TCP = {
    "subscribe", "unsubscribe", "get_without_ack", "get", "poll", "ack", "rollback",
    "list_batch_ids",
}  # fmt: skip


def test_what_may_not_be_done_twice_is_not_repeatable() -> None:
    assert not is_repeatable(DestinationApi.ack)
    assert not is_repeatable(DestinationApi.rollback)
    assert is_repeatable(DestinationApi.rollback_all)
    assert is_repeatable(DestinationApi.get_without_ack)


def test_a_destination_answers_each_call_with_the_same_signature() -> None:
    for name, declared in CALLS.items():
        if name.startswith("_"):
            continue
        answered = getattr(Destination, name)
        assert inspect.signature(answered) == inspect.signature(declared), name


def test_canals_protocol_carries_what_connectors_call() -> None:
    for name in OVER_TCP:
        assert name in CALLS
        asked = inspect.signature(getattr(TcpTransport, f"_{name}")).parameters["request"]
        declared = inspect.signature(CALLS[name]).parameters["request"]
        assert asked.annotation == declared.annotation, name
