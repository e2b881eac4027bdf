"""Who is in the log of a generation, and whose cursor makes it outdated."""

from __future__ import annotations

import dataclasses

from ray_canal.destination.admission import Admission, oldest_cursor, waited_for
from ray_canal.errors import PositionPurged
from ray_canal.meta.manager import SubscriberMeta
from ray_canal.model.position import EntryPosition, LogPosition, SourceIdentity
from ray_canal.model.start import Start

HERE, THERE = SourceIdentity("", "here"), SourceIdentity("", "there")


def at(position: int, identity: SourceIdentity = HERE) -> LogPosition:
    return LogPosition(identity, EntryPosition("bin.000001", position))


def known(**cursors: LogPosition | None) -> dict[int, SubscriberMeta]:
    return {int(k[1:]): SubscriberMeta(int(k[1:]), "", cursor) for k, cursor in cursors.items()}


def started(admission: Admission, position: int, *, same_log: bool = True) -> Start:
    places = tuple(cursor.position for cursor in admission.cursors.values())
    return Start(at(position).position, places, same_log=same_log)


def test_who_is_tried() -> None:
    admission = Admission(known(c1=at(100), c2=None, c3=at(50)), {3, 9})
    assert admission.cursors == {1: at(100)}
    assert admission.apart == {3}


def test_who_is_left_out_and_who_is_placed() -> None:
    """b2, b16."""
    admission = Admission(known(c1=at(100), c2=at(4), c3=at(50)), (), at(300).position)
    gone = PositionPurged("gone")
    places = at(100).position, at(4).position, at(60).position
    start = Start(at(100).position, places, failures=(None, gone, None), behind=(0, 0, 40))
    left = admission.left_out(start)
    assert left[2].failure is gone
    assert left[3].failure is None
    assert "40 bytes" in left[3].why
    assert [(i, place.position) for i, _, place in admission.placed(start)] == [(1, 100), (3, 60)]
    assert not admission.is_outdated(known(c1=at(100), c2=at(4), c3=at(60)), start, HERE)
    moved = known(c1=at(100), c2=at(200), c3=at(60))
    assert admission.left_out(start, moved).keys() == {3}  # an operator did so meanwhile
    assert not admission.is_outdated(moved, dataclasses.replace(start, same_log=True), HERE)
    assert admission.is_outdated(known(c2=at(5)), start, HERE)
    assert admission.is_outdated(known(c1=at(90), c2=at(4)), start, HERE)


def test_a_subscriber_that_came_meanwhile() -> None:
    """A3: before the new log's start, in another server's log, or in a log of before a reset."""
    admission = Admission(known(c1=at(100)), (), at(300).position)
    same = started(admission, 100)
    assert not admission.is_outdated(known(c1=at(100)), same, HERE)
    assert not admission.is_outdated(known(c1=at(120), c2=at(100)), same, HERE)
    assert admission.is_outdated(known(c1=at(120), c2=at(99)), same, HERE)
    assert admission.is_outdated(known(c1=at(100), c2=at(100, THERE)), same, HERE)
    other = started(admission, 100, same_log=False)
    assert not admission.is_outdated(known(c1=at(100)), other, HERE)
    assert admission.is_outdated(known(c1=at(120)), other, HERE)
    assert admission.is_outdated(known(c1=at(100), c2=at(130)), other, HERE)


def test_who_subscribed_in_the_old_log_that_nobody_else_had() -> None:
    """A3, A1: the server was reset while nobody had subscribed; a subscriber of the old log that
    came before this was noticed is not taken into the new one in silence."""
    admission = Admission({}, (), at(1757).position)
    new_log = started(admission, 4, same_log=False)
    assert admission.is_outdated(known(c1=at(1757)), new_log, HERE)
    assert not admission.is_outdated(known(c1=at(1757)), started(admission, 4), HERE)
    assert not admission.is_outdated({}, new_log, HERE)


def test_a_place_that_was_looked_up_in_another_log() -> None:
    """A1: a server was put back to an older copy; a seek had its place looked up before that, in a
    file that the copy has not, and no other cursor was in that."""
    moved = known(c1=at(400), c2=at(100))
    for read_to in (None, at(300).position):
        admission = Admission(known(c1=at(120), c2=at(100)), (), read_to)
        start = started(admission, 100)
        assert not admission.is_outdated(known(c1=at(120), c2=at(100)), start, HERE)
        assert admission.is_outdated(moved, start, HERE)
    admission = Admission(known(c1=at(120), c2=at(100)), (), at(400).position)
    assert not admission.is_outdated(moved, started(admission, 100), HERE)


def test_a_place_that_cannot_be_served_vouches_for_nobody() -> None:
    """Two acked to the same place of a log that was reset then, one of them while the source was
    opened: the other one's place was taken for one of the new log, and what that has was lost."""
    admission = Admission(known(c1=at(9152), c2=at(6111), c3=at(4)), ())
    reset = PositionPurged("reset")
    places = at(9152).position, at(6111).position, at(4).position
    start = Start(at(4).position, places, failures=(reset, reset, None), behind=(0, 0, 0))
    assert admission.is_outdated(known(c1=at(9152), c2=at(9152), c3=at(4)), start, HERE)
    assert not admission.is_outdated(known(c1=at(9152), c2=at(6111), c3=at(4)), start, HERE)


def test_who_was_given_up_is_not_waited_for() -> None:
    """B5: the warning of a purge is about cursors that somebody still needs."""
    both = known(c1=at(100), c2=at(50), c3=None)
    assert oldest_cursor(waited_for(both), None) == at(50).position
    gone = {**both, 2: dataclasses.replace(both[2], expired=1)}
    assert oldest_cursor(waited_for(gone), None) == at(100).position
    assert oldest_cursor(gone, None) == at(50).position  # what it needs to come back is kept
    assert oldest_cursor({}, at(7).position) == at(7).position
