"""Batches that a subscriber was given and has not acked: Canal's rules, and its words."""

from __future__ import annotations

from ray_canal.errors import BatchesUnacked, BatchNotFirst, BatchNotFound, InstanceRestarted
from ray_canal.log.subscriber import Mark, Subscriber


def refuse_any(subscriber: Subscriber) -> None:
    """Raise BatchesUnacked while there are outstanding batches."""
    if subscriber.marks:
        raise BatchesUnacked(
            f"clientId:{subscriber.client_id} has last batch:[{next(reversed(subscriber.marks))}] "
            "isn't ack , maybe loss data"
        )


def first(subscriber: Subscriber, batch_id: int, ids_from: int) -> Mark:
    """Return the mark of this batch, which has to be the oldest one outstanding. `ids_from`:
    batches up to it are of earlier generations. Raises BatchNotFirst, BatchNotFound,
    InstanceRestarted."""
    if batch_id not in subscriber.marks:
        _refuse_void(subscriber, batch_id, ids_from)
        raise BatchNotFound(
            f"ack error , clientId:{subscriber.client_id} batchId:{batch_id} is not exist , "
            "please check"
        )
    smallest = next(iter(subscriber.marks))
    if batch_id != smallest:
        raise BatchNotFirst(f"batchId:{batch_id} is not the firstly:{smallest}")
    return subscriber.marks[batch_id]


def roll_back(subscriber: Subscriber, batch_id: int | None, ids_from: int) -> None:
    """Take back this batch and those after it; None: all of them. Raises BatchNotFound,
    InstanceRestarted."""
    marks = subscriber.marks
    if batch_id is None:
        batch_id = next(iter(marks), None)
        if batch_id is None:
            return
    if batch_id not in marks:
        _refuse_void(subscriber, batch_id, ids_from)
        raise BatchNotFound(
            f"rollback error, clientId:{subscriber.client_id} batchId:{batch_id} is not exist , "
            "please check"
        )
    subscriber.next = marks[batch_id].start
    for later in [known for known in marks if known >= batch_id]:
        del marks[later]


def _refuse_void(subscriber: Subscriber, batch_id: int, ids_from: int) -> None:
    """Raise InstanceRestarted if the id is of an earlier generation, or of another log that the
    subscriber was in."""
    if batch_id <= max(ids_from, subscriber.void_up_to):
        raise InstanceRestarted(
            f"batch {batch_id} was handed out before the destination restarted, or its subscriber "
            "was moved (seek); it is void, and the next batch begins at the cursor"
        )
