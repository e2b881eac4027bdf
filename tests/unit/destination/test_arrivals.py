"""Connections of Canal's protocol: a new one ends the waiting gets of those before it."""

from __future__ import annotations

from ray_canal.destination.arrivals import Arrivals
from ray_canal.model.subscription import TCP_HOLDER

A, B = f"{TCP_HOLDER}a", f"{TCP_HOLDER}b"


def test_a_new_connection_leaves_the_gets_before_it() -> None:
    arrivals = Arrivals()
    arrivals.note(7, A)
    count = arrivals.count(7)
    assert not arrivals.is_left(7, A, count)
    arrivals.note(8, B)
    assert not arrivals.is_left(7, A, count)
    arrivals.note(7, B)
    assert arrivals.is_left(7, A, count)


def test_handles_of_the_cluster_are_not_counted() -> None:
    arrivals = Arrivals()
    arrivals.note(7, "some handle")
    assert arrivals.count(7) == 0
    arrivals.note(7, A)
    assert not arrivals.is_left(7, "some handle", 0)


def test_a_removed_subscriber_is_forgotten() -> None:
    arrivals = Arrivals()
    arrivals.note(7, A)
    arrivals.forget(7)
    assert arrivals.count(7) == 0
    assert arrivals.is_left(7, A, 1)
