"""A part of an actor is called as if it were one."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import pytest

from ray_canal.actors.part import Part


class Method:
    """An actor's method that answers with how it was called."""

    def __init__(self, **options: Any) -> None:
        self._options = options

    def options(self, **options: Any) -> Method:
        return Method(**options)

    def remote(self, *arguments: Any, **named: Any) -> Any:
        return arguments, named, self._options


class Actor:
    call = Method()


def test_calls_name_the_part_and_the_method() -> None:
    part = Part(Actor(), "call", "orders")
    assert part.ack.remote(1, 2, holder="me") == (("orders", "ack", 1, 2), {"holder": "me"}, {})
    wanted = (("orders", "get"), {}, {"num_returns": 3})
    assert part.get.options(num_returns=3).remote() == wanted


def test_numbers_and_options_of_the_part_go_with_each_call() -> None:
    part = Part(Actor(), "call", "key", itertools.count(), concurrency_group="upstream")
    group = {"concurrency_group": "upstream"}
    assert part.make.remote("a") == (("key", 0, "make", "a"), {}, group)
    options = {"concurrency_group": "control", "num_returns": 2}
    found = part.read.options(**options).remote()
    assert found == (("key", 1, "read"), {}, {**group, "num_returns": 2})


def test_it_can_be_pickled() -> None:
    part = pickle.loads(pickle.dumps(Part(Actor(), "call", "orders")))
    assert part.ack.remote() == (("orders", "ack"), {}, {})
    with pytest.raises(AttributeError):
        _ = part._something
