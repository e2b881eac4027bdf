"""Calls of our connectors over Flight: rights, and chunks that are kept as long as their batch."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ray_canal.client.flight_wire import CallAnswer, packed_call
from ray_canal.destination.api import (
    AckRequest,
    ClientRequest,
    DestinationApi,
    GetRequest,
    PollRequest,
    RollbackRequest,
    SubscribeRequest,
)
from ray_canal.errors import AccessDenied, BatchNotFirst, ConfigError, InstanceRestarted
from ray_canal.flight.remote_calls import RemoteCalls
from ray_canal.model.message import MessageHead, MessagePart
from ray_canal.server.access import User

ADMIN = User("root", frozenset({"admin"}))
READER = User("r", frozenset({"read"}), ("d",), (range(50, 60),))


class Store:
    """Answers calls; hands out a batch of two chunks with each get."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.batches = 0
        self.epoch = 1
        self.error: Exception | None = None

    def submit(self, destination: str, method: Any, request: ClientRequest) -> Any:
        self.requests.append(request)
        if self.error is not None:
            raise self.error
        if isinstance(request, GetRequest):
            self.batches += 1
            parts = tuple(MessagePart(f"p{self.batches}{n}", 0, 1, None) for n in (0, 1))
            return MessageHead(self.batches, self.epoch, parts)
        return 1 if isinstance(request, SubscribeRequest) else None

    def load(self, payloads: list[Any]) -> list[Any]:
        return [f"chunk of {each}" for each in payloads]


class Client:
    def __init__(self, store: Store, user: User = ADMIN, clients_max: int = 10) -> None:
        self.calls = RemoteCalls(store.submit, store.load, clients_max)
        self.user = user

    def make(self, method: Any, request: ClientRequest) -> Any:
        data = self.calls.call(self.user, packed_call("d", method, request))
        return CallAnswer.model_validate_json(data).result()

    def get(self, client_id: int = 55) -> list[str]:
        request = GetRequest(client_id=client_id, holder="h", batch_size=1, timeout=None)
        return [part.payload for part in self.make(DestinationApi.get_without_ack, request).parts]

    def ack(self, batch_id: int, keep: bool = False) -> None:
        request = AckRequest(client_id=55, holder="h", batch_id=batch_id, epoch=1, keep=keep)
        self.make(DestinationApi.ack, request)

    def has(self, name: str) -> bool:
        try:
            return str(self.calls.chunk(self.user, name)).startswith("chunk of p")
        except InstanceRestarted:
            return False


def test_chunks_are_there_until_their_batch_is_acked() -> None:
    client = Client(Store())
    first, second = client.get(), client.get()
    assert [client.calls.chunk(ADMIN, name) for name in second] == ["chunk of p20", "chunk of p21"]
    client.ack(1)
    assert [client.has(name) for name in (*first, *second)] == [False, False, True, True]


def test_what_is_read_after_its_ack_is_there_until_the_next_get() -> None:
    client = Client(Store())
    (name, _) = client.get()
    client.ack(1, keep=True)
    assert client.has(name)
    later = client.get()
    assert not client.has(name)
    assert client.has(later[0])


def test_a_poll_frees_what_it_acks() -> None:
    client = Client(Store())
    (name, _) = client.get()
    request = PollRequest(
        client_id=55, holder="h", batch_size=1, timeout=1.0, done=(1, 1), untracked=True
    )
    client.make(DestinationApi.poll, request)
    assert not client.has(name)


@pytest.mark.parametrize(("given_back", "left"), [(None, []), (2, [1])])
def test_what_is_given_back_is_gone(given_back: int | None, left: list[int]) -> None:
    client = Client(Store())
    names = [client.get()[0] for _ in range(3)]
    request = RollbackRequest(client_id=55, holder="h", batch_id=given_back, epoch=1)
    client.make(DestinationApi.rollback, request)
    assert [number + 1 for number, name in enumerate(names) if client.has(name)] == left


def test_a_new_epoch_and_a_new_subscription_void_names() -> None:
    store = Store()
    client = Client(store)
    (old, _) = client.get()
    store.epoch, store.batches = 2, 0
    (new, _) = client.get()
    assert (client.has(old), client.has(new)) == (False, True)
    request = SubscribeRequest(client_id=55, holder="h", filter=".*")
    assert client.make(DestinationApi.subscribe, request) == 1
    assert not client.has(new)


def test_chunks_of_so_many_clients_are_kept() -> None:
    client = Client(Store(), clients_max=2)
    names = [client.get(client_id)[0] for client_id in (1, 2, 3)]
    assert [client.has(name) for name in names] == [False, True, True]


def test_holders_are_told_apart_from_those_of_other_doors() -> None:
    store = Store()
    client = Client(store)
    client.get()
    assert store.requests[0].holder == "flight:h"
    with pytest.raises(ConfigError, match="holder"):
        client.make(DestinationApi.list_batch_ids, ClientRequest(client_id=55))


def test_who_may_not_is_refused() -> None:
    store = Store()
    client = Client(store, READER)
    name = client.get()[0]
    with pytest.raises(AccessDenied, match="be client 5"):
        client.get(5)
    with pytest.raises(AccessDenied):
        client.ack(1)
    with pytest.raises(AccessDenied):
        client.make(
            DestinationApi.subscribe, SubscribeRequest(client_id=55, holder="h", filter="")
        )
    other = User("x", frozenset({"read"}), ("d",), (range(1, 2),))
    with pytest.raises(AccessDenied):
        client.calls.chunk(other, name)
    done = PollRequest(client_id=55, holder="h", batch_size=1, timeout=1.0, done=(1, 1))
    with pytest.raises(AccessDenied):
        client.make(DestinationApi.poll, done)
    assert len(store.requests) == 1


def test_errors_of_the_store_are_the_clients() -> None:
    store = Store()
    store.error = BatchNotFirst("not the first")
    with pytest.raises(BatchNotFirst, match="not the first"):
        Client(store).get()


@pytest.mark.parametrize(
    "name",
    [
        *("", "[]", "{}", "5", '["d"]', '["d", "x", 1, 1, 0]', "[" * 60_000),
        *('["d", 55, 1, [1], 0]', '["d", 55, 1, 1, "x"]', '["d", 55, 1, 1, Infinity]'),
    ],
)
def test_names_of_no_chunk(name: str) -> None:
    client = Client(Store())
    client.get()
    with pytest.raises(ConfigError, match="names no chunk"):
        client.calls.chunk(ADMIN, name)
    with pytest.raises(InstanceRestarted):
        client.calls.chunk(ADMIN, json.dumps(["d", 55, 1, 1, 99]))
