"""Outstanding batches: Canal's order of acks, what a rollback takes back, which ids are void."""

from __future__ import annotations

import pytest

from ray_canal.errors import BatchesUnacked, BatchNotFirst, BatchNotFound, InstanceRestarted
from ray_canal.filter import TableFilter
from ray_canal.log import outstanding
from ray_canal.log.log_order import LogOrder
from ray_canal.log.subscriber import Mark, Subscriber, Terms
from ray_canal.model.position import EntryPosition


def with_batches(*ids: int) -> Subscriber:
    """Return a subscriber with outstanding batches of ten log sequences each, after batch 4."""
    order = LogOrder(EntryPosition("mysql-bin.000001", 4))
    one = Subscriber(1, Terms(TableFilter()), None, order, False, 0, 0, last_batch_id=4)
    for number, batch_id in enumerate(ids):
        end = EntryPosition("mysql-bin.000001", 100 * (number + 1))
        one.marks[batch_id] = Mark(10 * number, 10 * (number + 1), end)
        one.next = 10 * (number + 1)
    return one


def test_the_smallest_batch_alone_may_be_acked() -> None:
    subscriber = with_batches(5, 6)
    assert outstanding.first(subscriber, 5, 0) is subscriber.marks[5]
    with pytest.raises(BatchNotFirst, match="batchId:6 is not the firstly:5"):
        outstanding.first(subscriber, 6, 0)
    with pytest.raises(BatchNotFound, match="batchId:7 is not exist"):
        outstanding.first(subscriber, 7, 0)


@pytest.mark.parametrize(("batch_id", "ids_from"), [(4, 0), (9, 9)])
def test_a_batch_of_an_earlier_place_or_generation_is_void(batch_id: int, ids_from: int) -> None:
    subscriber = with_batches(10)
    with pytest.raises(InstanceRestarted, match="it is void, and the next batch begins"):
        outstanding.first(subscriber, batch_id, ids_from)
    with pytest.raises(InstanceRestarted):
        outstanding.roll_back(subscriber, batch_id, ids_from)


def test_a_rollback_takes_back_the_batch_and_all_after_it() -> None:
    subscriber = with_batches(5, 6, 7)
    outstanding.roll_back(subscriber, 6, 0)
    assert list(subscriber.marks) == [5]
    assert subscriber.next == 10
    outstanding.roll_back(subscriber, None, 0)
    assert not subscriber.marks
    assert subscriber.next == 0
    outstanding.roll_back(subscriber, None, 0)  # nothing is outstanding: nothing to do


def test_what_needs_an_empty_list_is_refused_with_the_last_batch() -> None:
    outstanding.refuse_any(with_batches())
    with pytest.raises(BatchesUnacked, match=r"last batch:\[6\]"):
        outstanding.refuse_any(with_batches(5, 6))
