"""Which batches a caller was handed and has not received."""

from __future__ import annotations

from ray_canal.destination.handed_out import HandedOut
from ray_canal.model.message import Caller


def test_the_first_batch_whose_answer_was_lost_is_named() -> None:
    handed = HandedOut()
    handed.begin(1, Caller("a", 1, 7))
    for batch_id in (1, 2, 3):
        handed.hand_out(1, Caller("a", 1, 7), batch_id)
    asks = Caller("a", 2, 7, 1)
    handed.begin(1, asks)
    assert handed.unreceived(1, asks, 7, (1, 2, 3)) == 2
    assert handed.unreceived(1, asks, 7, (3,)) == 3, "2 was acked or rolled back meanwhile"
    assert handed.unreceived(1, asks, 7, ()) is None


def test_what_another_caller_was_handed_is_not_missed() -> None:
    handed = HandedOut()
    handed.begin(1, Caller("a", 1))
    handed.hand_out(1, Caller("a", 1), 5)
    handed.begin(1, Caller("b", 1))
    assert handed.unreceived(1, Caller("b", 1), 0, (5,)) is None


def test_a_get_is_void_once_its_caller_has_made_another() -> None:
    handed = HandedOut()
    first, second = Caller("a", 1), Caller("a", 2)
    handed.begin(1, first)
    assert not handed.is_void(1, first)
    handed.begin(1, second)
    assert handed.is_void(1, first)
    assert not handed.is_void(1, second)
    handed.begin(1, first)  # came late
    assert handed.is_void(1, first)
    assert not handed.is_void(1, None)


def test_an_epoch_that_is_over_counts_for_nothing() -> None:
    handed = HandedOut()
    old = Caller("a", 1, 7, 9)
    handed.begin(1, old)
    handed.hand_out(1, old, 2)
    assert handed.unreceived(1, old, 8, (2,)) == 2
