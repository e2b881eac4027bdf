"""An ephemeral subscription, from its client's side."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from ray_canal.client.connecting import connect
from ray_canal.client.ephemeral import Presence
from ray_canal.destination.api import ClientRequest
from ray_canal.errors import ConfigError, InstanceNotRunning, NotSubscribed
from ray_canal.model.subscription import is_ephemeral_id
from tests.driven_connector import both_connectors


class Store:
    """Notes calls."""

    destination = "x"
    has_batches = True
    untracked = False

    def __init__(self, *failures: Exception) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.failures = list(failures)
        self.touched = threading.Semaphore(0)
        self.closed = False

    def call(self, method: Any, request: Any, *, once: bool = False) -> Any:
        self.calls.append((method.__name__, request))
        if method.__name__ == "touch":
            self.touched.release()
            if self.failures:
                raise self.failures.pop(0)
        return 1

    async def call_async(self, method: Any, request: Any) -> Any:
        return self.call(method, request)

    def close(self) -> None:
        self.closed = True


@both_connectors
def test_who_looks_on_has_an_id_of_its_own_and_leaves(connector_of: Any) -> None:
    """D1: it takes over nobody, holds up nobody, and unsubscribes at the end."""
    stores = [Store(), Store()]
    ids = []
    for store in stores:
        with connector_of(store, None) as connector:
            connector.subscribe("shop")
            ids.append(connector.client_id)
        assert store.closed
    for client_id, store in zip(ids, stores, strict=True):
        assert is_ephemeral_id(client_id)
        (subscribe, asked), unsubscribe = store.calls
        assert (subscribe, asked.client_id, asked.filter) == ("subscribe", client_id, "shop")
        assert (asked.wishes.policy, asked.wishes.ephemeral) == ("detach", True)
        assert unsubscribe == ("unsubscribe", ClientRequest(client_id=client_id))
    assert ids[0] != ids[1]


@both_connectors
def test_a_durable_subscription_stays(connector_of: Any) -> None:
    store = Store()
    with connector_of(store, 7) as connector:
        connector.subscribe("shop", policy="spill")
    ((_, asked),) = store.calls
    wishes = asked.wishes
    assert (wishes.policy, wishes.ephemeral) == ("spill", False)
    assert store.closed


def test_it_says_that_it_is_there_until_it_leaves_or_is_forgotten() -> None:
    store = Store(InstanceNotRunning("away"), ValueError("anything"))
    presence = Presence(store, 7, every_s=0.01)  # type: ignore[arg-type]
    presence.begin()
    presence.begin()
    for _ in range(4):
        assert store.touched.acquire(timeout=30)
    store.failures.append(NotSubscribed("forgotten"))
    deadline = time.monotonic() + 30
    assert presence._thread is not None
    while presence._thread.is_alive() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not presence._thread.is_alive()
    presence.end()
    presence.end()
    assert [call for call in store.calls if call[0] != "touch"] == [
        ("unsubscribe", ClientRequest(client_id=7))
    ]


def test_canals_protocol_has_none() -> None:
    with pytest.raises(ConfigError, match="give a client_id"):
        connect("orders", None, address="127.0.0.1:1")
