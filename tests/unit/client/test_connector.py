"""Both connectors over a transport that counts: loops, untracked chunks, what cannot be read."""

from __future__ import annotations

from typing import Any

import pytest

from ray_canal.client.message import Message
from ray_canal.destination.api import GetRequest, PollRequest, RollbackRequest
from ray_canal.errors import InstanceRestarted
from ray_canal.model.message import EMPTY_BATCH, MessageHead, MessagePart
from tests.driven_connector import both_connectors


class Store:
    """Hands out batches of one chunk, its number, for ever. Those in `gone` cannot be fetched."""

    destination = "x"
    has_batches = True

    def __init__(self, *gone: int, untracked: bool = True) -> None:
        self.untracked = untracked
        self.gone = gone
        self.calls: list[tuple[Any, ...]] = []
        self.fetched: list[int] = []
        self.not_taken: list[int] = []
        self._next = 1

    def call(self, method: Any, request: Any, *, once: bool = False) -> Any:
        self.calls.append(noted(method, request))
        if not isinstance(request, GetRequest):
            return None
        self._next += 1
        number = self._next - 1
        untracked = isinstance(request, PollRequest) and request.untracked
        return MessageHead(number, 1, (MessagePart(number, 0, 1, None),), untracked=untracked)

    def message(self, head: MessageHead) -> Message:
        def load(payloads: list[Any]) -> list[Any]:
            if head.untracked and head.id in self.gone:
                raise InstanceRestarted("it is gone")
            self.fetched += payloads
            return payloads

        return Message(head, load)

    def not_received(self, client_id: int, batch_id: int) -> None:
        self.not_taken.append(batch_id)

    def close(self) -> None:
        return

    async def call_async(self, method: Any, request: Any) -> Any:
        return self.call(method, request)

    def arrived_ids(self, client_id: int, batch_ids: list[int]) -> list[int]:
        return batch_ids


def noted(method: Any, request: Any) -> tuple[Any, ...]:
    """The call's name, the client, and what it is about."""
    name, client_id = method.__name__, request.client_id
    if isinstance(request, PollRequest):
        how = request.batch_size, request.timeout, request.done, request.untracked
        return (name, client_id, *how)
    if isinstance(request, RollbackRequest):
        return name, client_id, request.batch_id, request.epoch
    return name, client_id


@both_connectors
def test_what_is_lent_is_fetched_before_the_loop_has_it(connector_of: Any) -> None:
    store = Store()
    messages = connector_of(store).messages(10, 1.0)
    first, second = next(messages), next(messages)
    assert store.calls == [
        ("poll", 1001, 10, 1.0, None, True),
        ("poll", 1001, 10, 1.0, (1, 1), True),
    ]
    assert store.fetched == [1, 2]
    assert (first.chunks, second.chunks) == ([1], [2])
    assert store.fetched == [1, 2]


@both_connectors
def test_what_is_not_lent_is_fetched_when_it_is_read(connector_of: Any) -> None:
    store = Store(untracked=False)
    messages = connector_of(store).messages(10, 1.0)
    first = next(messages)
    assert store.calls == [("poll", 1001, 10, 1.0, None, False)]
    assert store.fetched == []
    assert first.chunks == [1]


@both_connectors
def test_what_was_lent_in_vain_is_given_back_and_the_next_one_not_lent(connector_of: Any) -> None:
    store = Store(1, 3)
    messages = connector_of(store).messages(10, 1.0)
    assert [next(messages).id for _ in range(3)] == [2, 4, 5]
    assert store.calls == [
        ("poll", 1001, 10, 1.0, None, True),
        ("rollback", 1001, None, 1),
        ("poll", 1001, 10, 1.0, None, False),
        ("poll", 1001, 10, 1.0, (2, 1), True),
        ("rollback", 1001, None, 1),
        ("poll", 1001, 10, 1.0, None, False),
        ("poll", 1001, 10, 1.0, (4, 1), True),
    ]


class Lossy(Store):
    """Its batches in `lost` cannot be read at all: the node that had them is dead."""

    def __init__(self, *lost: int) -> None:
        super().__init__()
        self.lost = lost

    def message(self, head: MessageHead) -> Message:
        def load(payloads: list[Any]) -> list[Any]:
            if head.id in self.lost:
                raise InstanceRestarted("it was lost with the node that had it")
            return payloads

        return Message(head, load)


@both_connectors
def test_a_loop_gives_back_what_was_lost_and_goes_on_when_it_comes_again(connector_of: Any) -> None:
    """B1: the loop's body does not see that a node has died."""
    store = Lossy(2, 3, 4)
    messages = connector_of(store).messages(10, 1.0)
    assert [next(messages).chunks for _ in range(3)] == [[1], [5], [6]]
    kinds = [call[0] for call in store.calls]
    assert kinds == ["poll", *("poll", "rollback") * 3, "poll", "poll"]
    assert [call[-1] for call in store.calls if call[0] == "poll"] == [
        True, True, False, False, False, True,
    ]  # fmt: skip


@both_connectors
def test_what_is_lost_for_good_is_shown_after_some_tries(connector_of: Any) -> None:
    store = Lossy(*range(1, 100))
    messages = connector_of(store).messages(10, 1.0)
    shown = next(messages)
    assert len([call for call in store.calls if call[0] == "poll"]) == 6
    with pytest.raises(InstanceRestarted, match="the node that had it"):
        _ = shown.chunks


@both_connectors
def test_a_message_that_cannot_be_read_comes_with_the_next_get(connector_of: Any) -> None:
    """B1: what its reader is told is true; of a message that was acked, it is not said."""
    store = Lossy(1, 2)
    connector = connector_of(store)
    first, second = connector.get_without_ack(10), connector.get_without_ack(10)
    with pytest.raises(InstanceRestarted, match="the node that had it"):
        _ = second.chunks
    assert store.not_taken == [2]
    connector.ack(first.id)
    with pytest.raises(InstanceRestarted, match="was acked before it was read"):
        _ = first.chunks
    assert store.not_taken == [2]


@both_connectors
def test_get_has_its_chunks_before_it_acks(connector_of: Any) -> None:
    """B1: a node that dies takes no message along that was acked already."""
    store = Lossy(1)
    connector = connector_of(store)
    with pytest.raises(InstanceRestarted, match="the node that had it"):
        connector.get(10)
    assert store.not_taken == [1, 1]
    assert connector.get(10).chunks == [2]
    assert [call[0] for call in store.calls] == ["get", "get", "ack"]


@both_connectors
def test_other_failures_reach_the_loop(connector_of: Any) -> None:
    class Broken(Store):
        def message(self, head: MessageHead) -> Message:
            def load(payloads: list[Any]) -> list[Any]:
                raise MemoryError("no room to map it")

            return Message(head, load)

    with pytest.raises(MemoryError, match="no room"):
        next(connector_of(Broken()).messages())


def test_an_empty_message_holds_nothing() -> None:
    Message(MessageHead(EMPTY_BATCH, 1), lambda _: pytest.fail("there is nothing")).fetch()
