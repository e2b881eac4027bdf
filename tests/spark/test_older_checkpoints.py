"""Checkpoints of streaming queries that do not fit their subscriber: an older copy, one whose
subscriber was made again."""

from __future__ import annotations

from typing import Any

import pytest

from ray_canal.errors import CanalError, InstanceRestarted
from ray_canal.spark.log_offset import acked_offset, offset_text
from ray_canal.views.row_places import RowPlace
from tests.spark.test_log_stream import (
    ALL,
    Engine,
    Subscription,
    event_batches,
    schema_of_items,
    stream_of,
)


@pytest.mark.parametrize("planned", [0, 1])
def test_an_older_copy_of_a_checkpoint_is_told(planned: int) -> None:
    """Its last micro-batch is committed, or `planned` and to be made again."""
    subscription, engine = Subscription(event_batches()), Engine()
    engine.run(stream_of(subscription))
    copy = Engine()
    copy.offsets, copy.commits = engine.offsets[: 3 + planned], 3
    with pytest.raises(CanalError, match=r"older copy.*seek mysql-bin.000001:\d+"):
        copy.run(stream_of(subscription, schema=schema_of_items()))
    assert copy.written == []
    # The subscriber is moved back, which forgets its mark.
    subscription.acked, subscription.mark = 0, ""
    copy.run(stream_of(subscription))
    assert copy.written == ALL[-len(copy.written) :]
    assert len(copy.written) == sum(len(rows) for n, rows in engine.sink.items() if n > 2)


@pytest.mark.parametrize(("position", "is_refused"), [(0, False), (900_000, True)])
def test_a_subscriber_that_was_made_again_is_told(position: int, is_refused: bool) -> None:
    """It has no mark, and its cursor stands before the checkpoint's end or behind it."""
    subscription, engine = Subscription(event_batches()), Engine()
    engine.run(stream_of(subscription))
    copy = Engine()
    copy.offsets, copy.commits = engine.offsets[:3], 3
    report = {"mark": None, "cursor": f"mysql-bin.000001:{position}+2.0"}
    subscription.acked, subscription.mark = 0, acked_offset(report, timeline=0)
    if not is_refused:
        copy.run(stream_of(subscription))
        assert copy.written == ALL[-len(copy.written) :]
        return
    with pytest.raises(CanalError, match=r"goes on at mysql-bin.000001:900000.* made again"):
        copy.run(stream_of(subscription, schema=schema_of_items()))
    # Places of another timeline are not compared: what was not acked there comes again.
    subscription.mark = acked_offset(report, timeline=1)
    copy.run(stream_of(subscription))


def test_a_destination_that_restarts_is_asked_again_where_its_subscriber_is() -> None:
    subscription, engine = Subscription(event_batches()), Engine()
    answers: list[Any] = [InstanceRestarted("it restarts"), ""]

    def mark() -> str:
        answer = answers.pop(0)
        if isinstance(answer, CanalError):
            raise answer
        return str(answer)

    stream = stream_of(subscription)
    stream._mark = mark
    engine.offsets, engine.commits = [offset_text(RowPlace(0, 1, 4, 0, "mysql-bin.000001"))], 1
    engine.run(stream)
    assert answers == []
    assert engine.written == ALL
