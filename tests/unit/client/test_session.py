"""What a connector remembers: the loop's batches, the epoch, what can still come again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.client.message import Message
from ray_canal.client.session import WAIT_S_MAX, ClientSession
from ray_canal.errors import ConfigError, InstanceRestarted
from ray_canal.model.message import MessageHead, MessagePart, Payload
from ray_canal.model.subscription import Subscription


class Gone:
    """A transport whose chunks have gone; it notes what is to come again."""

    destination, has_batches = "orders", False

    def __init__(self) -> None:
        self.again: list[int] = []

    def not_received(self, client_id: int, batch_id: int) -> None:
        self.again.append(batch_id)

    def message(self, head: MessageHead) -> Message:
        return Message(head, self._load)

    def _load(self, payloads: list[Payload]) -> list[DecodedChunk]:
        raise InstanceRestarted("the store has ended")


def session() -> tuple[Any, Gone]:
    gone: Any = Gone()
    return ClientSession(gone, 7), gone


def head(number: int, epoch: int = 1) -> MessageHead:
    return MessageHead(number, epoch, (MessagePart("chunk", 0, 1, None),), 1)


def test_what_cannot_be_read_comes_again_unless_it_was_acked() -> None:
    one, gone = session()
    first, second = one.message(head(1)), one.message(head(2))
    with pytest.raises(InstanceRestarted, match="store has ended"):
        _ = second.chunks
    assert gone.again == [2]
    one.settle_acked(1)
    with pytest.raises(InstanceRestarted, match="message 1 was acked before it was read"):
        _ = first.chunks
    assert gone.again == [2]


def test_batches_of_an_earlier_epoch_are_not_asked_for() -> None:
    one, gone = session()
    before = one.message(head(5, epoch=1))
    one.message(head(1, epoch=2))
    with pytest.raises(InstanceRestarted, match="was acked before it was read"):
        _ = before.chunks
    assert (gone.again, one.rollback(None).epoch) == ([], 2)


def test_a_loop_that_is_left_gives_its_batch_back_once() -> None:
    one, gone = session()
    one.yielded = 3
    one.leave_loop()
    one.leave_loop()
    assert gone.again == [3]
    assert not one.leave(3)  # another loop has done that
    one.yielded = 4
    assert one.leave(4)
    one.yielded, one.done = 5, (5, 1)  # the body went through: its ack goes with the next get
    assert not one.leave(5)
    assert one.poll(10, 1.0).done == (5, 1)
    one.settle(6)
    assert one.done == (5, 1)
    one.settle(5)
    assert one.done is None


def test_who_only_looks_on_holds_up_nobody() -> None:
    one, _ = session()
    assert one.wishes(None, None, None) == Subscription(None, None, None)
    looker: Any = ClientSession(Gone(), None)  # type: ignore[arg-type]
    wish = looker.wishes(None, None, None)
    assert (wish.policy, wish.ephemeral) == ("detach", True)
    assert looker.wishes("spill", None, None).policy == "spill"


def test_row_steps_need_arrow_batches() -> None:
    one, _ = session()
    one.use({"where": None})
    with pytest.raises(ConfigError, match="connect by Ray or Arrow Flight"):
        one.use({"where": "after.id > 1"})


@pytest.mark.parametrize("timeout", [-1, -0.001, float("nan")])
def test_a_timeout_below_zero_is_refused(timeout: float) -> None:
    """By Ray it waited without end, by TCP a millisecond."""
    one, _ = session()
    with pytest.raises(ConfigError, match="None returns what is there now"):
        one.get(10, timeout)
    with pytest.raises(ConfigError, match="None returns what is there now"):
        one.poll(10, timeout)


def test_what_no_transport_can_carry_is_cut() -> None:
    one, _ = session()
    assert [one.get(10, t).timeout for t in (None, 0, 0.5, 1e12)] == [None, 0, 0.5, WAIT_S_MAX]
    assert one.get(10, float("inf")).timeout == one.poll(10, 1e30).timeout == WAIT_S_MAX
    assert one.get(1 << 62, None).batch_size == one.poll(1 << 31, 1).batch_size == (1 << 31) - 1
    assert int(WAIT_S_MAX * 1000) < 1 << 63


def test_a_batch_is_named_by_its_id_and_not_by_the_message() -> None:
    one, _ = session()
    message = one.message(head(1))
    with pytest.raises(TypeError, match=r"by its id \(message\.id\), not by a Message"):
        one.ack(message, 1)
    with pytest.raises(TypeError, match="not by a NoneType"):
        one.ack(None, 1)
    with pytest.raises(TypeError, match="not by a Message"):
        one.rollback(message)
    assert one.ack(np.int64(message.id), 1).batch_id == one.rollback(1).batch_id == 1
